"""A real DeviceMesh and real process groups, on PyTorch's fake backend."""

import gc

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.mesh.axis import MeshAxis, _reset
from shardwise.mesh.current import current_entry, current_mesh, current_mesh_all_names, set_current_mesh
from shardwise.mesh.normalize import axis_argument, format_axis, normalize_axis


@pytest.fixture(scope="module")
def grid():
    dist.init_process_group("fake", rank=5, world_size=8, store=FakeStore())
    yield init_device_mesh("cpu", (2, 4, 1), mesh_dim_names=("dp", "tp", "one"))
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def _no_names_from_elsewhere():
    _reset()
    yield
    _reset()


def test_a_process_group_is_the_axis_of_its_ranks(grid):
    assert MeshAxis.of(grid.get_group("tp")) is MeshAxis.of(4, 1)
    assert MeshAxis.of(grid.get_group("dp")) is MeshAxis.of(2, 4)
    assert MeshAxis.of(grid.get_group("one")) is MeshAxis.of(1, 1)
    assert MeshAxis.of(dist.group.WORLD) is MeshAxis.of(8, 1)


def test_a_process_group_brings_its_name(grid):
    tp = MeshAxis.of(grid.get_group("tp"))
    assert tp.names == {"tp"}
    assert repr(tp) == format_axis(grid.get_group("tp")) == "tp"
    assert repr(MeshAxis.of(dist.group.WORLD)) == "default_pg"


def test_the_one_device_mesh_of_the_program_gives_names_without_being_told(grid, monkeypatch):
    here = gc.get_objects()  # without the meshes that other tests have left behind
    own = {id(grid), *(id(grid[name]) for name in grid.mesh_dim_names)}
    kept = [one for one in here if DeviceMesh not in type(one).__mro__ or id(one) in own]
    monkeypatch.setattr(gc, "get_objects", lambda: kept)
    assert current_entry() is None
    assert grid["tp"].ndim == 1  # a part of a mesh is no second one
    assert normalize_axis("dp") is MeshAxis.of(2, 4)
    assert axis_argument(MeshAxis.of(4, 1)) == '"tp"'
    with pytest.raises(SpmdTypeError, match="no axis named 'pp'; its axes are 'dp', 'one', 'tp'") as caught:
        normalize_axis("pp")
    assert caught.value.code == "SW902"
    assert current_entry() is None


def test_a_device_mesh_becomes_current_with_its_names_and_groups(grid):
    with set_current_mesh(grid):
        assert current_mesh() == {MeshAxis.of(2, 4), MeshAxis.of(4, 1)}
        assert set(current_mesh_all_names()) == {"dp", "tp", "one"}
        assert current_entry().groups[normalize_axis("tp")] is grid.get_group("tp")
        assert current_entry().named_groups["dp"] is grid.get_group("dp")
        assert repr(normalize_axis("tp")) == "tp"


def test_process_groups_in_a_sequence_are_a_mesh(grid):
    groups = [grid.get_group("tp"), grid.get_group("dp")]
    with set_current_mesh(groups):
        assert current_mesh() == {MeshAxis.of(2, 4), MeshAxis.of(4, 1)}
        assert current_entry().groups[normalize_axis(groups[0])] is groups[0]


def test_the_layout_of_a_device_mesh_is_an_axis_too(grid):
    assert MeshAxis(grid["tp"]._layout) is MeshAxis.of(4, 1)


def test_a_device_mesh_without_dim_names_is_refused(grid):
    with (
        pytest.raises(ValueError, match="dim names") as caught,
        set_current_mesh(init_device_mesh("cpu", (8,))),
    ):
        pass
    assert caught.value.code == "SW903"
