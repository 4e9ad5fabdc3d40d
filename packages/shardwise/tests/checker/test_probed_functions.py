"""Autograd functions of which nobody has said anything: typed by what they do, told where wrong, else unknown."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.autograd import Function

import shardwise as spmd
from shardwise import I, P, R, S, V, rules
from shardwise.checker import typecheck
from shardwise.checker.functions.named_calls import communicates
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector

from ..oracle import region_functions
from ..oracle.region_functions import RIGHT, WRONG, Case, gathered_rows, keep, own, region, scattered, summed
from .helpers import make, place, refused

SIZE = 4
HOME = region_functions.__file__
ONLY_LOCAL = {"simclr gather", "simclr gather, one loss", "stacked gather"}
"""Stacks: their operand is a list of tensors, which global types do not have."""
NO_DIM = {"ring shift"}
"""Whose dims nobody can tell from one rank: it does nothing there, and on four it moves rows."""


def applied(case: Case, mesh: Any, *, typed: bool, local: bool = True) -> tuple[Any, list[Any]]:
    """The first result of the function, and the findings."""
    found = Collector()
    with checking(strict=False, local=local, collect=found):
        operands = []
        for shape, where in case.operands:
            sizes = [n // SIZE if isinstance(where, S) and at == where.dim else n for at, n in enumerate(shape)]
            x = torch.randn(sizes, requires_grad=True)
            operands.append(spmd.assert_type(x, {"dp": R, "tp": where}) if typed else x)
        group = mesh.get_group("tp")
        cls: Any = case.make(group)
        made = cls.apply(*case.call([x * 1 for x in operands], group))
    return made[0] if isinstance(made, tuple) else made, list(found.result().findings)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_a_right_function_is_typed_by_what_it_does(case, mesh):
    result, findings = applied(case, mesh, typed=True)
    assert findings == []
    assert place(result) == ("V" if isinstance(case.result, S) else repr(case.result))
    assert place(result, "dp") == "R"


@pytest.mark.parametrize("case", [case for case in RIGHT if case.name not in ONLY_LOCAL], ids=lambda case: case.name)
def test_globally_its_result_says_which_dim_is_sharded(case, mesh):
    result, findings = applied(case, mesh, typed=True, local=False)
    assert findings == []
    if case.name in NO_DIM:
        assert not spmd.has_local_type(result)
    elif isinstance(case.result, S):
        expected = [None] * result.ndim
        expected[case.result.dim] = spmd.normalize_axis("tp")
        assert list(spmd.get_partition_spec(result)) == expected
    else:
        assert place(result) == repr(case.result)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_of_untyped_operands_a_right_function_says_nothing(case, mesh):
    result, findings = applied(case, mesh, typed=False)
    assert findings == []
    assert not spmd.has_local_type(result)


class Known(int):
    """A number that knows more than its value, as those that checked code makes do."""


DOWNSTREAM = {"copy with a maximum"}
"""Right as what hands an invariant value on; whoever uses it on each rank differently is told there."""


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("case", [case for case in WRONG if case.name not in DOWNSTREAM], ids=lambda case: case.name)
def test_a_wrong_function_is_told(case, mesh, local):
    _, (finding,) = applied(case, mesh, typed=True, local=local)
    assert finding.code in ("SW307", "SW308")
    if finding.code == "SW307":
        assert finding.location.file == HOME
        assert finding.location.function.endswith(".backward")


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_a_wrong_function_is_told_without_any_type(case, mesh):
    _, findings = applied(case, mesh, typed=False)
    if case.name == "async linear, gradient not reduced":
        assert findings == [], "right for weights that are whole on every rank"
        return
    (finding,) = findings
    scaled = "by n" in case.name or "times n" in case.name or ("twice" in case.name and "copy" in case.name)
    assert finding.code == ("SW309" if scaled else "SW307")


@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("given", [R, I], ids=repr)
def test_data_may_enter_a_region_as_replicate_or_invariant(mesh, given, local):
    """R and I differ by the gradient alone, and data gets none."""
    copy, found = region(keep, summed)(mesh.get_group("tp")), Collector()
    with checking(strict=False, local=local, collect=found):
        data = spmd.assert_type(torch.randn(8, 4), {"dp": R, "tp": given})
        assert place(copy.apply(data)) == "R"
        assert not found.result().findings
        copy.apply(spmd.assert_type(torch.randn(8, 4, requires_grad=True), {"dp": R, "tp": given}))
    assert [finding.code for finding in found.result().findings] == (["SW308"] if given is R else [])


def test_a_finding_says_what_backward_would_have_to_be(mesh):
    wrong = Case("gather", region(gathered_rows, lambda x, g: x[: x.shape[0] // SIZE]), (((8, 4), S(0)),), I, keep)
    _, (finding,) = applied(wrong, mesh, typed=False)
    text = str(finding)
    assert "every rank's operand, put together along dim 0" in text
    assert 'all_gather(x, "tp", src=S(0), dst=R)' in text
    assert 'all_gather(x, "tp", src=S(0), dst=I)' in text
    assert "return backward_body(gradient, group)" in text


def test_a_function_for_other_operands_is_told_at_the_call(mesh):
    case = Case("copy", region(keep, summed), (((8, 4), R),), R, keep)
    _, (finding,) = applied(case, mesh, typed=True)
    assert finding.code == "SW308"
    assert "takes x as I (invariant) over tp, got R (replicate)" in finding.message
    assert finding.location.file == __file__


def test_the_line_of_backward_that_communicates_is_named(mesh):
    class Gather(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> Any:
            return gathered_rows(x, mesh.get_group("tp"))

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            piece = scattered(gradient, mesh.get_group("tp"))
            return piece * 3

    found = Collector()
    with checking(strict=False, collect=found):
        Gather.apply(torch.randn(2, 4, requires_grad=True))
    (finding,) = found.result().findings
    assert finding.location.line == Gather.backward.__code__.co_firstlineno + 2


class TestUnknown:
    """What must not be judged."""

    def quiet(self, mesh: Any, cls: Any, *args: Any) -> Any:
        found = Collector()
        with checking(strict=False, collect=found):
            made = cls.apply(*args)
        assert found.result().findings == ()
        return made

    def test_straight_through(self, mesh):
        class Round(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x.round()

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return gradient

        assert not communicates(Round, ())
        self.quiet(mesh, Round, make("R", grad=True) * 1)

    def test_straight_through_with_a_sum(self, mesh):
        class RoundedSum(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return summed(x.round(), mesh.get_group("tp"))

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return gradient

        assert communicates(RoundedSum, ())
        assert not spmd.has_local_type(self.quiet(mesh, RoundedSum, make("P", grad=True) * 1))

    def test_a_function_that_runs_another(self, mesh):
        calls = []

        class Checkpoint(Function):
            @staticmethod
            def forward(ctx: Any, function: Any, x: Any) -> Any:
                calls.append(dist.get_rank())
                return function(x)

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return None, gradient

        self.quiet(mesh, Checkpoint, lambda x: summed(x, mesh.get_group("tp")), torch.ones(4, requires_grad=True))
        assert len(calls) == 1, "it is not run but by the program"

    @pytest.mark.parametrize("name", ["start", "vocab_start_index", "first_row", "shard_id", "local_mask"])
    def test_a_number_of_this_rank_alone(self, mesh, name):
        source = f"""
