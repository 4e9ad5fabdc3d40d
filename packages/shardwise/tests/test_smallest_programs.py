"""The smallest program for each promise that other checkers of this kind break: holes, false alarms, unclear errors.

An index for reviewers; the tests of the folders go into breadth and depth.
"""

from __future__ import annotations

import copy
import io
import logging
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint

import shardwise as spmd
from shardwise import I, MeshAxis, P, PartitionSpec, R, S, Scalar, SpmdTypeError, V, assert_type, rules, typeof
from shardwise.checker import typecheck
from shardwise.interop.torch_compat import fake_world
from shardwise.rulecheck import RuleCheckError, rulecheck

from .checker.helpers import make, place, refused


@pytest.fixture
def grid():
    """The current mesh dp=2, tp=4; this process plays rank 1."""
    with fake_world(1, 8):
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        with spmd.set_current_mesh({"tp": mesh.get_group("tp")}):
            yield mesh


def sharded(dim: int, *shape: int) -> torch.Tensor:
    x = torch.ones(shape or (4, 4))
    x.__dict__.clear()
    return assert_type(x, {"tp": S(dim)})


def shown(x: Any) -> str:
    return str(typeof(x))


# Soundness holes


def test_writes_through_views_and_setitem_retype_the_base(grid):
    with typecheck():
        x, y = make("R"), make("R")
        x[0].add_(make("V", 4))
        y[0] = make("V", 4)
        assert (place(x), place(y)) == ("V", "V")


def test_random_numbers_for_equal_values_need_a_declaration(grid):
    with typecheck():
        with refused("SW121"):
            F.dropout(make("R"))
        with refused("SW121"):
            torch.randn_like(make("R"))
        with spmd.synchronised_rng("tp"):
            assert place(F.dropout(make("R"))) == "R"


def test_reading_values_into_python_is_looked_at(grid):
    with typecheck():
        with refused("SW115"):
            make("P", 1).item()
        with pytest.warns(UserWarning, match="SW116"):
            bool(make("V", 1))


def test_products_of_pending_scalars(grid):
    with typecheck():
        with refused("SW111"):
            Scalar(2, {"tp": P}) * Scalar(3, {"tp": P})
        with refused("SW112"):
            Scalar(2, {"tp": P}) ** 2


def test_operators_that_are_not_linear_in_a_pending_sum(grid):
    with typecheck():
        with refused("SW114"):
            torch.div(make("R"), other=make("P"))
        for call in (
            lambda: torch.div(make("P"), 2, rounding_mode="floor"),
            lambda: torch.nansum(make("P")),
            lambda: torch.cumsum(make("P"), 0, dtype=torch.int),
        ):
            with pytest.raises(SpmdTypeError, match="SW112"):
                call()


def test_any_over_a_sharded_dim_is_a_pending_maximum_and_no_sum(grid):
    with typecheck(local=False):
        assert shown((sharded(0) > 0).any(0)) == "b8[4] {tp: P(max)}"


def test_raw_collectives(grid):
    group = grid.get_group("tp")
    with typecheck():
        with refused("SW210"):
            dist.all_reduce(make("P"), op=dist.ReduceOp.MAX, group=group)
        x = make("P")
        handle = dist.all_reduce(x, group=group, async_op=True)
        assert place(x) == ""
        handle.wait()
        assert place(x) == "R"


def test_gradients_have_dual_types_and_every_backward_is_checked(grid):
    with typecheck():
        w = make("R", grad=True)
        loss = spmd.reinterpret((make("V") @ w).sum(), "tp", src=V, dst=P)
        assert place(torch.autograd.grad(loss, w)[0]) == "P"
        with refused("SW602"):
            torch.autograd.backward((make("V") @ w).sum())


def test_no_stale_partition_spec(grid):
    x, y = sharded(0), sharded(0)
    spmd.mutate_type(x, "tp", src=V, dst=R)
    assert_type(y, {"tp": P})
    assert (shown(x), shown(y)) == ("f32[4, 4] {tp: R}", "f32[4, 4] {tp: P}")


def test_annotations_are_atomic(grid):
    dp = MeshAxis.of(grid.get_group("dp"))
    x = assert_type(make("V"), {dp: R})
    with refused("SW130"):
        assert_type(x, {"tp": P, dp: V})
    assert place(x) == "V"


def test_what_is_refused_has_not_happened(grid):
    with typecheck():
        x, y = make("P"), make("R")
        with refused("SW113"):
            x.add_(1)
        with refused("SW201"):
            spmd.all_reduce(y, "tp", src=P, dst=R, inplace=True)
        with spmd.no_typecheck():
            assert x.sum() == y.sum() == 16


