"""How calls of autograd functions and module backward hooks are checked."""

from __future__ import annotations

import contextlib
import operator
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed as renamed
from torch import nn
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

import shardwise as spmd
from shardwise import I, P, R, S, SpmdTypeError, V
from shardwise.checker import checking, typecheck
from shardwise.diagnostics.result import Collector

from .helpers import make, place, refused


class Double(Function):
    """A function that nobody has said anything about."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        Double.calls += 1
        return x * scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad * 2, None


@spmd.register_local_autograd_function
class LocalPair(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, others: Any) -> Any:
        return x + others[0], x.sum()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0], None


@spmd.register_local_autograd_function
class LocalFill(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        x.copy_(value)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return None, grad


def test_an_unregistered_function_is_refused_before_it_runs(tp_mesh):
    x, before = make("R"), Double.calls
    with (
        typecheck(),
        refused("SW302", "not registered for SPMD type checking", "register_local_autograd_function", "spmd_typecheck"),
    ):
        Double.apply(x)
    assert Double.calls == before


def test_an_unregistered_function_gives_an_untyped_result_in_permissive_mode(tp_mesh):
    with typecheck("permissive"):
        assert not spmd.has_local_type(Double.apply(make("R")))


class Scaled(Function):
    """The gradient is halved on its way: right as it stands, and local."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 0.5


class OwnRank(Scaled):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * dist.get_node_local_rank(0)


class Kernel(Scaled):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.clone(x)


