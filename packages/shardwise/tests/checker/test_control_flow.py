"""Are the functions that cond, while_loop, scan and map run checked, both branches and every round?"""

from __future__ import annotations

import functorch.experimental.control_flow
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as map_slices
from torch.utils.checkpoint import checkpoint

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector

from .helpers import make, operand, place, refused


def double(x):
    return x * 2


def triple(x):
    return x * 3


def first(x, y):
    return x * 2


def second(x, y):
    return y * 2


def add_up(carry, x):
    return carry + x, carry * 2


def decided(letter):
    """A predicate with placement ``letter``."""
    return spmd.assert_type(torch.tensor(True), {"tp": {"R": R, "I": I, "V": V}[letter]})


def true():
    return decided("R")


def leaves(tree):
    return torch.utils._pytree.tree_leaves(tree)


@pytest.mark.parametrize(
    ("pred", "operand", "result"),
    [*[("R", one, one) for one in "RIVP"], *[("I", one, one) for one in "RIVP"], ("V", "R", "V"), ("V", "V", "V")],
)
def test_a_branch_is_typed_whichever_is_taken_and_a_varying_predicate_makes_it_vary(tp_mesh, pred, operand, result):
    with typecheck():
        assert place(torch.cond(decided(pred), double, triple, (make(operand, grad=True),))) == result


@pytest.mark.parametrize(("operand", "code"), [("I", "SW101"), ("P", "SW110")])
def test_a_varying_predicate_meets_results_like_any_varying_operand(tp_mesh, operand, code):
    with typecheck(), refused(code, "cond"):
        torch.cond(decided("V"), double, triple, (make(operand, grad=True),))


@pytest.mark.parametrize("operand", "RIVP")
def test_a_predicate_that_is_a_pending_sum_has_no_value(tp_mesh, operand):
    pending = make("P", 1)
    with typecheck(), refused("SW115", "cond reads pending, which is still a partial sum"):
        torch.cond(pending, double, triple, (make(operand),))


@pytest.mark.parametrize(("one", "other"), [("R", "P"), ("P", "R"), ("I", "V"), ("V", "P"), ("I", "R"), ("I", "P")])
def test_branches_of_two_types_are_told_with_both(tp_mesh, one, other):
    x, y = make(one, grad=True), make(other, grad=True)
    with typecheck(), refused("SW420", f"true_fn gives {one}", f"false_fn {other}") as caught:
        torch.cond(true(), first, second, (x, y))
    lines = [operand.location.line for operand in caught.value.finding.operands]
    assert lines == [first.__code__.co_firstlineno, second.__code__.co_firstlineno]


def test_the_places_of_both_branches_are_told_and_a_move_that_mends_it(tp_mesh):
    def complete(x):
        return spmd.all_reduce(x, "tp", src=P, dst=R)

    with typecheck(), refused("SW420", 'all_reduce(..., "tp", src=P, dst=R)', "in false_fn") as caught:
        torch.cond(true(), complete, double, (make("P"),))
    lines = [operand.location.line for operand in caught.value.finding.operands]
    assert lines == [complete.__code__.co_firstlineno, double.__code__.co_firstlineno]


def test_replicate_beside_varying_is_varying_and_zeros_are_a_pending_sum(tp_mesh):
    with typecheck():
        assert place(torch.cond(true(), first, second, (make("R"), make("V")))) == "V"
        assert place(torch.cond(true(), double, torch.zeros_like, (make("P"),))) == "P"


def test_a_mistake_in_the_branch_that_is_not_taken_is_found(tp_mesh):
    with typecheck(), refused("SW112", "gelu", "x"):
        torch.cond(true(), double, lambda x: F.gelu(x), (make("P"),))


def test_results_keep_their_nesting_and_their_own_types(tp_mesh):
    def branch(x, y):
        return x + 1, {"y": [y * 2]}

    with typecheck():
        out = torch.cond(true(), branch, branch, (make("R"), make("V")))
        assert (place(out[0]), place(out[1]["y"][0])) == ("R", "V")