def forward(ctx, x, {name}):
    ctx.start = {name}
    return x.narrow(0, int({name}), 2)

def backward(ctx, gradient):
    return gathered_rows(gradient, group), None
"""
        space: dict[str, Any] = {"gathered_rows": gathered_rows, "group": mesh.get_group("tp"), "__name__": __name__}
        exec(source, space)
        body = {method: staticmethod(space[method]) for method in ("forward", "backward")}
        value: Any = torch.tensor(0) if name == "local_mask" else Known(0)
        self.quiet(mesh, type("Cut", (Function,), body), make("I", 8, 4, grad=True) * 1, value)

    def test_two_axes(self, mesh):
        class Both(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return summed(summed(x, mesh.get_group("tp")), mesh.get_group("dp"))

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return gradient

        self.quiet(mesh, Both, make("P", grad=True) * 1)

    def test_an_average_of_gradients(self, mesh):
        average = region(keep, lambda x, g: summed(x, g) / SIZE)(mesh.get_group("tp"))
        self.quiet(mesh, average, torch.ones(8, 4, requires_grad=True))

    def test_a_handle_that_the_caller_gets(self, mesh):
        class Started(Function):
            @staticmethod
            def forward(ctx: Any, x: Any, handles: Any) -> Any:
                x = x.clone()
                handles.append(dist.all_reduce(x, group=mesh.get_group("tp"), async_op=True))
                return x

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return gradient, None

        handles: list[Any] = []
        self.quiet(mesh, Started, torch.ones(4, requires_grad=True) * 1, handles)
        assert len(handles) == 1

    def test_typed_collectives_inside(self, mesh):
        class Typed(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return spmd.all_reduce(x, "tp", src=P, dst=R)

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return scattered(gradient, mesh.get_group("tp")).repeat(SIZE, 1)

        self.quiet(mesh, Typed, make("P", 8, 4, grad=True) * 1)

    def test_what_is_large(self, mesh):
        reduce = region(summed, lambda x, g: 3 * x)(mesh.get_group("tp"))
        self.quiet(mesh, reduce, torch.ones(1 << 22, requires_grad=True))

    def test_a_function_is_looked_at_once_and_draws_nothing(self, mesh):
        reduce = region(summed, keep)(mesh.get_group("tp"))
        x = make("P", grad=True) * 1
        torch.manual_seed(3)
        with typecheck("permissive"):
            reduce.apply(x)
            first = torch.rand(1)
        torch.manual_seed(3)
        assert torch.equal(first, torch.rand(1))


class TestNumbersOfTheRank:
    """A rank that the program has asked for earlier is the simulated one."""

    def test_in_a_closure(self, mesh):
        rank, group = dist.get_rank(mesh.get_group("tp")), mesh.get_group("tp")
        cut = region(lambda x, g: x.chunk(SIZE)[rank], gathered_rows)(group)
        with typecheck("permissive"):
            assert place(cut.apply(make("I", 8, 4, grad=True) * 1)) == "V"

    def test_in_an_argument(self, mesh):
        class Cut(Function):
            @staticmethod
            def forward(ctx: Any, x: Any, tp_rank: int) -> Any:
                return x.chunk(SIZE)[tp_rank]

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return gathered_rows(gradient, mesh.get_group("tp")), None

        with typecheck("permissive"):
            assert place(Cut.apply(make("I", 8, 4, grad=True) * 1, 0)) == "V"


class TestDeclared:
    """The forward of a function with a rule is compared with the rule."""

    def region(self, forward: Any, backward: Any, rule: Any) -> Any:
        class Region(Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                return forward(x)

            @staticmethod
            def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
                return backward(gradient)

            @staticmethod
            def spmd_typecheck(*, x: torch.Tensor) -> Any:
                return rule(x)

        return Region

    RULES: Any = (
        ("P", lambda x: rules.all_reduce(x, "tp", src=P, dst=I)),
        ("V", lambda x: rules.all_gather(x, "tp", src=S(0), dst=I)),
        ("P", lambda x: rules.reduce_scatter(x, "tp", src=P, dst=S(0))),
        ("V", lambda x: rules.all_to_all(x, "tp", src=S(0), dst=S(1))),
    )

    @pytest.mark.parametrize(("src", "rule"), RULES)
    @pytest.mark.parametrize("axis", ["", "dp"])
    def test_no_collective_or_another_group_is_told(self, mesh, src, rule, axis):
        group = mesh.get_group(axis) if axis else None
        cls = self.region(lambda x: summed(x, group) if axis else x.clone(), keep, rule)
        x = spmd.assert_type(torch.randn(8, 4), {"dp": V, "tp": P if src == "P" else V})
        found = Collector()
        with checking(collect=found):
            cls.apply(x)
        (finding,) = found.result().findings
        assert finding.code == "SW306"
        assert ("all_reduce over dp" if axis else "issues no collective") in finding.message
        assert finding.location.function.endswith("forward" if not axis else "summed")

    def test_a_result_that_is_not_equal_is_told(self, mesh):
        group = mesh.get_group("tp")
        cls = self.region(
            lambda x: own(gathered_rows(x, group), 0, group).repeat(SIZE, 1),
            keep,
            lambda x: rules.all_gather(x, "tp", src=S(0), dst=R),
        )
        with typecheck(), pytest.raises(spmd.SpmdTypeError, match="SW306") as caught:
            cls.apply(spmd.assert_type(torch.randn(2, 4), {"dp": R, "tp": V}))
        assert "output 0 is R (replicate) over tp" in caught.value.finding.message

    @pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
    @pytest.mark.parametrize("src", [P, V])
    def test_a_reduction_from_p_or_v_serves_both_modes(self, mesh, src, local):
        group = mesh.get_group("tp")
        cls = self.region(lambda x: summed(x, group), keep, lambda x: rules.all_reduce(x, "tp", src=src, dst=I))
        x = spmd.assert_type(torch.randn(8, 2, requires_grad=True), {"dp": R, "tp": S(1)})
        w = spmd.assert_type(torch.randn(2, 8, requires_grad=True), {"dp": R, "tp": S(0)})
        with typecheck(local=local):
            assert place(cls.apply(x @ w)) == "I"

    def test_collectives_that_no_mode_sees_are_believed(self, mesh):
        def direct(x: torch.Tensor) -> torch.Tensor:
            x = x.clone()
            mesh.get_group("tp").allreduce([x]).wait()
            return x

        def typed(x: torch.Tensor) -> torch.Tensor:
            return spmd.all_reduce(x, "tp", src=P, dst=I)

        def functional(x: torch.Tensor) -> torch.Tensor:
            import torch.distributed._functional_collectives as functions

            return functions.all_reduce(x, "sum", mesh.get_group("tp"))

        for forward in (direct, typed, functional):
            cls = self.region(forward, keep, lambda x: rules.all_reduce(x, "tp", src=P, dst=I))
            with typecheck():
                assert place(cls.apply(spmd.assert_type(torch.randn(8, 4), {"dp": V, "tp": P}))) == "I"

    def test_pieces_are_not_summed_in_either_spelling(self, mesh):
        for src in (P, V):
            cls = self.region(keep, keep, lambda x, src=src: rules.all_reduce(x, "tp", src=src, dst=I))
            x = spmd.assert_type(torch.randn(8, 2), {"dp": R, "tp": S(1)})
            with typecheck(local=False), refused("SW305" if src is P else "SW201"):
                cls.apply(x)


class PerhapsSummed(Function):
    """A linear layer that sums over ranks, or the gradient of its input, only where it is told to."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, group: Any, sums: bool) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        ctx.group, ctx.sums = group, sums
        return x @ w

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        x, w = ctx.saved_tensors
        back = g @ w.T
        if ctx.sums:
            dist.all_reduce(back, group=ctx.group)
        return back, x.T @ g, None, None