class Product(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return grad * weight, (grad * x).sum(0)


class ChosenLogits(Scaled):
    """Elements by index and sums by index, as of a loss in chunks: methods of tensors, named like collectives."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ids = torch.zeros(x.shape, dtype=torch.long)
        return x.gather(-1, ids) + torch.zeros_like(x).scatter_add(-1, ids, x)


class Gathered(Scaled):
    """``dist.gather`` has the name of a tensor's method."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x) if x.ndim else dist.gather(x)


class GatheredByAnotherName(Scaled):
    """A module that the program has renamed."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x) if x.ndim else renamed.gather(x)


@pytest.mark.parametrize("letter", ["R", "V"])
def test_methods_of_tensors_that_are_named_like_collectives_are_local(tp_mesh, letter):
    found = Collector()
    with checking(strict=False, observe=True, collect=found):
        assert place(ChosenLogits.apply(make(letter))) == letter
    assert not found.result().lost


@pytest.mark.parametrize("letter", ["R", "I", "V"])
def test_where_types_are_observed_a_function_that_can_only_be_local_is_so_and_is_listed(tp_mesh, letter):
    found = Collector()
    with checking(strict=False, observe=True, collect=found):
        assert place(Scaled.apply(make(letter))) == letter
    assert "Scaled is local, since its code names nothing that communicates" in [x.what for x in found.result().trusted]
    assert not found.result().lost


@pytest.mark.parametrize(
    ("cls", "letters"),
    [(Scaled, "P"), (OwnRank, "R"), (Kernel, "R"), (Product, "VI"), (Gathered, "R"), (GatheredByAnotherName, "R")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_of_a_function_of_which_that_is_not_so_the_type_is_lost_and_listed(tp_mesh, cls, letters):
    """A pending sum, what sounds of ranks or of a kernel, and what would be refused of a local one: nobody knows."""
    found = Collector()
    with checking(strict=False, observe=True, collect=found):
        assert not spmd.has_local_type(cls.apply(*(make(letter, grad=True) for letter in letters)))
    what = f"the type of what {cls.__name__} makes, an autograd function that nobody declares"
    assert [lost.what for lost in found.result().lost] == [what]
    assert not found.result().findings


SHARDED = False
"""Whether a weight would have to be gathered first."""
all_comm = operator.methodcaller("clone")
"""A callable without a frame of Python, as one of Cython is."""


def gathered(x: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """What is called in any case, and communicates where a weight is sharded."""
    if SHARDED:
        return contextlib.nullcontext(all_comm(x))
    return contextlib.nullcontext()


class Gathering(Scaled):
    """Its backward names what sounds like communication."""

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        with gathered(grad):
            return grad * 0.5


class GatheringForward(Scaled):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        with gathered(x):
            return x.view_as(x)


@pytest.mark.parametrize("cls", [Gathering, GatheringForward])
@pytest.mark.parametrize("letter", ["R", "I", "V"])
def test_what_only_sounds_like_communication_and_is_never_called_leaves_a_function_local(tp_mesh, cls, letter):
    found = Collector()
    with checking(strict=False, observe=True, collect=found):
        for _ in range(2):
            assert place(cls.apply(make(letter, grad=True))) == letter
    what = f"{cls.__name__} is local, since it has called nothing that may communicate"
    assert what in [x.what for x in found.result().trusted]
    assert not found.result().lost


@pytest.mark.parametrize("cls", [Gathering, GatheringForward])
def test_of_what_sounds_like_communication_and_is_called_the_type_is_lost(tp_mesh, cls, monkeypatch):
    monkeypatch.setitem(globals(), "SHARDED", True)
    found = Collector()
    with checking(strict=False, observe=True, collect=found):
        assert not spmd.has_local_type(cls.apply(make("R", grad=True)))
    assert [lost.what for lost in found.result().lost] == [
        f"the type of what {cls.__name__} makes, an autograd function that nobody declares"
    ]


def test_a_copy_into_a_region_that_forgets_the_sum_in_backward_is_found(tp_mesh):
    """Nothing in its code names a collective, so it is no region function: what it gives is as invariant as before."""
    found = Collector()
    with checking(strict=False, observe=True, collect=found):
        Scaled.apply(make("I", grad=True)) @ make("V", grad=True)
    assert [finding.code for finding in found.result().findings] == ["SW101"]


def test_a_function_without_tensors_bypasses_the_checker(tp_mesh):
    class Make(Function):
        @staticmethod
        def forward(ctx: Any, n: int) -> torch.Tensor:
            return torch.ones(n)

    with typecheck():
        assert Make.apply(3).shape == (3,)


def test_an_unregistered_function_gives_an_unknown_result_while_findings_are_collected(tp_mesh):
    found = Collector()
    with checking(collect=found):
        torch.relu(Double.apply(make("P")))
    assert [finding.code for finding in found.result().findings] == ["SW302"]


def test_what_a_declaration_says_is_listed_as_trusted(tp_mesh):
    found = Collector()
    with checking(collect=found):
        LocalPair.apply(make("R"), [make("R")])
    assert "LocalPair is local" in [trusted.what for trusted in found.result().trusted]


@pytest.mark.parametrize(
    ("first", "second", "result"), [("R", "R", "R"), ("I", "I", "I"), ("V", "V", "V"), ("R", "V", "V"), ("V", "R", "V")]
)
def test_a_local_function_follows_the_local_rule_on_all_its_tensors(tp_mesh, first, second, result):
    with typecheck():
        outputs = LocalPair.apply(make(first, grad=True), [make(second)])
    assert [place(output) for output in outputs] == [result, result]


@pytest.mark.parametrize(("first", "second", "code"), [("P", "R", "SW112"), ("R", "P", "SW112"), ("P", "V", "SW110")])
def test_a_local_function_is_linear_in_nothing(tp_mesh, first, second, code):
    with typecheck(), refused(code, "LocalPair"):
        LocalPair.apply(make(first), [make(second)])


def test_a_local_function_does_not_mix_invariant_with_varying(tp_mesh):
    with typecheck(), refused("SW101", "LocalPair"):
        LocalPair.apply(make("I", grad=True), [make("V")])


def test_a_local_function_may_not_retype_the_operand_it_writes_into(tp_mesh):
    value = make("V")
    with typecheck():
        x = make("R", grad=True) * 1
        with refused("SW120", "LocalFill", "from R into V"):
            LocalFill.apply(x, value)


def test_what_a_local_function_does_to_shards_is_not_known(tp_mesh):
    x, y = spmd.assert_type(make("V"), {"tp": S(0)}), make("R")
    with typecheck(local=False):
        assert place(LocalPair.apply(y, [y])[0]) == "R"
        with refused("SW411", "LocalPair"):
            LocalPair.apply(x, [y])


def test_a_local_function_may_fill_a_buffer(tp_mesh):
    x = make("R")
    with typecheck():
        assert LocalFill.apply(x, make("V")) is x
    assert place(x) == "V"


def test_operands_are_called_as_forward_calls_them(tp_mesh):
    with typecheck(), refused("SW112", "others[0]"):
        LocalPair.apply(make("R"), [make("P")])


class TestTypedForward:
    def test_it_is_called_in_place_of_apply_with_checking_off(self, tp_mesh):
        seen = []

        @spmd.register_autograd_function
        class Sum(Double):
            @staticmethod
            def typecheck_forward(x: torch.Tensor) -> torch.Tensor:
                seen.append(spmd.is_type_checking())
                spmd.assert_type(x, {"tp": V})
                return spmd.assert_type(Sum.apply(x), {"tp": P})

        with typecheck():
            assert place(Sum.apply(make("V"))) == "P"
        assert seen == [False]

    def test_what_it_refuses_is_a_finding_at_the_call(self, tp_mesh):
        @spmd.register_autograd_function
        class Sum(Double):
            @staticmethod
            def typecheck_forward(x: torch.Tensor) -> torch.Tensor:
                return Sum.apply(spmd.assert_type(x, {"tp": V}))

        x = make("R")
        with typecheck(), refused("SW130"):
            Sum.apply(x)

    def test_it_is_not_used_when_nothing_is_checked(self, tp_mesh):
        @spmd.register_autograd_function
        class Never(Double):
            @staticmethod
            def typecheck_forward(x: torch.Tensor) -> torch.Tensor:
                raise AssertionError("called without checking")

        assert Never.apply(make("R")).shape == (4, 4)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "neither"),
        ({"typecheck_forward": staticmethod(print), "spmd_typecheck": staticmethod(print)}, "both"),
        ({"typecheck_forward": 3}, "callable"),
        ({"spmd_typecheck": "no"}, "callable"),
    ],
)
def test_registering_needs_exactly_one_way_of_typing(body, words):
    cls = type("Custom", (Double,), body)
    with pytest.raises(TypeError, match=words) as caught:
        spmd.register_autograd_function(cls)
    assert caught.value.code == "SW304"


@pytest.mark.parametrize("register", [spmd.register_autograd_function, spmd.register_local_autograd_function])
@pytest.mark.parametrize("thing", [3, int, print])
def test_only_autograd_functions_can_be_registered(register, thing):
    with pytest.raises(TypeError, match=r"torch\.autograd\.Function"):
        register(thing)


class TestDecomposition:
    @pytest.mark.parametrize("as_decorator", [True, False])
    def test_types_are_those_of_the_decomposition(self, tp_mesh, as_decorator):
        cls = type("Matmul", (_Matmul,), {})

        def plain(a: torch.Tensor, b: torch.Tensor) -> Any:
            return {"product": a @ b, "first": a}

        returned = spmd.register_decomposition(cls)(plain) if as_decorator else spmd.register_decomposition(cls, plain)
        assert returned is plain
        with typecheck():
            out = cls.apply(make("P", grad=True), make("R"))
        assert (place(out["product"]), place(out["first"])) == ("P", "P")
        assert out["product"].device.type == "cpu"

    def test_its_errors_surface_as_they_are(self, tp_mesh):
        cls = type("Matmul", (_Matmul,), {})
        spmd.register_decomposition(cls, lambda a, b: {"product": torch.relu(a) @ b, "first": a})
        with typecheck(), refused("SW112", "relu"):
            cls.apply(make("P"), make("R"))

    def test_a_result_of_another_form_is_refused(self, tp_mesh):
        cls = type("Matmul", (_Matmul,), {})
        spmd.register_decomposition(cls, lambda a, b: (a @ b, a))
        with typecheck(), refused("SW304", "decomposition"):
            cls.apply(make("R"), make("R"))

    def test_it_needs_checking_to_be_active(self, tp_mesh):
        cls = type("Matmul", (_Matmul,), {})
        spmd.register_decomposition(cls, lambda a, b: {"product": a @ b, "first": a})
        with pytest.raises(SpmdTypeError, match="needs type checking to be active"):
            cls.typecheck_forward(make("R"), make("R"))


class _Matmul(Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
        return {"product": a @ b, "first": a.clone()}

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0], None


class TestTorchFunctions:
    def test_a_reentrant_checkpoint_is_checked_call_by_call(self, tp_mesh):
        x, w = make("R", grad=True), make("V")
        with typecheck():
            out = checkpoint(lambda a: torch.relu(a @ w), x, use_reentrant=True)
            assert place(out) == "V"
            with refused("SW112", "relu"):
                checkpoint(torch.relu, make("P", grad=True), use_reentrant=True)

    def test_a_reentrant_checkpoint_is_checked_as_its_recomputation_runs(self, tp_mesh):
        # Without gradients I and R would mix; the recomputation in backward records them.
        x, w = make("I", grad=True), make("R", grad=True)
        with typecheck(), refused("SW101"):
            checkpoint(lambda a: a * w, x, use_reentrant=True)

    def test_a_reentrant_checkpoint_keeps_its_gradients(self, tp_mesh):
        x = make("P", grad=True)
        with typecheck():
            out = checkpoint(lambda a: a * 3, x, use_reentrant=True)
            assert out.requires_grad
            out.sum().backward()
        assert torch.equal(x.grad, torch.full((4, 4), 3.0))

    def test_a_checkpointed_region_may_hand_its_operand_back(self, tp_mesh):
        with typecheck():
            out = checkpoint(lambda a: a, make("P", grad=True), use_reentrant=True)
        assert place(out) == "P"

    def test_a_function_of_torch_needs_no_declaration(self, tp_mesh):
        class Elsewhere(Double):
            __module__ = "torch.some.internals"

        with typecheck():
            assert place(Elsewhere.apply(make("V"))) == "V"
            with refused("SW112"):
                Elsewhere.apply(make("P"))

    def test_functional_collectives_with_gradients_are_opaque(self, tp_mesh):
        class Reduce(Double):
            __module__ = "torch.distributed._functional_collectives"

        with typecheck(), refused("SW302"):
            Reduce.apply(make("P"))

    def test_functions_inside_an_operator_are_not_asked_about(self, tp_mesh):
        @torch.library.custom_op("shardwise_tests::twice", mutates_args=())
        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        twice.register_autograd(lambda ctx, grad: grad * 2)
        x = make("P", grad=True)
        found = Collector()
        with checking(collect=found):
            twice(x)
        assert [finding.code for finding in found.result().findings] == ["SW301"]


class TestBackwardHooks:
    @pytest.mark.parametrize("letter", "RIVP")
    @pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
    def test_a_registered_hook_passes_types_through(self, tp_mesh, letter, register):
        module = nn.Identity()
        getattr(module, register)(spmd.register_local_backward_hook(lambda *args: None))
        with typecheck():
            assert place(module(make(letter, grad=True))) == letter

    @pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
    def test_an_unregistered_hook_is_refused_by_name(self, tp_mesh, register):
        module = nn.Identity()

        def watch_gradients(*args: Any) -> None: ...

        getattr(module, register)(watch_gradients)
        x = make("R", grad=True)
        with typecheck(), refused("SW303", "watch_gradients", "not registered"):
            module(x)

    @pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
    def test_a_permissive_check_asks_of_those_that_may_return_gradients_only(self, tp_mesh, register):
        def looks(*args: Any) -> None:
            if len(args) > 3:
                return
            seen.append(args)

        def doubles(module: nn.Module, *groups: Any) -> Any:
            return tuple(gradient * 2 for gradient in groups[0])

        class Looking:
            def hook(self, *args: Any) -> None:
                seen.append(args)

        seen: list[Any] = []
        asked = {}
        for name, hook in (("looks", looks), ("bound", Looking().hook), ("doubles", doubles), ("builtin", print)):
            module = nn.Identity()
            getattr(module, register)(hook)
            found = Collector()
            with checking(strict=False, collect=found):
                module(make("R", grad=True))
            asked[name] = [finding.code for finding in found.result().findings]
        assert asked == {"looks": [], "bound": [], "doubles": ["SW303"], "builtin": ["SW303"]}

    def test_a_bound_method_is_registered_by_its_function(self, tp_mesh):
        class Watcher:
            @spmd.register_local_backward_hook
            def hook(self, *args: Any) -> None: ...

        module = nn.Identity()
        module.register_full_backward_hook(Watcher().hook)
        with typecheck():
            assert place(module(make("V", grad=True))) == "V"

    def test_nothing_is_asked_when_nothing_is_checked(self):
        module = nn.Identity()
        module.register_full_backward_hook(lambda *args: None)
        module(torch.ones(2, requires_grad=True)).sum().backward()

    @pytest.mark.parametrize("thing", [3, print, None])
    def test_only_functions_can_be_registered(self, thing):
        with pytest.raises(TypeError, match="register_local_backward_hook takes a function") as caught:
            spmd.register_local_backward_hook(thing)
        assert caught.value.code == "SW303"


def test_pytorch_is_as_it_was_after_the_last_check():
    before = Function.__dict__["apply"], torch.utils.hooks.BackwardHook.__init__
    with typecheck(), typecheck():
        assert Function.__dict__["apply"] is not before[0]
    assert (Function.__dict__["apply"], torch.utils.hooks.BackwardHook.__init__) == before


def test_a_thread_that_checks_nothing_is_left_alone(tp_mesh):
    results: list[Any] = []

    def plain() -> None:
        results.append(Double.apply(torch.ones(2)))

    with typecheck():
        thread = threading.Thread(target=plain)
        thread.start()
        thread.join()
    assert torch.equal(results[0], torch.full((2,), 2.0))


def test_two_threads_check_two_programs(tp_mesh):
    caught: list[Any] = []
    meet = threading.Barrier(2)

    def program(mode: str) -> None:
        with typecheck(mode):
            meet.wait()
            try:
                Double.apply(torch.ones(2))
                caught.append(mode)
            except SpmdTypeError as error:
                caught.append(error.code)
            meet.wait()

    threads = [threading.Thread(target=program, args=(mode,)) for mode in ("strict", "permissive")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(caught) == ["SW302", "permissive"]


def test_mixed_flavours_are_read_as_one_where_no_gradient_flows(tp_mesh):
    with typecheck(), torch.no_grad():
        outputs = LocalPair.apply(spmd.assert_type(torch.empty(4, 4), {"tp": I}), [make("R")])
    assert [place(output) for output in outputs] == ["R", "R"]
    assert R is not I


def test_the_differentiable_collectives_of_torch_are_checked_call_by_call(tp_mesh: Any) -> None:
    import torch.distributed.nn.functional as differentiable

    group = tp_mesh.get_group("tp")
    with typecheck():
        assert place(differentiable.all_reduce(make("P", grad=True) * 1, group=group)) == "R"
        assert [place(piece) for piece in differentiable.all_gather(make("V"), group=group)] == ["R"] * 4
        with refused("SW201", "all_reduce expects"):
            differentiable.all_reduce(make("R"), group=group)