def test_unknown_strictness(grid):
    with pytest.raises(ValueError, match=r"'strikt'.*'strict', 'permissive'"), typecheck("strikt"):
        raise AssertionError("a misspelt strictness must not open the block")


def test_stack_forms_over_a_global_axis(grid):
    with typecheck(local=False), refused("SW412"):
        spmd.all_gather(sharded(0), "tp", src=V, dst=R)


def test_keyword_arguments_of_local_map(grid):
    @spmd.local_map(in_types=({"tp": R}, {"tp": V}), out_types={"tp": R})
    def first(x, other):
        return x

    with typecheck():
        assert place(first(make("R"), other=make("V"))) == "R"
        with refused("SW140", "is R on axis tp, but it is said to be V"):
            first(make("R"), other=make("R"))


def test_every_reduction_in_backward_has_its_dtype_chosen(grid):
    for dst in (V, P):
        with pytest.raises(ValueError, match="SW209"):
            spmd.reinterpret(make("I", grad=True, dtype=torch.bfloat16), "tp", src=I, dst=dst)


def test_tensors_under_vmap_have_types_of_their_own(grid):
    with typecheck():
        x = make("R")
        y = torch.func.vmap(lambda row: row * 2)(x)
        spmd.mutate_type(y, "tp", src=R, dst=I)
        assert (place(x), place(y)) == ("R", "I")


def test_rules_are_checked_in_backward_too(grid):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad @ w.t(), x.t() @ grad / grad.shape[0]  # by the rank's own rows

        @staticmethod
        def spmd_typecheck(*, x, w):
            return rules.einsum("bk,ko->bo", x, w, linear_in=(0, 1))

    with pytest.raises(RuleCheckError, match="the gradient of w"):
        rulecheck(Wrong, (torch.randn(4, 6), torch.randn(6, 2)), {"x": {"tp": S(0)}, "w": {"tp": R}}, mesh={"tp": 2})


def test_types_survive_data_and_parameters(grid):
    with typecheck():
        x = make("V")
        assert [place(y) for y in (x.data, x.detach(), nn.Parameter(x), copy.copy(x))] == ["V"] * 4


# Over-strict rules


def test_pending_sums_pass_through_linear_operators(grid):
    with typecheck():
        p, rows = make("P"), torch.tensor([0, 1])
        results = (
            p[0], p.double(), p.cpu(), F.linear(p, make("R")), F.pad(p, (1, 1)), F.embedding(rows, p), p.tril(),
            F.conv1d(p[None], make("R", 2, 4, 1)), torch.where(make("R") > 0, p, 0.0), p.masked_fill(make("R") > 0, 0),
            torch.zeros(4, 4).index_add(0, torch.arange(4), p), torch.lerp(p, p, 0.5), torch.kron(p, make("R")),
            torch.tensordot(p, make("R"), 1), p.index_select(0, rows), torch.empty_like(p).copy_(p), torch.as_tensor(p),
        )  # fmt: skip
        assert [place(result) for result in results] == ["P"] * len(results)


def test_pending_sums_can_be_looked_at(grid):
    with typecheck():
        p = make("P")
        assert "1." in repr(p)
        assert f"{p}" == str(p)
        assert p.data_ptr()
        assert torch.is_floating_point(p)
        assert p.is_same_size(p)
        assert torch.equal(p, p)
        p.requires_grad = True
        p.register_hook(print)
        p.grad = p.detach().clone()
        torch.save(p.detach(), io.BytesIO())
        torch.testing.assert_close(p, p)


def test_what_has_no_type_yet_may_be_worked_on(grid):
    with typecheck("strict"):
        noise = torch.randn(4, 4)
        assert repr(noise)
        assert place(assert_type(noise.to(torch.float64) * 2, {"tp": V})) == "V"


def test_global_rules_do_not_depend_on_dtensor(grid):
    with typecheck(local=False):
        x = sharded(0)
        for call in (
            lambda: torch.zeros(4, 4) + x,
            lambda: x.unflatten(1, (2, 2)),
            lambda: x.sum(1, keepdim=True),
            lambda: F.scaled_dot_product_attention(*[sharded(1, 2, 4, 3, 8)] * 3, is_causal=True),
        ):
            assert spmd.get_partition_spec(call()) is not None
        assert shown(sharded(0, 4, 3, 3).tril()) == "f32[4@tp, 3, 3]"
        assert shown(x.sum(0)) == "f32[4] {tp: P}"


class RowParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, group):
        y = x @ w
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx, grad):
        return None, None, None

    @staticmethod
    def spmd_typecheck(*, x, w, group):
        return rules.all_reduce(rules.einsum("bk,ko->bo", x, w), group, src=P, dst=I)


def test_one_hook_serves_both_modes(grid):
    group = grid.get_group("tp")
    for local in (True, False):
        with typecheck(local=local):
            assert place(RowParallel.apply(sharded(1), sharded(0), group)) == "I"


def test_collectives_over_flattened_groups(grid):
    with spmd.set_current_mesh(grid), typecheck(local=False):
        x = assert_type(torch.randn(4, 4), {}, PartitionSpec(("dp", "tp"), None))
        whole = spmd.all_gather(x, dist.group.WORLD, src=S(0), dst=R)
        assert shown(whole) == "f32[32, 4] {dp: R, tp: R}"
        y = assert_type(torch.randn(4, 4), P)
        dist.all_reduce(y)
        assert shown(y) == "f32[4, 4] {dp: R, tp: R}"


def test_raw_collectives_take_what_is_meant(grid):
    group = grid.get_group("tp")
    with typecheck():
        x, pieces = make("V"), [torch.empty(4, 4) for _ in range(4)]
        dist.all_gather(pieces, x, group=group)
        dist.all_reduce(x, group=group)
        assert [place(y) for y in (x, *pieces)] == ["R"] * 5
        y = make("V")
        dist.broadcast(y, group_src=0, group=group)
        assert place(y) == "R"


def test_functions_without_a_declaration(grid):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    with typecheck():
        assert place(checkpoint(torch.relu, make("V", grad=True), use_reentrant=True)) == "V"
        with refused("SW302", "not registered"):
            Double.apply(make("V"))
        with spmd.no_typecheck():
            assert place(assert_type(Double.apply(make("V")), {"tp": V})) == "V"


def test_zero_is_a_pending_sum(grid):
    with typecheck():
        assert [place(y) for y in (make("P") + 0, make("P") + torch.zeros(4, 4))] == ["P", "P"]


def test_replicate_and_invariant_are_the_same_without_gradient(grid):
    assert place(assert_type(make("R"), {"tp": I})) == "I"
    with refused("SW130"):
        assert_type(make("R", grad=True), {"tp": I})


# Crashes and unclear errors


def test_rulecheck_enumerates_on_the_cpu(grid):
    class Negate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return -x

        @staticmethod
        def backward(ctx, grad):
            return -grad

        @staticmethod
        def spmd_typecheck(*, x):
            return rules.einsum("ab->ab", x, linear_in=(0,))

    report = rulecheck(Negate, (torch.randn(4, 4),), mesh={"tp": 2})
    assert {"x": {"tp": P}} in [{name: dict(of) for name, of in one.items()} for one in report.checked]


def test_deep_copies(grid):
    with typecheck():
        layer = nn.Linear(2, 2)
        assert_type(layer.weight, {"tp": R})
        assert place(copy.deepcopy(make("V"))) == "V"
        assert place(copy.deepcopy(layer).weight) == "R"


def test_sizes_are_told(grid):
    for call, code, words in (
        (lambda: spmd.convert(make("R", 6), "tp", src=R, dst=V), "SW206", "its size is 6, the axis has 4 ranks"),
        (lambda: spmd.reduce_scatter(make("P", 6), "tp", dst=V), "SW206", "its size is 6, the axis has 4 ranks"),
        (lambda: spmd.convert(make("R", 6), "tp", src=R, dst=S(0)), "SW204", "its size 6 must be a multiple of the 4"),
    ):
        with pytest.raises(ValueError, match=f"{code}.*{words}"):
            call()
    assert spmd.all_reduce(make("P", 2, 3).t(), "tp", dst=R).shape == (3, 2)


def test_a_global_failure_names_operand_reason_and_way_out(grid):
    with typecheck(local=False), refused("SW405", "softmax", "x (dim 0)") as caught:
        x = sharded(0)
        torch.softmax(x, 0)
    assert caught.value.finding.operands[0].name == "x"
    assert caught.value.help


def test_reductions_over_a_sharded_dim_are_type_errors(grid):
    with typecheck(local=False):
        for call in (torch.argmax, torch.prod, torch.std, torch.median):
            with pytest.raises(SpmdTypeError, match="SW4"):
                call(sharded(0), 0)
        for call, pending in ((torch.mean, "P(avg)"), (torch.amax, "P(max)"), (torch.amin, "P(min)")):
            assert shown(call(sharded(0), 0)) == f"f32[4] {{tp: {pending}}}"