@pytest.mark.parametrize(
    ("x", "w", "sums", "result"),
    [("V", "V", False, "V"), ("R", "V", False, "V"), ("I", "I", False, "I"), ("I", "V", True, "V")],
)
def test_a_function_that_communicates_in_other_calls_only_is_local(mesh, x, w, sums, result):
    found = Collector()
    with checking(strict=False, local=True, collect=found):
        made = PerhapsSummed.apply(make(x, 3, 4, grad=True), make(w, 4, 5, grad=True), mesh.get_group("tp"), sums)
    assert place(made) == result
    assert not found.result().findings


def test_a_local_call_with_an_invariant_operand_misses_the_sum_of_its_gradient(mesh):
    found = Collector()
    with checking(strict=False, local=True, collect=found):
        PerhapsSummed.apply(make("I", 3, 4, grad=True), make("V", 4, 5, grad=True), mesh.get_group("tp"), False)
    (finding,) = found.result().findings
    assert finding.code == "SW101"


def test_of_a_pending_sum_a_local_call_says_nothing(mesh):
    found = Collector()
    with checking(strict=False, local=True, collect=found):
        made = PerhapsSummed.apply(make("P", 3, 4, grad=True), make("R", 4, 5, grad=True), mesh.get_group("tp"), False)
    assert not spmd.has_local_type(made)
    assert not found.result().findings