def test_captured_tensors_and_branches_inside_branches_are_checked(tp_mesh):
    w = make("V")
    with typecheck():
        nested = torch.cond(true(), lambda x: torch.cond(true(), double, lambda x: x @ w, (x,)), triple, (make("R"),))
        assert place(nested) == "V"
        with refused("SW112", "relu"):
            torch.cond(
                true(), lambda x: torch.cond(true(), double, lambda x: torch.relu(x), (x,)), triple, (make("P"),)
            )


def test_the_branch_that_is_not_taken_leaves_no_trace(tp_mesh):
    kept, x = make("R"), make("R")
    before = kept.clone()
    state = torch.get_rng_state()

    def writes(x):
        kept.add_(1)
        return x + torch.rand(4, 4) * 0

    with typecheck(), torch.no_grad(), spmd.synchronised_rng("tp"):
        out = torch.cond(true(), double, writes, (x,))
    assert torch.equal(kept, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(out, x * 2)


def test_an_operand_that_is_handed_back_is_not_retyped(tp_mesh):
    x, y = make("R"), make("V")
    with typecheck():
        out = torch.cond(true(), lambda x, y: x, lambda x, y: y, (x, y))
        assert (place(out), place(x)) == ("V", "R")


COLLECTIVES = {
    "ours": lambda x: spmd.all_reduce(x, "tp", src=P, dst=R),
    "raw": lambda x: (dist.all_reduce(x.detach()), x * 1)[1],
    "in the backward": lambda x: spmd.convert(x, "tp", src=I, dst=R),
}


@pytest.mark.parametrize(("call", "letter"), [("ours", "P"), ("raw", "V"), ("in the backward", "I")])
def test_a_collective_that_some_ranks_do_not_reach_is_refused(tp_mesh, call, letter):
    function = COLLECTIVES[call]
    with typecheck(), refused("SW422", "differs between the ranks of"):
        torch.cond(decided("V"), function, function, (make(letter, grad=True),))
    other = make(letter, grad=True)
    with typecheck(), refused("SW422", "while_loop", "condition"):
        while_loop(lambda x: x.mean() < 0, lambda x: (function(other) * 0 + x,), (make("V"),))


def test_a_collective_along_an_axis_whose_ranks_decide_alike_is_fine(mesh):
    def reduced(x):
        return spmd.all_reduce(x, "dp", src=P, dst=R)

    x = spmd.assert_type(torch.ones(4), {"dp": P, "tp": R})
    varies = spmd.assert_type(torch.tensor(True), {"dp": R, "tp": V})
    with typecheck():
        out = torch.cond(varies, reduced, lambda x: reduced(x * 2), (x,))
    assert (place(out, "dp"), place(out)) == ("R", "V")


def test_after_the_branch_collectives_are_fine_again(tp_mesh):
    with typecheck():
        out = torch.cond(decided("V"), double, triple, (make("V"),))
        assert place(spmd.all_reduce(out, "tp", src=V, dst=R)) == "R"


@pytest.mark.parametrize(
    ("first", "body", "result"),
    [
        ("R", lambda x, other: x * 2, "R"),
        ("I", lambda x, other: x * 2, "I"),
        ("P", lambda x, other: x * 2, "P"),
        ("R", lambda x, other: x * other, "V"),
        ("V", lambda x, other: torch.ones_like(x), "V"),
    ],
)
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_carried_value_has_one_type_for_any_number_of_rounds(tp_mesh, first, body, result, rounds):
    other = make("V")
    start = torch.zeros((), dtype=torch.int64)
    with typecheck():
        count, x = while_loop(lambda i, x: i < rounds, lambda i, x: (i + 1, body(x, other)), (start, make(first)))
    assert place(x) == result
    assert int(count) == rounds


def test_a_constant_takes_the_type_that_the_body_gives_it(tp_mesh):
    addend = make("P")
    with typecheck():
        _, x = while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x + addend), (0, torch.zeros(4, 4)))
    assert place(x) == "P"


