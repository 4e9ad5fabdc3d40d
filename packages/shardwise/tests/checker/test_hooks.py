"""Hand-written rules and the protocol that runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.autograd import Function

import shardwise as spmd
from shardwise import P, R, S, V, rules
from shardwise.checker import checking, typecheck
from shardwise.diagnostics.result import Collector

from .helpers import make, place, refused
from .hook_helpers import declared, stand_in


class TestNdimWithSpmdType:
    def test_it_shows_its_dims_and_its_type(self, mesh):
        shown = repr(stand_in(2, {"dp": S(0), "tp": R}))
        assert shown == "NdimWithSpmdType(ndim=2, {dp: V, tp: R} PartitionSpec(dp, None))"

    def test_it_can_be_annotated_and_queried(self, mesh):
        x = stand_in(2, {"tp": V})
        assert spmd.has_local_type(x)
        assert place(spmd.assert_type(x, {"dp": P}), "dp") == "P"
        assert spmd.get_partition_spec(x) is None

    @pytest.mark.parametrize("ndim", [-1, 1.0, True, "2"])
    def test_it_needs_a_number_of_dims(self, ndim):
        with pytest.raises(TypeError, match="number of dims"):
            rules.NdimWithSpmdType(ndim)


class TestProtocol:
    def test_the_return_form_gives_the_type(self, tp_mesh):
        def hook(*, x: Any, w: Any) -> Any:
            return rules.einsum("bk,ko->bo", x, w)

        with typecheck():
            assert place(declared(hook).apply(make("V"), make("R"))) == "V"

    def test_the_return_form_is_asked_before_the_kernel_runs(self, tp_mesh):
        ran = []

        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ran.append(x)
            x = x.clone()
            dist.all_reduce(x)
            return x

        kernel = declared(lambda *, x: rules.all_reduce(x, "tp", src=P, dst=R), forward)
        with typecheck():
            with refused("SW305", "all_reduce(x, tp, src=P, dst=R)", "expected input type P over tp, got R"):
                kernel.apply(make("R"))
            assert ran == []
            assert place(kernel.apply(make("P"))) == "R"
        assert ran

    def test_the_imperative_form_receives_what_forward_returned(self, tp_mesh):
        seen = []

        def hook(out: Any, *, x: Any, w: Any) -> None:
            seen.append(out)
            rules.einsum("bk,ko->bo", x, w, out=out)

        with typecheck():
            out = declared(hook).apply(make("V"), make("R"))
        assert seen[0] is out
        assert place(out) == "V"

    def test_an_imperative_rule_may_annotate_by_hand(self, tp_mesh):
        def hook(out: Any, *, x: Any, w: Any) -> None:
            spmd.assert_type(x, {"tp": V})
            rules.ignore([w])
            spmd.assert_type(out, {"tp": P})

        with typecheck():
            assert place(declared(hook).apply(make("V"), make("R"))) == "P"

    def test_a_tensor_may_be_returned_for_its_type(self, tp_mesh):
        kernel = declared(lambda *, x, w: (rules.ignore(w, x), x)[1])
        with typecheck():
            assert place(kernel.apply(make("V"), make("R"))) == "V"

    @pytest.mark.parametrize("container", [tuple, list])
    def test_several_results_are_aligned(self, tp_mesh, container):
        def forward(ctx: Any, x: torch.Tensor) -> Any:
            return x * 1, None, x.sum()

        def hook(*, x: Any) -> Any:
            return container([rules.einsum("ab->ab", x), None, rules.einsum("ab->", x)])

        with typecheck():
            whole, nothing, total = declared(hook, forward).apply(make("V"))
        assert (place(whole), nothing, place(total)) == ("V", None, "V")

    @pytest.mark.parametrize(
        ("returned", "words"),
        [
            (lambda x: None, "returns None"),
            (lambda x: 3, "expected an NdimWithSpmdType or a tensor"),
            (lambda x: rules.einsum("ab->a", x), "1 dims for a result that has 2"),
            (lambda x: (x,), "expected an NdimWithSpmdType or a tensor"),
        ],
    )
    def test_a_return_value_that_does_not_fit_is_refused(self, tp_mesh, returned, words):
        def hook(*, x: Any) -> Any:
            rules.ignore(x)
            return returned(x)

        kernel = declared(hook, lambda ctx, x: x * 1)
        x = make("V")
        with typecheck(), refused("SW304", words):
            kernel.apply(x)

    def test_the_number_of_results_must_agree(self, tp_mesh):
        kernel = declared(lambda *, x: (rules.einsum("ab->ab", x),) * 3, lambda ctx, x: (x * 1, x * 2))
        x = make("V")
        with typecheck(), refused("SW304", "3 types for 2 results"):
            kernel.apply(x)

    def test_every_tensor_argument_must_be_looked_at(self, tp_mesh):
        kernel = declared(lambda *, x: rules.einsum("ab->ab", x))
        x, w = make("R"), make("P")
        with typecheck(), refused("SW304", "never looks at w", "rules.ignore(w)"):
            kernel.apply(x, w)

    def test_tensors_inside_arguments_must_be_looked_at(self, tp_mesh):
        @dataclass
        class Extra:
            scale: torch.Tensor

        def forward(ctx: Any, x: torch.Tensor, *rest: Any) -> torch.Tensor:
            return x * 1

        kernel = declared(lambda *, x, rest: rules.einsum("ab->ab", x), forward)
        x, w = make("R"), make("R")
        with typecheck(), refused("SW304", "rest[0]['mask'], rest[1].scale"):
            kernel.apply(x, {"mask": w}, Extra(make("R")))

    def test_every_result_must_be_typed(self, tp_mesh):
        kernel = declared(lambda out, *, x: rules.ignore(x), lambda ctx, x: (x * 1, x * 2))
        x = make("R")
        with typecheck(), refused("SW304", "output 0 without a type"):
            kernel.apply(x)

    def test_names_must_be_parameters_of_forward(self, tp_mesh):
        kernel = declared(lambda *, act: act)
        x, w = make("R"), make("R")
        with typecheck(), pytest.raises(TypeError, match=r"asks for 'act'.*available are x, w, group") as caught:
            kernel.apply(x, w)
        assert caught.value.code == "SW304"

    def test_a_name_with_a_default_may_be_missing(self, tp_mesh):
        kernel = declared(lambda *, x, w, eps=1: (rules.ignore(x, w), w)[1])
        with typecheck():
            assert place(kernel.apply(make("R"), make("V"))) == "V"

    def test_keyword_arguments_of_apply_are_refused(self, tp_mesh):
        class Kernel(Function):
            @staticmethod
            def forward(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
                return x * scale

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

            @staticmethod
            def spmd_typecheck(*, x: Any) -> Any:
                return rules.einsum("ab->ab", x)

        with typecheck():
            assert place(Kernel.apply(make("V"))) == "V"
            with pytest.raises(TypeError, match="keyword arguments scale"):
                Kernel.apply(make("V"), scale=2.0)

    def test_positional_only_and_variadic_parameters_are_bound(self, tp_mesh):
        def forward(ctx: Any, x: torch.Tensor, /, *rest: torch.Tensor) -> torch.Tensor:
            return x + rest[0]

        def hook(*, x: Any, rest: Any) -> Any:
            return rules.einsum("ab,ab->ab", x, *rest)

        with typecheck():
            assert place(declared(hook, forward).apply(make("R"), make("V"))) == "V"

    def test_a_rule_is_inherited_and_need_not_be_registered(self, tp_mesh):
        parent = spmd.register_autograd_function(declared(lambda *, x, w: rules.einsum("bk,ko->bo", x, w)))
        with typecheck():
            assert place(type("Child", (parent,), {}).apply(make("V"), make("R"))) == "V"

    def test_nothing_runs_when_nothing_is_checked(self):
        assert declared(lambda *, x: 1 / 0).apply(torch.ones(2, 2), torch.ones(2, 2)).shape == (2, 2)

    def test_a_refusal_by_an_imperative_rule_runs_the_kernel_once(self, tp_mesh):
        ran = []

        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ran.append(1)
            return x * 1

        def hook(out: Any, *, x: Any) -> None:
            rules.all_reduce(x, "tp", src=P, dst=R, out=out)

        found = Collector()
        with checking(collect=found):
            torch.relu(declared(hook, forward).apply(make("R")))
        assert ran == [1]
        assert [finding.code for finding in found.result().findings] == ["SW305"]

    @pytest.mark.parametrize(
        ("hook", "shape"),
        [(lambda *, x: x, "return"), (lambda: None, "return"), (lambda out, *, x: x, "imperative")],
    )
    def test_the_shape_of_a_rule_is_read_from_its_signature(self, hook, shape):
        assert rules.hook_shape(declared(hook)) == shape

    @pytest.mark.parametrize("hook", [lambda out, x: x, lambda *args: None, lambda out, *args: None])
    def test_only_the_results_may_be_positional(self, hook):
        with pytest.raises(TypeError, match=r"keyword-only|cannot take") as caught:
            rules.hook_shape(declared(hook))
        assert caught.value.code == "SW304"

    def test_the_pieces_of_the_protocol_can_be_used_alone(self, tp_mesh):
        kernel = declared(lambda *, x, w: rules.einsum("bk,ko->bo", x, w))
        args = make("V"), make("R")
        assert list(rules.bind_forward_args(kernel, args)) == ["x", "w", "group"]
        assert list(rules.hook_kwargs(kernel, args)) == ["x", "w"]
        out = torch.zeros(4, 4)
        rules.run_typecheck(kernel, args, out)
        assert place(out) == "V"
