"""While another package's name is aliased, raw collectives and unknown operators are read as its users expect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.result import Collector
from shardwise.interop import alias
from shardwise.interop.torch_compat import fake_world

NAME = "a_package_that_is_not_installed"
LETTERS = {"R": R, "I": I, "V": V, "P": P}


@pytest.fixture
def mesh() -> Iterator[Any]:
    with fake_world(0, 4):
        yield init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


@pytest.fixture
def aliased(mesh: Any) -> Iterator[Any]:
    alias.install(NAME)
    yield mesh
    alias.uninstall(NAME)


def typed(shape: tuple[int, ...], **types: Any) -> torch.Tensor:
    return spmd.assert_type(torch.randn(shape), types)


def ran(name: str, mesh: Any, src: dict[str, Any], out: dict[str, Any] | None) -> dict[str, Any]:
    """The type of what arrives when ``name`` runs over tp."""
    group = mesh.get_group("tp")
    with spmd.set_current_mesh(mesh), typecheck():
        x = typed((4, 4), **src)
        if name == "all_reduce":
            dist.all_reduce(x, group=group)
            buffer = x
        elif name == "all_gather":
            buffers = [torch.empty(4, 4) if out is None else typed((4, 4), **out) for _ in range(2)]
            dist.all_gather(buffers, x, group=group)
            buffer = buffers[0]
        else:
            rows = {"all_gather_into_tensor": 8, "reduce_scatter_tensor": 2, "all_to_all_single": 4}[name]
            buffer = torch.empty(rows, 4) if out is None else typed((rows, 4), **out)
            getattr(dist, name)(buffer, x, group=group)
        return {name: spmd.get_axis_local_type(buffer, name) for name in ("dp", "tp")}


TAKES = {
    "all_reduce": ("P", "R"),
    "all_gather": ("V", "R"),
    "all_gather_into_tensor": ("V", "R"),
    "reduce_scatter_tensor": ("P", "V"),
    "all_to_all_single": ("V", "V"),
}


@pytest.mark.parametrize("place", LETTERS)
@pytest.mark.parametrize("name", TAKES)
def test_an_operand_has_the_one_type_that_the_collective_is_for(aliased, name, place):
    takes, gives = TAKES[name]
    if place == takes:
        assert ran(name, aliased, {"tp": LETTERS[place], "dp": V}, None) == {"tp": LETTERS[gives], "dp": V}
        return
    with pytest.raises(SpmdTypeError) as refused:
        ran(name, aliased, {"tp": LETTERS[place], "dp": V}, None)
    assert refused.value.code in ("SW201", "SW210")


@pytest.mark.parametrize(
    ("name", "place"), [("all_reduce", V), ("all_gather_into_tensor", R), ("all_to_all_single", I)]
)
def test_without_the_alias_what_the_program_must_mean_is_read(mesh, name, place):
    ran(name, mesh, {"tp": place, "dp": V}, None)


@pytest.mark.parametrize("declared", LETTERS)
@pytest.mark.parametrize("name", [name for name in TAKES if name != "all_reduce"])
def test_a_declared_buffer_is_compared_and_keeps_its_type(aliased, name, declared):
    takes, gives = TAKES[name]
    allowed = {"R": (R, I), "V": (V,)}[gives]
    src, out = {"tp": LETTERS[takes], "dp": V}, {"tp": LETTERS[declared], "dp": V}
    if LETTERS[declared] in allowed:
        assert ran(name, aliased, src, out) == out
        return
    with pytest.raises(SpmdTypeError, match="which is declared") as refused:
        ran(name, aliased, src, out)
    assert refused.value.code == "SW120"


@pytest.mark.parametrize(
    ("sent", "declared", "kept"),
    [(V, V, True), (R, R, True), (R, I, True), (I, R, True), (R, V, True), (P, P, True), (V, R, False), (V, P, False)],
)
def test_an_axis_that_the_call_does_not_concern_keeps_the_buffers_type_where_that_is_true(
    aliased, sent, declared, kept
):
    src, out = {"tp": V, "dp": sent}, {"tp": R, "dp": declared}
    if kept:
        assert ran("all_gather_into_tensor", aliased, src, out) == out
        return
    with pytest.raises(SpmdTypeError, match="over dp into"):
        ran("all_gather_into_tensor", aliased, src, out)


def test_an_operand_without_a_type_is_refused_in_strict_mode_only(aliased):
    with spmd.set_current_mesh(aliased):
        with typecheck(), pytest.raises(SpmdTypeError, match="SW207"):
            dist.all_reduce(torch.randn(4), group=aliased.get_group("tp"))
        with typecheck("permissive"):
            dist.all_reduce(torch.randn(4), group=aliased.get_group("tp"))


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    library = torch.library.Library("shardwise_reference_test", "DEF")
    library.define("blend(Tensor x, Tensor y) -> Tensor")
    library.impl("blend", lambda x, y: x * y, "CompositeExplicitAutograd")
    yield torch.ops.shardwise_reference_test.blend
    library._destroy()


@pytest.mark.parametrize(
    ("x", "y", "result"), [(R, R, R), (I, I, I), (V, V, V), (R, V, V), (P, R, None), (R, P, None), (P, P, None)]
)
@pytest.mark.parametrize("strict", ["strict", "permissive"])
def test_an_unknown_operator_is_a_function_that_is_not_linear(aliased, kernel, x, y, result, strict):
    with spmd.set_current_mesh(aliased), typecheck(strict):
        operands = typed((4,), tp=x, dp=R), typed((4,), tp=y, dp=R)
        if result is None:
            with pytest.raises(SpmdTypeError, match="SW301"):
                kernel(*operands)
        else:
            assert spmd.get_axis_local_type(kernel(*operands), "tp") is result


def test_an_unknown_operator_is_listed_among_what_is_trusted(aliased, kernel):
    collector = Collector(mesh="dp=2,tp=2", script="program")
    with spmd.set_current_mesh(aliased), checking(collect=collector):
        kernel(typed((4,), tp=V, dp=R), typed((4,), tp=V, dp=R))
    result = collector.result()
    assert not result.findings
    assert any("blend" in item.what for item in result.trusted)


def test_without_the_alias_an_unknown_operator_has_no_rule(mesh, kernel):
    with spmd.set_current_mesh(mesh), typecheck(), pytest.raises(SpmdTypeError, match="SW301"):
        kernel(typed((4,), tp=V, dp=R), typed((4,), tp=V, dp=R))


@pytest.mark.parametrize(("src", "dst"), [(P, R), (P, I), (S(0), R), (S(1), I)])
def test_a_spec_is_a_spec_behind_a_collective(mesh, src, dst):
    with spmd.set_current_mesh(mesh), typecheck(local=False):
        x = typed((4, 4), tp=src, dp=R)
        call = spmd.all_reduce if src is P else spmd.all_gather
        assert spmd.get_partition_spec(call(x, "tp", src=src, dst=dst)) == spmd.PartitionSpec(None, None)
        assert spmd.get_partition_spec(typed((4, 4), tp=R, dp=R)) is None
    with spmd.set_current_mesh(mesh), typecheck(local=True):
        x = typed((4, 4), tp=P, dp=R)
        assert spmd.get_partition_spec(spmd.all_reduce(x, "tp", src=P, dst=R)) is None


def test_a_spec_that_was_given_is_a_spec_though_it_shards_nothing(mesh):
    with spmd.set_current_mesh(mesh):
        x = spmd.assert_type(torch.randn(4, 4), {"tp": R}, partition_spec=spmd.PartitionSpec(None, None))
        assert spmd.get_partition_spec(x) == spmd.PartitionSpec(None, None)


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ValueError, lambda x: spmd.shard(x, "tp", src=R, dst=V)),
        (ValueError, lambda x: spmd.unshard(x, "tp", src=V, dst=R)),
        (ValueError, lambda x: spmd.all_reduce(x, "tp", src=R, dst=R)),
    ],
)
@pytest.mark.parametrize("place", LETTERS.values())
def test_a_wrong_call_is_an_error_of_the_class_that_programs_catch(mesh, error, call, place):
    with spmd.set_current_mesh(mesh), typecheck(), pytest.raises(error):
        call(typed((4, 4), tp=place, dp=R))


def test_modules_are_attributes_of_the_package_and_types_has_the_names_of_its_types():
    assert spmd.runtime.get_local_type is spmd.get_local_type
    assert spmd.types.MeshAxis is spmd.MeshAxis
    assert spmd.types.TYPE_CHECKING is spmd.TYPE_CHECKING
