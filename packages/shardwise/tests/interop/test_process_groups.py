"""Which group does an axis resolve to, what is said when there is none, and is nothing kept alive or stale?"""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from shardwise import MeshAxis, P, R, S, SpmdTypeError, V, all_gather, all_reduce, convert, set_current_mesh, set_dist
from shardwise.interop.communication import backend, process_groups
from shardwise.interop.communication.process_groups import communicator
from shardwise.interop.torch_compat import fake_world


def test_a_group_a_name_and_an_axis_lead_to_one_communicator():
    with fake_world(5, 8):
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        group = mesh.get_group("tp")
        with set_current_mesh(mesh):
            found = [communicator(axis) for axis in (group, "tp", MeshAxis.of(4, 1))]
            assert communicator("tp").group is group
        assert found[0] is found[1] is found[2]
        assert (found[0].size, found[0].rank) == (4, 1)


@pytest.mark.parametrize(
    ("make_mesh", "axis", "code", "words"),
    [
        (lambda: None, "tp", "SW904", "current mesh"),
        (lambda: None, MeshAxis.of(4, 1), "SW211", "there is no current mesh"),
        (lambda: {"tp": MeshAxis.of(4, 1)}, "tp", "SW211", "made without process groups"),
        (lambda: {"tp": MeshAxis.of(4, 1)}, "pp", "SW902", "'pp'"),
        (lambda: init_device_mesh("cpu", (4,), mesh_dim_names=("tp",)), MeshAxis.of(2, 2), "SW211",
         "is not in the current mesh"),
    ],
)  # fmt: skip
def test_an_axis_without_a_group_is_refused(
    make_mesh: Any, axis: Any, code: str, words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shardwise.mesh.program._one_mesh", lambda: None)  # other tests have left meshes behind
    with fake_world(0, 4):
        mesh = make_mesh()
        x = torch.zeros(4)
        with pytest.raises(RuntimeError, match=words) as caught:
            if mesh is None:
                all_reduce(x, axis, src=P, dst=R)
            else:
                with set_current_mesh(mesh):
                    all_reduce(x, axis, src=P, dst=R)
        assert isinstance(caught.value, SpmdTypeError)
        assert caught.value.code == code
        assert caught.value.help or code == "SW902"


def test_a_process_outside_the_group_is_told_so():
    with fake_world(0, 4):
        outside = SimpleNamespace(group_desc="others")
        set_dist(SimpleNamespace(get_rank=lambda group: -1, get_world_size=lambda group: 2,
                                 all_gather_into_tensor=None, reduce_scatter_tensor=None))  # fmt: skip
        try:
            with pytest.raises(SpmdTypeError, match="not a member of the process group 'others'") as caught:
                all_reduce(torch.zeros(2), outside, src=P, dst=R)
        finally:
            set_dist(None)
        assert caught.value.code == "SW211"


def test_an_axis_of_one_rank_needs_no_group():
    x = torch.ones(3, requires_grad=True)
    with set_current_mesh({"tp": MeshAxis.of(1, 1)}):
        assert all_reduce(x, "tp", src=P, dst=R).tolist() == [1, 1, 1]
        assert all_gather(x, "tp", src=V, dst=R).shape == (1, 3)
        assert convert(x, MeshAxis.of(1, 1), src=R, dst=S(0)).shape == (3,)


def test_a_destroyed_group_is_let_go():
    with fake_world(0, 2):
        group = dist.group.WORLD
        communicator(group)
        watched, key = weakref.ref(group), id(group)
        del group
    gc.collect()
    assert watched() is None
    assert key not in process_groups._by_id


def test_backward_after_the_group_is_gone_says_so():
    x = torch.ones(2, requires_grad=True)
    with fake_world(0, 2):
        y = all_reduce(x, dist.group.WORLD, src=P, dst=R)
    gc.collect()
    with pytest.raises(SpmdTypeError, match="is gone") as caught:
        y.sum().backward()
    assert caught.value.code == "SW211"


def test_a_name_is_looked_up_when_called_and_not_in_backward():
    with fake_world(0, 2):
        x = torch.ones(2, requires_grad=True)
        with set_current_mesh(init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))):
            y = all_reduce(x, "tp", src=P, dst=R)
        y.sum().backward()
        assert x.grad is not None


class Recorder:
    """A stand-in that notes what it is asked to send."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def get_rank(self, group: Any) -> int:
        return 0

    def get_world_size(self, group: Any) -> int:
        return 2

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self.calls.append(name)


def test_set_dist_sends_everything_through_the_stand_in():
    recorder = Recorder()
    group = object()
    set_dist(recorder)
    try:
        assert backend.is_replaced()
        x = torch.zeros(4, requires_grad=True)
        y = all_gather(x, group, src=S(0), dst=R, async_op=True)
        all_reduce(x, group, src=P, dst=R, async_op=True)
        y.sum().backward()
    finally:
        set_dist(None)
    assert recorder.calls == ["all_gather_into_tensor", "all_reduce", "reduce_scatter_tensor"]
    assert backend.current is dist


def test_a_stand_in_may_answer_differently_on_each_thread():
    ranks = threading.local()
    stand_in = SimpleNamespace(get_rank=lambda group: ranks.rank, get_world_size=lambda group: 2,
                               all_gather_into_tensor=None, reduce_scatter_tensor=None)  # fmt: skip
    group, pieces = object(), {}

    def run(rank: int) -> None:
        ranks.rank = rank
        pieces[rank] = convert(torch.arange(2), group, src=R, dst=S(0)).tolist()

    set_dist(stand_in)
    try:
        for rank in (0, 1):
            thread = threading.Thread(target=run, args=(rank,))
            thread.start()
            thread.join()
    finally:
        set_dist(None)
    assert pieces == {0: [0], 1: [1]}
