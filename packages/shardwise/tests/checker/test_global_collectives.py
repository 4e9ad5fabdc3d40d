"""Global mode: what collectives do to partition specs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed._functional_collectives as funcol

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector

from .helpers import operand, refused


def typed(types: dict[str, Any], *shape: int, order: Any = None) -> torch.Tensor:
    x = torch.randn(shape or (8, 8))
    return spmd.assert_type(x, types, order) if order is not None else spmd.assert_type(x, types)


@pytest.mark.parametrize(
    ("op", "src", "dst", "before", "after"),
    [
        ("all_gather", S(0), R, "f32[8@tp, 8] {dp: R}", "f32[32, 8] {dp: R, tp: R}"),
        ("all_gather", S(1), I, "f32[8, 8@tp] {dp: R}", "f32[8, 32] {dp: R, tp: I}"),
        ("reduce_scatter", P, S(1), "f32[8, 8] {dp: R, tp: P}", "f32[8, 2@tp] {dp: R}"),
        ("all_to_all", S(0), S(1), "f32[8@tp, 8] {dp: R}", "f32[32, 2@tp] {dp: R}"),
        ("convert", R, S(0), "f32[8, 8] {dp: R, tp: R}", "f32[2@tp, 8] {dp: R}"),
        ("convert", I, S(1), "f32[8, 8] {dp: R, tp: I}", "f32[8, 2@tp] {dp: R}"),
        ("all_reduce", P, R, "f32[8, 8] {dp: R, tp: P}", "f32[8, 8] {dp: R, tp: R}"),
        ("redistribute", S(1), S(0), "f32[8, 8@tp] {dp: R}", "f32[2@tp, 32] {dp: R}"),
    ],
)
def test_a_move_takes_the_axis_along(mesh: Any, op: str, src: Any, dst: Any, before: str, after: str) -> None:
    x = typed({"dp": R, "tp": src})
    with typecheck(local=False):
        assert str(spmd.typeof(x)) == before
        assert str(spmd.typeof(getattr(spmd, op)(x, "tp", src=src, dst=dst))) == after


@pytest.mark.parametrize(
    ("call", "after"),
    [
        (lambda x: spmd.convert(x, "tp", src=R, dst=S(0), split_sizes=[5, 1, 1, 1]), "f32[5@~tp, 8]"),
        (lambda x: spmd.convert(x, "tp", src=R, dst=S(0), split_sizes=[2, 2, 2, 2]), "f32[2@tp, 8]"),
        (lambda x: spmd.redistribute(x, "tp", src=R, dst=S(1), split_sizes=[5, 1, 1, 1]), "f32[8, 5@~tp]"),
        (lambda x: spmd.convert(torch.ones(8, 8), "tp", src=R, dst=S(0), split_sizes=[5, 1, 1, 1]), "f32[5@~tp, 8]"),
    ],
)
def test_shards_are_uneven_where_split_sizes_differ(mesh: Any, call: Any, after: str) -> None:
    x = typed({"dp": R, "tp": R})
    with typecheck(local=False):
        y = call(x)
        assert str(spmd.typeof(y)).removesuffix(" {dp: R}") == after


def test_uneven_pieces_are_exchanged_with_split_sizes_only(mesh: Any) -> None:
    sizes = [5, 1, 1, 1]
    x = typed({"dp": R, "tp": R})
    with typecheck(local=False):
        mine = spmd.convert(x, "tp", src=R, dst=S(0), split_sizes=sizes)
        for call in (spmd.all_gather, spmd.redistribute, spmd.unshard):
            with refused("SW417", "split_sizes=[...]", "even=True"):
                call(mine, "tp", src=S(0), dst=R)
            with refused("SW417") as caught:
                call(mine, "tp", src=S(0), dst=R)
            way = 'all_gather(mine, "tp", src=S(0), dst=R, split_sizes=[...]) says how long each is'
            assert caught.value.finding.help[0] == way
            whole = call(mine, "tp", src=S(0), dst=R, split_sizes=sizes)
            assert str(spmd.typeof(whole)) == "f32[8, 8] {dp: R, tp: R}"
        with refused("SW417", "even=True"):
            spmd.all_to_all(mine, "tp", src=S(0), dst=S(1))
        sent = spmd.all_to_all(mine, "tp", input_split_sizes=[2, 1, 1, 1], output_split_sizes=[2, 3, 0, 1])
        assert str(spmd.typeof(sent)) == "f32[6@~tp, 8] {dp: R}"
        back = spmd.all_to_all(sent, "tp", input_split_sizes=[2, 3, 0, 1], output_split_sizes=[2, 1, 1, 1])
        buffer = torch.empty(32, 8)
        with refused("SW417", "mine: all_gather_into_tensor takes every rank's piece over tp") as caught:
            torch.distributed.all_gather_into_tensor(buffer, mine, group=mesh.get_group("tp"))
        assert caught.value.finding.help[0] == way
        even = spmd.assert_type(back, {"tp": S(0)}, even=True)
        assert str(spmd.typeof(spmd.all_gather(even, "tp", src=S(0), dst=R))) == "f32[20, 8] {dp: R, tp: R}"


@pytest.mark.parametrize(
    "call",
    [
        torch.zeros_like,
        torch.ones_like,
        lambda x: torch.full_like(x, 2.0),
        lambda x: torch.zeros_like(x) + x,
        lambda x: torch.empty_like(x).copy_(x),
        lambda x: x.clone().mul_(2),
        lambda x: torch.where(x > 0, x, 0.0),
        lambda x: x.new_ones(1, 8).expand_as(x) * x,
        lambda x: x[:, None].movedim(0, 1).squeeze(0),
        lambda x: torch.stack([x, x], 1).unbind(1)[0],
        lambda x: x.chunk(2, 1)[0].repeat(1, 2),
    ],
)
def test_what_has_the_shape_of_an_uneven_shard_is_one(mesh: Any, call: Any) -> None:
    with typecheck(local=False):
        assert str(spmd.typeof(call(operand("f32[5@~tp, 8] {dp: R}")))).startswith("f32[5@~tp, 8]")


@pytest.mark.parametrize(("grad", "typed"), [(True, "f32[5@~tp, 8] {dp: P(avg)}"), (False, "f32[5@~tp, 8] {dp: R}")])
def test_a_gradient_has_the_shards_of_its_tensor(mesh: Any, grad: bool, typed: str) -> None:
    x = operand("f32[5@~tp, 8] {dp: R}").requires_grad_()
    with typecheck(local=False):
        if grad:
            loss = spmd.reinterpret(x.sum(), "dp", src=R, dst=P, expert_mode=True)
            (x,) = torch.autograd.grad(loss, x)
        assert str(spmd.typeof(x)) == typed


def test_local_types_do_not_ask_which_dim_is_exchanged(mesh: Any) -> None:
    x = typed({"dp": R, "tp": S(1)})
    with typecheck():
        y = spmd.all_to_all(x, "tp", input_split_sizes=[5, 1, 1, 1], output_split_sizes=[2, 2, 2, 2])
        assert str(spmd.typeof(y)) == "f32[8, 8] {dp: R, tp: V}"
    with typecheck(local=False), refused("SW212", "x", "dim 0", "dim 1"):
        spmd.all_to_all(x, "tp", input_split_sizes=[5, 1, 1, 1], output_split_sizes=[2, 2, 2, 2])


def test_other_axes_stay_where_they_are(mesh: Any) -> None:
    x = typed({"dp": S(0), "tp": P})
    with typecheck(local=False):
        y = spmd.reduce_scatter(x, "tp", dst=S(0))
        assert str(spmd.typeof(y)) == "f32[2@(dp,tp), 8]"
        z = spmd.all_gather(y, "tp", src=S(0), dst=R)
        assert str(spmd.typeof(z)) == "f32[8@dp, 8] {tp: R}"


def test_only_the_innermost_axis_of_a_dim_can_be_moved(mesh: Any) -> None:
    x = typed({}, order=spmd.PartitionSpec(("dp", "tp"), None))
    with typecheck(local=False):
        with refused("SW410", "innermost", "tp") as caught:
            spmd.all_gather(x, "dp", src=S(0), dst=R)
        assert type(caught.value).__name__ == "RedistributeError"
        whole = spmd.all_gather(x, torch.distributed.group.WORLD, src=S(0), dst=R)
        assert str(spmd.typeof(whole)) == "f32[64, 8] {dp: R, tp: R}"


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda x: spmd.all_gather(x, "tp", src=S(1), dst=R), "SW212"),
        (lambda x: spmd.all_gather(x, "tp", src=V, dst=R), "SW412"),
        (lambda x: spmd.all_reduce(x, "tp", dst=R), "SW201"),
        (lambda x: spmd.reduce_scatter(x, "tp", dst=S(0)), "SW201"),
    ],
)
def test_a_sharded_tensor_is_read_as_what_it_is(mesh: Any, call: Any, code: str) -> None:
    x = typed({"dp": R, "tp": S(0)})
    with typecheck(local=False), refused(code, "x"):
        call(x)


def test_pieces_may_be_declared_addends(mesh: Any) -> None:
    x = typed({"dp": R, "tp": S(0)})
    with typecheck(local=False):
        assert str(spmd.typeof(spmd.reinterpret(x, "tp", src=V, dst=P))) == "f32[8, 8] {dp: R, tp: P}"


def test_local_axes_keep_local_semantics(mesh: Any) -> None:
    with spmd.set_current_mesh(local_axes=("dp",)), typecheck(local=False):
        x = typed({"dp": V, "tp": R})
        assert str(spmd.typeof(torch.relu(x.sum(0)))) == "f32[8] {dp: V, tp: R}"


def test_a_varying_operand_must_say_which_dim_is_sharded(mesh: Any) -> None:
    x = typed({"dp": V, "tp": R})
    with typecheck(local=False):
        with refused("SW408", "x", "dp"):
            x + 1
        with spmd.local():
            y = x + 1
        spmd.assert_type(y, {"dp": S(1)})
        assert str(spmd.typeof(y * 2)) == "f32[8, 8@dp] {tp: R}"


def test_a_collective_over_local_and_global_axes_at_once_is_refused(mesh: Any) -> None:
    x = typed({"dp": P, "tp": P})
    with spmd.set_current_mesh(local_axes=("dp",)), typecheck(local=False):
        with refused("SW413", "dp with local types and tp with global types"):
            spmd.all_reduce(x, torch.distributed.group.WORLD, dst=R)
        y = spmd.all_reduce(spmd.all_reduce(x, "tp", dst=R), "dp", dst=R)
        assert str(spmd.typeof(y)) == "f32[8, 8] {dp: R, tp: R}"


def test_pieces_made_of_constants_are_equal_and_only_one_value_can_be_pieced_together(mesh: Any) -> None:
    with typecheck(local=False):
        with refused("SW406", "torch.arange(4)", "tp", "make all of it on every rank, and leave out this all_gather"):
            spmd.all_gather(torch.arange(4), "tp", src=S(0), dst=R)
        with refused("SW406", "make all of it on every rank, and convert(torch.arange(16).resh", "src=R, dst=S(0)"):
            spmd.all_to_all(torch.arange(16).reshape(4, 4), "tp", src=S(0), dst=S(1))
        ones = spmd.all_gather(torch.ones(4), "tp", src=S(0), dst=R)
        assert str(spmd.typeof(ones)) == "f32[16] {dp: R, tp: R}"
        piece = spmd.convert(torch.arange(16), "tp", src=R, dst=S(0))
        assert str(spmd.typeof(spmd.all_gather(piece, "tp", src=S(0), dst=R))) == "i64[16] {dp: R, tp: R}"


def test_one_mistake_gives_one_report(mesh: Any) -> None:
    x = typed({"dp": R, "tp": R})
    collector = Collector(mesh="", script="", rank=0)
    with checking(local=False, collect=collector):
        y = spmd.all_gather(x, "tp", src=S(0), dst=R)
        z = spmd.all_to_all(x.relu(), "tp", src=S(0), dst=S(1))
        torch.relu(y) + 1
        torch.relu(z) * 2
        torch.relu(spmd.reduce_scatter(torch.relu(x), "tp", dst=S(0))) + 1
    assert [finding.code for finding in collector.result().findings] == ["SW201", "SW201", "SW201"]


def test_a_refused_stack_leaves_the_other_axes_on_their_dims(mesh: Any) -> None:
    x = typed({"dp": S(0), "tp": S(1)})
    collector = Collector(mesh="", script="", rank=0)
    with checking(local=False, collect=collector):
        assert str(spmd.typeof(spmd.all_gather(x.amax(-1), "tp", src=V, dst=R).amax(0))) == "f32[8@dp] {tp: R}"
    assert [finding.code for finding in collector.result().findings] == ["SW201"]


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: spmd.reinterpret(x.sum(), "dp", src=V, dst=P),
        lambda x: spmd.all_reduce(x.sum(), "dp", src=V, dst=R),
        lambda x: spmd.reduce_scatter(x.sum(0), "dp", src=V, dst=S(0)),
    ],
)
def test_addends_may_be_called_so_where_global_types_know_it_already(mesh: Any, call: Any, local: bool) -> None:
    with typecheck(local=local):
        call(typed({"dp": S(0), "tp": R}))
        with refused("SW201", "V (varying)", "P (a partial sum)"):
            spmd.all_to_all(typed({"dp": P, "tp": R}), "dp", src=V, dst=V)


def raw(name: str, x: torch.Tensor, mesh: Any, shape: tuple[int, ...] = ()) -> torch.Tensor:
    """The tensor in which a raw collective over tp leaves its result."""
    group = mesh.get_group("tp")
    if not shape:
        getattr(torch.distributed, name)(x, group=group)
        return x
    out = torch.empty(shape)
    getattr(torch.distributed, name)(out, x, group=group)
    return out


@pytest.mark.parametrize(
    ("name", "before", "shape", "expected"),
    [
        ("all_reduce", "f32[8@dp, 8] {tp: P}", (), "f32[8@dp, 8] {tp: R}"),
        ("all_reduce", "f32[8@dp, 8@tp]", (), "SW201"),
        ("all_gather_into_tensor", "f32[8@tp, 8@dp]", (32, 8), "f32[32, 8@dp] {tp: R}"),
        ("all_gather_into_tensor", "f32[8, 8@tp] {dp: R}", (32, 8), "SW212"),
        ("all_gather_into_tensor", "f32[8@~tp, 8] {dp: R}", (32, 8), "SW417"),
        ("all_gather_into_tensor", "f32[8@(dp,tp), 8]", (32, 8), "f32[32@dp, 8] {tp: R}"),
        ("all_gather_into_tensor", "f32[8@(tp,dp), 8]", (32, 8), "SW410"),
        ("all_gather_into_tensor", "f32[8, 8@tp] {dp: R}", (4, 8, 8), "f32[4, 8, 8] {dp: R, tp: R}"),
        ("all_gather_into_tensor", "f32[8@dp, 8@tp]", (4, 8, 8), "f32[4, 8@dp, 8] {tp: R}"),
        ("reduce_scatter_tensor", "f32[8@tp, 8] {dp: R}", (2, 8), "SW201"),
        ("reduce_scatter_tensor", "f32[8, 8@dp] {tp: P}", (2, 8), "f32[2@tp, 8@dp]"),
        ("reduce_scatter_tensor", "f32[8@dp, 8] {tp: P}", (2, 8), "f32[2@(dp,tp), 8]"),
        ("all_to_all_single", "f32[8@tp, 8@dp]", (8, 8), "f32[8@tp, 8@dp]"),
        ("all_to_all_single", "f32[8, 8@tp] {dp: R}", (8, 8), "f32[8, 8] {dp: R, tp: ?}"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
def test_raw_collectives_put_pieces_together_along_dim_0(
    mesh: Any, name: str, before: str, shape: tuple[int, ...], expected: str
) -> None:
    x = operand(before)
    with typecheck(local=False):
        if expected.startswith("SW"):
            with refused(expected, "x", "tp"):
                raw(name, x, mesh, shape)
        else:
            assert str(spmd.typeof(raw(name, x, mesh, shape))) == expected


def test_raw_split_sizes_make_uneven_shards(mesh: Any) -> None:
    x, out = operand("f32[8@tp, 8] {dp: R}"), torch.empty(7, 8)
    with typecheck(local=False):
        torch.distributed.all_to_all_single(out, x, [4, 1, 1, 1], [5, 1, 1, 1], group=mesh.get_group("tp"))
        assert str(spmd.typeof(out)) == "f32[7@~tp, 8] {dp: R}"


def test_a_list_of_pieces_is_replicate_piece_by_piece(mesh: Any) -> None:
    x, pieces = operand("f32[8@dp, 8@~tp]"), [torch.empty(8, 8) for _ in range(4)]
    with typecheck(local=False):
        torch.distributed.all_gather(pieces, x, group=mesh.get_group("tp"))
        assert {str(spmd.typeof(piece)) for piece in pieces} == {"f32[8@dp, 8] {tp: R}"}
        assert str(spmd.typeof(torch.cat(pieces, 1))) == "f32[8@dp, 32] {tp: R}"


FUNCTIONAL = [
    (lambda x, tp: funcol.all_gather_tensor(x, 0, tp), "f32[8@tp, 4@dp]", "f32[32, 4@dp] {tp: R}"),
    (lambda x, tp: funcol.all_gather_tensor(x, 1, tp), "f32[8@dp, 4@tp]", "f32[8@dp, 16] {tp: R}"),
    (lambda x, tp: funcol.all_gather_tensor(x, -1, tp), "f32[8@dp, 2, 4@tp]", "f32[8@dp, 2, 16] {tp: R}"),
    (lambda x, tp: funcol.all_gather_tensor(x, 1, tp), "f32[1@dp, 4@tp]", "f32[1@dp, 16] {tp: R}"),
    (lambda x, tp: funcol.all_gather_tensor(x, 1, tp), "f32[8@tp, 4] {dp: R}", "SW212"),
    (lambda x, tp: funcol.all_gather_tensor(x, 0, tp), "f32[8, 4@tp] {dp: R}", "SW212"),
    (lambda x, tp: funcol.all_gather_tensor(x, 0, tp), "f32[8] {dp: R, tp: P}", "SW210"),
    (lambda x, tp: funcol.all_gather_tensor_autograd(x, 1, tp), "f32[8@dp, 4@tp]", "f32[8@dp, 16] {tp: R}"),
    (lambda x, tp: funcol.reduce_scatter_tensor(x, "sum", 0, tp), "f32[8, 4@dp] {tp: P}", "f32[2@tp, 4@dp]"),
    (lambda x, tp: funcol.reduce_scatter_tensor(x, "sum", 1, tp), "f32[8@dp, 4] {tp: P}", "f32[8@dp, 1@tp]"),
    (lambda x, tp: funcol.reduce_scatter_tensor(x, "sum", -1, tp), "f32[2, 8@dp, 8] {tp: P}", "f32[2, 8@dp, 2@tp]"),
    (lambda x, tp: funcol.reduce_scatter_tensor_autograd(x, "sum", 1, tp), "f32[8@dp, 4] {tp: P}", "f32[8@dp, 1@tp]"),
    (lambda x, tp: funcol.reduce_scatter_tensor(x, "sum", 1, tp), "f32[8@dp, 4] {tp: R}", "SW201"),
    (lambda x, tp: funcol.all_reduce(x, "sum", tp), "f32[8@dp, 4] {tp: P}", "f32[8@dp, 4] {tp: R}"),
    (lambda x, tp: funcol.all_reduce(x, "sum", tp), "f32[8@dp, 4@tp]", "SW201"),
    (lambda x, tp: funcol.all_to_all_single(x, None, None, tp), "f32[8@tp, 4@dp]", "f32[8@tp, 4@dp]"),
    (lambda x, tp: funcol.all_to_all_single(x, [5, 1, 1, 1], [5, 1, 1, 1], tp), "f32[8@tp, 4@dp]", "f32[8@~tp, 4@dp]"),
]  # fmt: skip


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize(("call", "before", "expected"), FUNCTIONAL)
@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
def test_functional_collectives_gather_and_scatter_the_dim_they_name(
    mesh: Any, call: Any, before: str, expected: str, local: bool
) -> None:
    x = operand(before)
    shape = call(x, mesh.get_group("tp")).shape
    with typecheck(local=local):
        if expected.startswith("SW") and not (local and expected in ("SW201", "SW212") and "@tp" in before):
            with refused(expected, "tp"):
                call(x, mesh.get_group("tp"))
            return
        got = spmd.typeof(funcol.wait_tensor(call(x, mesh.get_group("tp"))))
    assert got.shape == shape
    if not local:
        assert str(got) == expected
    else:
        assert got.type.get(spmd.normalize_axis("tp")) in (R, V)
        assert got.type.get(spmd.normalize_axis("dp")) is x_type(before, "dp")


def x_type(text: str, axis: str) -> Any:
    return spmd.get_axis_local_type(operand(text), axis)