@pytest.mark.parametrize("rounds", [0, 3])
def test_a_body_that_changes_a_type_is_refused_whatever_the_number_of_rounds(tp_mesh, rounds):
    def body(i, x):
        return i + 1, spmd.all_reduce(x, "tp", src=P, dst=R)

    with typecheck(), refused("SW421", "carried_inputs[1]", "comes in as P", "body_fn gives R") as caught:
        while_loop(lambda i, x: i < rounds, body, (0, make("P")))
    assert caught.value.finding.operands[1].location.line == body.__code__.co_firstlineno


def test_a_condition_that_varies_makes_the_results_vary(tp_mesh):
    with typecheck():
        r, v = while_loop(lambda r, v: v.sum() < 0, lambda r, v: (r * 2, v * 2), (make("R"), make("V")))
        assert (place(r), place(v)) == ("V", "V")
        with refused("SW101", "while_loop"):
            while_loop(lambda i, v: v.sum() < 0, lambda i, v: (i * 2, v * 2), (make("I", grad=True), make("V")))


def test_a_condition_that_is_a_pending_sum_is_refused(tp_mesh):
    with typecheck(), refused("SW115", "while_loop reads"):
        while_loop(lambda x: x.sum(), lambda x: (x * 2,), (make("P"),))


@pytest.mark.parametrize("letter", "RIVP")
def test_a_scan_types_its_carry_and_its_outputs(tp_mesh, letter):
    with typecheck():
        last, sums = scan(lambda c, x: (c + x, {"sum": c * 2}), torch.zeros(4), make(letter), dim=1, reverse=True)
        assert (place(last), place(sums["sum"])) == (letter, letter)
        assert sums["sum"].shape == (4, 4)


def test_a_carry_that_changes_its_type_is_refused(tp_mesh):
    with typecheck(), refused("SW421", "init[0]", "combine_fn gives V"):
        scan(lambda c, x: (x * 1, c * 2), make("I", 4, grad=True), make("V"))


@pytest.mark.parametrize("letter", "RIVP")
@pytest.mark.parametrize("of", [map_slices, functorch.experimental.control_flow.map], ids=["torch", "functorch"])
def test_a_map_is_typed_by_one_slice(tp_mesh, letter, of):
    with typecheck():
        out = of(lambda x, w: (x * 2, x.sum()), make(letter), make("R", 4))
        assert [place(one) for one in out] == [letter, letter]
        with refused("SW112", "gelu"):
            of(lambda x: F.gelu(x), make("P"))


@pytest.mark.parametrize("letter", "RIVP")
def test_an_associative_scan_is_typed(tp_mesh, letter):
    with typecheck():
        out = associative_scan(torch.add, make(letter), 0, combine_mode="generic")
        assert place(out) == letter


GLOBAL = [
    ("cond keeps a shard", "f32[8@tp, 4]", lambda x: torch.cond(true(), double, triple, (x,)), ["f32[8@tp, 4]"]),
    ("cond sums up", "f32[8@tp, 4]", lambda x: torch.cond(true(), lambda x: x.sum(0), lambda x: x.sum(0), (x,)), "P"),
    (
        "zeros are a shard",
        "f32[8@tp, 4]",
        lambda x: torch.cond(true(), double, torch.zeros_like, (x,)),
        ["f32[8@tp, 4]"],
    ),
    (
        "while keeps a shard",
        "f32[4, 8@tp]",
        lambda x: while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x * 2), (0, x))[1],
        ["f32[4, 8@tp]"],
    ),
    (
        "scan beside a shard",
        "f32[4, 8@tp]",
        lambda x: scan(add_up, torch.zeros(8), x),
        ["f32[8@tp]", "f32[4, 8@tp]"],
    ),
    (
        "scan along dim 1",
        "f32[8@tp, 4]",
        lambda x: scan(add_up, torch.zeros(8), x, dim=1),
        ["f32[8@tp]", "f32[8@tp, 4]"],
    ),
    (
        "map over a shard",
        "f32[8@tp, 4]",
        lambda x: map_slices(lambda x: (x * 2, x.sum()), x),
        ["f32[8@tp, 4]", "f32[8@tp]"],
    ),
    ("map beside a shard", "f32[4, 8@tp]", lambda x: map_slices(lambda x: x * 2, x), ["f32[4, 8@tp]"]),
    ("map that sums up", "f32[4, 8@tp]", lambda x: map_slices(lambda x: x.sum(), x), "P"),
    ("map of constants", "f32[8@tp, 4]", lambda x: map_slices(lambda x: torch.ones(3), x), ["f32[8@tp, 3]"]),
    (
        "associative scan",
        "f32[8@tp, 4]",
        lambda x: associative_scan(torch.add, x, 1, combine_mode="generic"),
        ["f32[8@tp, 4]"],
    ),
]


