"""Local and unchecked regions, and functions with declared boundaries."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import shardwise as spmd
from shardwise import I, Infer, P, PartitionSpec, R, S, SpmdType, V
from shardwise.checker import checking, typecheck
from shardwise.diagnostics.result import Collector

from .helpers import make, place, refused


def untyped(*shape: int) -> torch.Tensor:
    x = torch.ones(shape or (4, 4))
    x.__dict__.clear()  # made by a factory: forget that it is a constant
    return x


def wrong() -> None:
    """An op that every check refuses."""
    torch.relu(make("P"))


class TestLocal:
    def test_it_does_nothing_when_nothing_is_checked(self):
        with spmd.local():
            assert not spmd.is_type_checking()

    @pytest.mark.parametrize("strict", ["strict", "permissive"])
    def test_strictness_is_inherited(self, tp_mesh, strict):
        with typecheck(strict), spmd.local():
            assert spmd.is_type_checking()
            if strict == "permissive":
                assert place(make("V") + untyped()) == "", "unknown, and no error"
            else:
                with refused("SW102"):
                    make("V") + untyped()

    def test_results_carry_no_spec(self, tp_mesh):
        x = spmd.assert_type(untyped(), {"tp": S(0)})
        with typecheck(), spmd.local():
            assert spmd.get_partition_spec(x * 2) is None


class TestNoTypecheck:
    def test_a_block_is_not_checked(self, tp_mesh):
        with typecheck():
            with spmd.no_typecheck():
                assert not spmd.is_type_checking()
                wrong()
            with refused("SW112"):
                torch.relu(make("P"))

    @pytest.mark.parametrize("decorate", [spmd.no_typecheck, spmd.no_typecheck(), lambda fn: spmd.no_typecheck()(fn)])
    def test_a_function_is_not_checked(self, tp_mesh, decorate):
        with typecheck():
            decorate(wrong)()

    def test_a_decorated_function_can_be_called_again(self, tp_mesh):
        quiet = spmd.no_typecheck(wrong)
        with typecheck():
            quiet()
            quiet()

    def test_a_nested_typecheck_switches_it_on_until_it_exits(self, tp_mesh):
        with typecheck(), spmd.no_typecheck():
            with typecheck(), refused("SW112"):
                torch.relu(make("P"))
            wrong()

    def test_it_does_nothing_when_nothing_is_checked(self):
        with spmd.no_typecheck():
            assert not spmd.is_type_checking()

    @pytest.mark.parametrize(
        ("args", "kwargs", "words"),
        [
            ((3,), {}, "takes a function"),
            ((wrong,), {"out_types": None}, "not both"),
            ((), {"in_types": ()}, "out_types is required for typed no_typecheck"),
            ((), {"types": ()}, "out_types is required for typed no_typecheck"),
            ((), {"out_types": None, "inputs": None}, "out_types is required for typed no_typecheck"),
        ],
    )
    def test_other_arguments_are_refused(self, args, kwargs, words):
        with pytest.raises(TypeError, match=words) as caught:
            spmd.no_typecheck(*args, **kwargs)
        assert caught.value.code == "SW905"

    def test_a_typed_boundary_checks_inputs_and_believes_outputs(self, tp_mesh):
        @spmd.no_typecheck(in_types=({"tp": P},), out_types={"tp": R})
        def kernel(x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x)

        found = Collector()
        with checking(collect=found):
            assert place(kernel(make("P"))) == "R"
        assert any("no_typecheck[" in trusted.what for trusted in found.result().trusted)
        x = make("R")
        with typecheck(), refused("SW140", "no_typecheck[", "kernel]", "input 0 is R"):
            kernel(x)

    def test_without_in_types_inputs_are_not_checked(self, tp_mesh):
        @spmd.no_typecheck(out_types={"tp": V})
        def kernel(x: torch.Tensor) -> torch.Tensor:
            return x * 1

        with typecheck():
            assert [place(kernel(make(letter))) for letter in "RIVP"] == ["V"] * 4


class TestRegisterNoTypecheck:
    def test_everything_called_from_it_is_unchecked(self, tp_mesh):
        def library(callback: Any) -> Any:
            assert not spmd.is_type_checking()
            with typecheck():
                callback()

        assert spmd.register_no_typecheck(library) is library
        with typecheck():
            library(wrong)
            with refused("SW112"):
                torch.relu(make("P"))

    def test_wrappers_are_seen_through(self, tp_mesh):
        def library() -> None:
            wrong()

        @functools.wraps(library)
        def wrapper() -> None:
            library()

        spmd.register_no_typecheck(wrapper)
        with typecheck():
            library()

    def test_autograd_functions_inside_are_unchecked_too(self, tp_mesh):
        class Plain(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                return x * 2

        @spmd.register_no_typecheck
        def library(x: torch.Tensor) -> torch.Tensor:
            return Plain.apply(x)

        with typecheck():
            assert not spmd.has_local_type(library(make("R")))

    @pytest.mark.parametrize("thing", [print, 3, torch.add])
    def test_only_python_functions_can_be_registered(self, thing):
        with pytest.raises(TypeError, match="takes a Python function"):
            spmd.register_no_typecheck(thing)


def doubled(x: Any, *more: Any, **named: Any) -> Any:
    return x * 2


class TestLocalMap:
    def test_it_calls_through_when_nothing_is_checked(self):
        assert torch.equal(spmd.local_map(in_types=Infer, out_types=Infer)(doubled)(untyped()), untyped() * 2)

    @pytest.mark.parametrize(
        ("claim", "stored"),
        [
            ({"tp": V}, "V"),
            ({"tp": S(1)}, "V"),
            (PartitionSpec(None, "tp"), "V"),
            (({"tp": V}, None), "V"),
            (({}, PartitionSpec("tp", None)), "V"),
            (SpmdType({"tp": V}), "V"),
        ],
    )
    def test_every_kind_of_leaf(self, tp_mesh, claim, stored):
        x = make("V")
        with typecheck():
            out = spmd.local_map(in_types=(claim,), out_types=claim)(doubled)(x)
        assert place(out) == stored
        assert spmd.get_partition_spec(out) == spmd.get_partition_spec(x)

    def test_containers_are_followed(self, tp_mesh):
        @spmd.local_map(
            in_types=({"a": {"tp": V}, "b": [None, {"tp": R}]}, None), out_types=({"tp": V}, None, [{"tp": R}])
        )
        def body(tree: Any, n: int) -> Any:
            return tree["a"] * n, n, [tree["b"][1] * 1]

        with typecheck():
            first, number, (second,) = body({"a": make("V"), "b": ["text", make("R")]}, 3)
        assert (place(first), number, place(second)) == ("V", 3, "R")

    def test_an_input_is_refined_by_its_declaration(self, tp_mesh):
        x = untyped()
        with typecheck():
            out = spmd.local_map(in_types=({"tp": I},), out_types={"tp": I})(doubled)(x)
        assert (place(x), place(out)) == ("I", "I")

    def test_inputs_are_refined_all_or_none(self, tp_mesh):
        x, y = make("V"), make("R")
        body = spmd.local_map(in_types=({"tp": S(0)}, {"tp": V}), out_types={"tp": V})(doubled)
        with typecheck(), refused("SW140", "local_map[doubled]", "input 1 is R"):
            body(x, y)
        assert spmd.get_partition_spec(x) is None

    def test_the_body_is_checked(self, tp_mesh):
        with typecheck(), refused("SW112"):
            spmd.local_map(out_types={"tp": R})(lambda x: torch.relu(x))(make("P"))

    def test_the_result_must_agree_with_what_the_body_inferred(self, tp_mesh):
        with typecheck(), refused("SW140", "local_map[doubled]", "output 0 is R", "said to be V"):
            spmd.local_map(out_types={"tp": V})(doubled)(make("R"))

    def test_an_untyped_result_is_stamped(self, tp_mesh):
        with typecheck("permissive"):
            out = spmd.local_map(out_types=({"tp": P},))(lambda x: (x.detach().new_empty(2),))(make("R"))
        assert place(out[0]) == "P"

    @pytest.mark.parametrize(
        ("in_types", "out_types", "words"),
        [
            (({"tp": V}, None), {"tp": V}, "in_types pytree structure does not match input"),
            ({"tp": V}, {"tp": V}, "in_types pytree structure does not match input"),
            (([{"tp": V}],), {"tp": V}, "is no type"),
            (Infer, ({"tp": V},), "out_types has"),
            (Infer, [{"tp": V}, None], "out_types has"),
            ((Infer,), {"tp": V}, "in_types contains Infer at a leaf"),
            (Infer, Infer, "out_types contains Infer at a leaf"),
            ((None,), {"tp": V}, "input 0 is a tensor, but in_types says None"),
            (Infer, None, "output 0 is a tensor, but out_types says None"),
            ((3,), {"tp": V}, "in_types has 3 at input 0, which is no type"),
            (Infer, "V", "out_types has 'V' at output 0, which is no type"),
        ],
    )
    def test_a_declaration_that_does_not_fit_is_refused(self, tp_mesh, in_types, out_types, words):
        body = spmd.local_map(in_types=in_types, out_types=out_types)(doubled)
        x = make("V")
        with typecheck(), refused("SW140", "local_map[doubled]", words):
            body(x)

    def test_a_result_of_another_structure_is_refused(self, tp_mesh):
        body = spmd.local_map(out_types={"tp": V})(lambda x: (x, x))
        x = make("V")
        with typecheck(), refused("SW140", "out_types pytree structure does not match output"):
            body(x)

    @pytest.mark.parametrize("types", [({"tp": V}, {"tp": R}), {"x": {"tp": V}, "k": {"tp": R}}])
    def test_a_type_where_there_is_no_tensor_is_refused(self, tp_mesh, types):
        body = spmd.local_map(in_types=types, out_types={"tp": V})(lambda x, k=None: x * 1)
        x = make("V")
        with typecheck(), refused("SW140", "NoneType, no tensor"):
            body(x)

    def test_arguments_passed_by_keyword_are_checked(self, tp_mesh):
        body = spmd.local_map(in_types=({"tp": V}, {"tp": R}), out_types={"tp": V})(lambda x, w: x * w)
        x, w = make("V"), make("R")
        with typecheck():
            assert place(body(x, w=w)) == place(body(w=w, x=x)) == "V"
            with refused("SW140", "input 1 is V", "said to be R"):
                body(x, w=x)

    def test_a_tensor_that_is_not_declared_is_refused(self, tp_mesh):
        body = spmd.local_map(in_types=({"tp": V},), out_types={"tp": V})(lambda x, *, mask=None, n=1: x * n)
        x, mask = make("V"), make("P")
        with typecheck():
            assert place(body(x, n=3)) == "V"
            with refused("SW140", "'mask' is a tensor, but in_types says nothing about it"):
                body(x, mask=mask)

    def test_every_argument_can_be_declared_by_its_name(self, tp_mesh):
        types = {"x": {"tp": V}, "mask": {"tp": R}}
        body = spmd.local_map(in_types=types, out_types={"tp": V})(lambda x, *, mask: x * mask)
        x, mask = make("V"), make("P")
        with typecheck():
            assert place(body(x, mask=make("R"))) == "V"
            with refused("SW140", "input mask is P", "said to be R"):
                body(x, mask=mask)
            with refused("SW140", "'nask' is no parameter"):
                spmd.local_map(in_types={"nask": None}, out_types={"tp": V})(doubled_named)(x)

    def test_a_default_that_is_left_out_may_be_declared(self, tp_mesh):
        body = spmd.local_map(in_types=({"tp": V}, None), out_types={"tp": V})(lambda x, k=None: x * 1)
        with typecheck():
            assert place(body(make("V"))) == "V"

    def test_names_are_looked_up_at_the_call(self, tp_mesh):
        body = spmd.local_map(in_types=({"nowhere": V},), out_types={"tp": V})(doubled)
        x = make("V")
        with typecheck(), refused("SW140", "nowhere"):
            body(x)

    def test_a_run_goes_on_with_the_declared_result(self, tp_mesh):
        found = Collector()
        with checking(collect=found):
            out = spmd.local_map(in_types=({"tp": R},), out_types={"tp": I})(doubled)(make("V"))
        assert place(out) == "I"
        # One at the argument, one at the result: the same cause at one place is one finding.
        assert [(finding.code, finding.count) for finding in found.result().findings] == [("SW140", 2)]


def doubled_named(x: Any) -> Any:
    return x * 2