class Scaled(Function):
    """Takes the number of a rank from outside; beside it there is a collective that is not reached."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, rank: int, group: Any) -> torch.Tensor:
        if group is not None:
            dist.all_reduce(x, group=group)
        return x * (1 + rank)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        return g, None, None


def test_a_local_call_with_the_number_of_a_rank_is_not_known(mesh):
    with checking(strict=False, local=True, collect=Collector()):
        made = Scaled.apply(make("R", 3), 0, None)
    assert not spmd.has_local_type(made)


def counting_function(module: torch.nn.Module, group: Any, *, through_context: bool) -> Any:
    """As ZeRO 3 counts the gradients of a module, and sums over ranks when it has all."""

    class Counted(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.state = Home.state if through_context else module
            return x.detach()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            ctx.state.count = ctx.state.count + 1
            dist.all_reduce(g, group=group)
            return g

    return Counted


class Home:
    """Where a program keeps what it counts."""

    state = torch.nn.Identity()


@pytest.mark.parametrize("through_context", [False, True])
def test_a_function_that_changes_what_outlives_it_is_not_run_for_its_types(mesh, through_context):
    Home.state.count = 0
    found = Collector()
    with checking(strict=False, local=True, collect=found):
        function = counting_function(Home.state, mesh.get_group("tp"), through_context=through_context)
        result = function.apply(make("I", 3, grad=True))
        assert Home.state.count == 0
        result.sum().backward()
    assert Home.state.count == 1
    assert not spmd.has_local_type(result)
    assert not found.result().findings


summed_by_another_name = dist.all_reduce


class Aliased(Function):
    """A linear layer that sums over ranks with a function of another name, in calls that ask for it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        ctx.group = group
        return x @ w

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        x, w = ctx.saved_tensors
        back = g @ w.T
        summed_by_another_name(back, group=ctx.group)
        return back, x.T @ g, None


def test_a_collective_is_known_under_any_name(mesh):
    assert communicates(Aliased, ())
    with checking(strict=False, local=True, collect=Collector()):
        made = Aliased.apply(make("I", 3, 4, grad=True), make("V", 4, 5, grad=True), mesh.get_group("tp"))
    assert place(made) == "V"