@pytest.mark.parametrize(("given", "call", "wanted"), [row[1:] for row in GLOBAL], ids=[row[0] for row in GLOBAL])
def test_shards_go_through(tp_mesh, given, call, wanted):
    with typecheck(local=False):
        out = leaves(call(operand(given)))
    if wanted == "P":
        assert [place(one) for one in out] == ["P"]
        return
    like = [operand(one) for one in wanted]
    assert [one.shape for one in out] == [one.shape for one in like]
    assert [spmd.get_partition_spec(one) for one in out] == [spmd.get_partition_spec(one) for one in like]


REFUSED = [
    ("two shardings", "f32[8@tp, 4]", "SW420", lambda x, y: torch.cond(true(), first, second, (x, y))),
    ("a shard and a whole", "f32[8, 4] {tp: R}", "SW420", lambda x, y: torch.cond(true(), first, second, (x, y))),
    (
        "a loop that moves it",
        "f32[8@tp, 4]",
        "SW421",
        lambda x, y: while_loop(lambda x: False, lambda x: (y * 2,), (x,)),
    ),
    ("a scan along a shard", "f32[8@tp, 4]", "SW405", lambda x, y: scan(add_up, torch.zeros(4), x)),
    ("a map with another", "f32[8@tp, 8]", "SW401", lambda x, y: map_slices(torch.mul, x, operand("f32[8@tp]"))),
]


@pytest.mark.parametrize(("given", "code", "call"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_no_rank_can_do_alone_is_refused(tp_mesh, given, code, call):
    x = operand(given)
    local = tuple(x.shape)
    y = spmd.assert_type(torch.rand(local), {"tp": S(1)})
    with typecheck(local=False), refused(code):
        call(x, y)


VALUES = {
    "cond": lambda x, y: torch.cond(
        x.sum() > 0, lambda x, y: (x.sin() @ y, x + 1), lambda x, y: (x @ y, x - 1), (x, y)
    ),
    "while_loop": lambda x, y: while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, (x @ y).tanh()), (torch.tensor(0), x)
    ),
    "scan": lambda x, y: scan(lambda c, x: (c * 0.5 + x @ y, {"out": c * x}), y[0] * 0, x, reverse=True),
    "map": lambda x, y: map_slices(lambda x, y: (y @ x, x.sum()), x, y),
    "associative_scan": lambda x, y: associative_scan(torch.mul, x @ y, 0, combine_mode="generic"),
}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("name", VALUES)
def test_values_and_gradients_are_those_of_torch(tp_mesh, name):
    generator = torch.Generator().manual_seed(5)
    values = [torch.randn(4, 4, dtype=torch.float64, generator=generator) for _ in range(2)]

    def run(prepare):
        given = [prepare(value.clone().requires_grad_()) for value in values]
        out = [one for one in leaves(VALUES[name](*given)) if one.is_floating_point()]
        return out, given

    plain, own = run(lambda x: x)
    with typecheck():
        checked, given = run(lambda x: spmd.assert_type(x, {"tp": V}))
        assert {place(one) for one in checked} == {"V"}
    for a, b in zip(plain, checked, strict=True):
        torch.testing.assert_close(a, b.detach())
    wanted = torch.autograd.grad(sum(one.sum() for one in plain), own)
    found = torch.autograd.grad(sum(one.sum() for one in checked), given)
    for a, b in zip(wanted, found, strict=True):
        torch.testing.assert_close(a, b)