def test_types_print_as_letters(grid):
    assert (f"{R}", str(P), f"{S(1)}") == ("R", "P", "S(1)")


def test_wrong_arguments(grid):
    for call in (
        lambda: MeshAxis.of("tp"),
        lambda: spmd.set_current_mesh(3).__enter__(),
        lambda: assert_type(torch.ones(2), {3: R}),
        lambda: spmd.all_reduce([1.0], "tp", dst=R),
        lambda: Scalar(1, {"tp": S(0)}),
    ):
        with pytest.raises(SpmdTypeError) as caught:
            call()
        assert isinstance(caught.value, TypeError)


def test_an_axis_used_twice(grid):
    with refused("SW901", "tp is used twice"):
        assert_type(torch.ones(2, 2), {}, PartitionSpec("tp", "tp"))


def test_help_names_the_programs_own_variables(grid):
    with typecheck():
        hidden = make("P")
        with refused("SW112", 'all_reduce(hidden, "tp", src=P, dst=R)'):
            torch.relu(hidden)
        whole = make("R")
        with refused("SW201", "use whole as it is"):
            spmd.all_reduce(whole, "tp", dst=R)
        with refused("SW602", 'reinterpret(loss, "tp", src=V, dst=P) if'):
            loss = (make("V") * make("R", grad=True)).sum()
            loss.backward()


def test_boundaries_speak_of_their_parameters(grid):
    with typecheck(), refused("SW140", "in_types"):
        spmd.local_map(in_types=(None,), out_types={"tp": R})(lambda x: x)(make("R"))
    with typecheck(), refused("SW140", "out_types"):
        spmd.local_map(out_types=({"tp": R},) * 2)(lambda x: x)(make("R"))


def test_the_function_for_meshes_is_named_right(grid):
    with spmd.set_current_mesh(frozenset()), pytest.raises(SpmdTypeError) as caught:
        spmd.all_reduce(torch.ones(2), MeshAxis.of(2, 64), dst=R)
    assert "set_current_mesh(" in str(caught.value)


# Tracing and tooling


def test_trace_shows_operators_and_collectives_at_the_programs_lines(grid):
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("shardwise.trace")
    logger.addHandler(handler)
    try:
        with typecheck(), spmd.trace():
            x = assert_type(torch.randn(2), {"tp": P})
            torch.relu(spmd.all_reduce(x, "tp", dst=R))
    finally:
        logger.removeHandler(handler)
    assert all("test_smallest_programs.py:" in line for line in lines)
    assert [line.partition("  ")[2] for line in lines] == [
        "assert_type(f32[2] {}) -> f32[2] {tp: P}",
        "all_reduce(f32[2] {tp: P}) -> f32[2] {tp: R}",
        "relu(f32[2] {tp: R}) -> f32[2] {tp: R}",
    ]


def test_a_finding_tells_where_the_type_came_from(grid):
    with typecheck(), refused("SW112") as caught:
        x = make("V")
        loss = spmd.reinterpret(x, "tp", src=V, dst=P) * 2
        torch.relu(loss)
    hop = caught.value.finding.operands[0].origin[0]
    assert "reinterpret" in hop.text
    assert hop.location.file == __file__


def test_switches_belong_to_their_thread(grid):
    seen: list[Any] = []

    def other() -> None:
        seen.extend([spmd.is_type_checking(), spmd.current_mesh()])

    with typecheck():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [False, None]


def test_meshes_of_groups_find_their_groups(grid):
    dp, tp = grid.get_group("dp"), grid.get_group("tp")
    for mesh, axis in ((grid, "tp"), ({"dp": dp, "tp": tp}, "tp"), ([dp, tp], MeshAxis.of(tp))):
        with spmd.set_current_mesh(mesh):
            assert spmd.all_gather(torch.ones(2), axis, src=S(0), dst=R).shape == (8,)


def test_backward_outside_the_mesh(grid):
    x = torch.ones(2, requires_grad=True)
    y = spmd.invariant_to_replicate(x, "tp")
    with spmd.set_current_mesh(frozenset()):
        y.sum().backward()
    assert x.grad is not None


def test_async_op_is_accepted_in_every_form(grid):
    for call in (
        lambda: spmd.all_to_all(make("V"), "tp", async_op=True),
        lambda: spmd.all_gather(make("V"), "tp", src=V, dst=R, async_op=True),
        lambda: spmd.all_gather(make("V", 2), "tp", src=S(0), dst=R, split_sizes=[1, 2, 3, 4], async_op=True),
    ):
        assert call().sum() is not None