def test_a_checkpointed_region_with_a_branch_is_checked_and_differentiable(tp_mesh):
    x = make("V", grad=True)
    with typecheck():
        y = checkpoint(lambda x: torch.cond(true(), torch.sin, torch.cos, (x,)), x, use_reentrant=False)
        assert place(y) == "V"
    torch.autograd.backward([y], [torch.ones_like(y)])
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_a_function_whose_course_depends_on_values_is_checked_as_it_runs(tp_mesh):
    def by_value(x):
        return x * 2 if x.sum() else x * 3

    found = Collector()
    with checking(collect=found):
        assert place(torch.cond(true(), by_value, double, (make("R"),))) == "R"
    assert any("cond" in one.what for one in found.result().trusted)
    with typecheck(), refused("SW115"):
        torch.cond(true(), by_value, double, (make("P"),))


def test_a_run_that_collects_goes_on_after_a_refusal_and_reports_it_once(tp_mesh):
    found = Collector()
    with checking(collect=found):
        out = torch.cond(true(), first, second, (make("R"), make("P")))
        F.gelu(out)
    assert [finding.code for finding in found.result().findings] == ["SW420"]


def test_without_checking_torch_runs_its_own_operator(tp_mesh):
    x = torch.randn(3, requires_grad=True)
    assert "CondAutogradOp" in str(torch.cond(true(), torch.sin, torch.cos, (x,)).grad_fn)
    with typecheck():
        assert "CondAutogradOp" not in str(torch.cond(true(), torch.sin, torch.cos, (x,)).grad_fn)
    assert "CondAutogradOp" in str(torch.cond(true(), torch.sin, torch.cos, (x,)).grad_fn)


def test_branches_of_different_shapes_fail_as_they_do_in_torch(tp_mesh):
    with typecheck(), pytest.raises(RuntimeError, match="results of different form"):
        torch.cond(true(), lambda x: x * 2, lambda x: x[:2] * 2, (make("R"),))


def test_under_autocast_no_cast_of_the_dry_run_is_left_in_its_cache(tp_mesh):
    weight = make("R", grad=True)
    with typecheck(), torch.autocast("cpu", dtype=torch.bfloat16):
        out = torch.cond(true(), lambda x: x @ weight, lambda x: x @ (weight * 2), (make("V"),))
    assert place(out) == "V"
    assert type(out) is torch.Tensor
    assert torch.equal(out, torch.full((4, 4), 4.0, dtype=torch.bfloat16))


def test_a_module_that_is_not_taken_keeps_its_buffers(tp_mesh):
    norm = torch.nn.BatchNorm1d(4, affine=False)
    for buffer in norm.buffers():
        spmd.assert_type(buffer, {"tp": R})
    with typecheck():
        assert place(torch.cond(true(), double, norm, (make("R"),))) == "R"
    assert int(norm.num_batches_tracked) == 0
    assert torch.equal(norm.running_mean, torch.zeros(4))


def test_an_index_that_only_the_other_branch_allows_is_not_looked_up(tp_mesh):
    rows = spmd.assert_type(torch.arange(9), {"tp": R})
    with typecheck():
        beyond = torch.cond(true(), lambda x: x[0] * 2, lambda x: x[rows][8], (make("V"),))
    assert place(beyond) == "V"


def test_branches_inside_the_transforms_of_torch_func_are_checked(tp_mesh):
    x = make("V")
    with typecheck():
        assert place(torch.vmap(lambda x: torch.cond(true(), double, torch.cos, (x,)))(x)) == "V"
        gradient = torch.func.grad(lambda x: torch.cond(true(), torch.sin, torch.cos, (x,)).sum())(x)
        assert place(gradient) == "V"
        with refused("SW112", "relu"):
            torch.vmap(lambda x: torch.cond(true(), double, torch.relu, (x,)))(make("P"))
    torch.testing.assert_close(gradient, x.cos())


def test_a_program_on_tensors_without_data_is_checked_too(tp_mesh):
    with typecheck():
        out = torch.cond(true(), double, triple, (make("V").to("meta"),))
        assert (place(out), out.device.type) == ("V", "meta")
