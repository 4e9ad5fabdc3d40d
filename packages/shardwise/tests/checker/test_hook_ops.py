"""The operators that hand-written rules are made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import shardwise as spmd
from shardwise import I, P, PartitionSpec, R, S, SpmdTypeError, V, rules
from shardwise.checker import typecheck
from shardwise.interop.running.typing_rule_run import TypingRuleRun, running

from .helpers import make, place, refused
from .hook_helpers import LETTERS, declared, in_mode, stand_in


class TestEinsumLocally:
    @pytest.mark.parametrize(
        ("first", "second", "result"),
        [("R", "R", "R"), ("I", "I", "I"), ("V", "V", "V"), ("R", "V", "V"), ("V", "R", "V")],
    )
    def test_operands_follow_the_local_rule(self, tp_mesh, first, second, result):
        assert place(rules.einsum("bk,ko->bo", make(first), make(second))) == result

    @pytest.mark.parametrize(
        ("first", "second", "words"),
        [
            ("I", "R", "invariant over tp, is mixed with"),
            ("P", "R", "is not declared to be linear in it"),
            ("P", "V", "partial over tp, is combined with"),
            ("P", "P", "is not declared to be linear"),
        ],
    )
    def test_what_the_local_rule_refuses_is_refused(self, tp_mesh, first, second, words):
        with pytest.raises(SpmdTypeError, match=words) as caught:
            rules.einsum("bk,ko->bo", make(first, grad=True), make(second, grad=True))
        assert caught.value.code == "SW305"

    @pytest.mark.parametrize(
        ("places", "linear_in", "result"),
        [
            ("PR", (0,), "P"),
            ("RP", (0, 1), "P"),
            ("PP", ((0, 1),), "P"),
            ("PP", (0, 1), "both partial"),
            ("PR", ((0, 1),), "linear_in says they are added"),
            ("PR", (1,), "not declared to be linear"),
            ("PPR", ((0, 1), 2), "P"),
            ("RRP", ((0, 1), 2), "P"),
            ("PPP", ((0, 1), 2), "both partial"),
            ("RR", (0,), "R"),
        ],
    )
    def test_partial_operands_need_a_declared_linearity(self, tp_mesh, places, linear_in, result):
        operands = [make(letter) for letter in places]
        equation = ",".join(["ab"] * len(places)) + "->ab"
        if result in LETTERS:
            assert place(rules.einsum(equation, *operands, linear_in=linear_in)) == result
        else:
            with pytest.raises(SpmdTypeError, match=result) as caught:
                rules.einsum(equation, *operands, linear_in=linear_in)
            assert caught.value.code == "SW305"

    @pytest.mark.parametrize(("places", "help"), [("PR", "linear_in=(0,)"), ("PP", "linear_in=((0, 1),)")])
    def test_the_linearity_to_write_is_suggested(self, tp_mesh, places, help):
        with pytest.raises(SpmdTypeError) as caught:
            rules.einsum("ab,ab->ab", *(make(letter) for letter in places))
        assert caught.value.help[0].startswith(help)

    @pytest.mark.parametrize("linear_in", [(2,), (-1,), ("x",), (0, 0), ((0, 1), 1)])
    def test_linear_in_must_name_operands_once(self, tp_mesh, linear_in):
        with pytest.raises(TypeError, match="linear_in"):
            rules.einsum("ab,ab->ab", make("P"), make("P"), linear_in=linear_in)

    @pytest.mark.parametrize(
        "equation",
        ["ab", "ab->a->b", "ab->a,b", "aa->a", "ab->c", "a1->a", "......->", 3, "ab,ab->ab", "ab c.->a"],
    )
    def test_a_malformed_equation_is_a_type_error(self, tp_mesh, equation):
        with pytest.raises(TypeError) as caught:
            rules.einsum(equation, make("R"))
        assert caught.value.code == "SW304"

    @pytest.mark.parametrize("operand", [3, None, [torch.ones(2)]])
    def test_an_operand_must_be_a_tensor(self, operand):
        with pytest.raises(TypeError, match=r"rules\.einsum takes tensors"):
            rules.einsum("a->a", operand)

    @pytest.mark.parametrize(("equation", "ndims"), [("abc->a", (2,)), ("...abc->a", (2,)), ("...a,...b->ab", (3, 2))])
    def test_the_ndim_must_agree_with_the_equation(self, tp_mesh, equation, ndims):
        with pytest.raises(SpmdTypeError, match="dims") as caught:
            rules.einsum(equation, *(stand_in(ndim, {"tp": R}) for ndim in ndims))
        assert caught.value.code == "SW304"

    @pytest.mark.parametrize(
        ("equation", "ndims", "result"),
        [
            ("ab->", (2,), 0),
            ("αβ, βγ -> αγ", (2, 2), 2),
            ("...ab,b->...a", (5, 1), 4),
            ("...a->a", (3,), 1),
            ("a_->a", (2,), 1),
            ("a,b->ba", (1, 1), 2),
        ],
    )
    def test_the_result_has_the_dims_on_the_right(self, tp_mesh, equation, ndims, result):
        assert rules.einsum(equation, *(stand_in(ndim, {"tp": R}) for ndim in ndims)).ndim == result

    def test_out_is_stamped_and_returned(self, tp_mesh):
        out = torch.zeros(4, 4)
        assert rules.einsum("ab->ab", make("V"), out=out) is out
        assert place(out) == "V"
        with pytest.raises(SpmdTypeError, match="has 2 dims, but out has 1"):
            rules.einsum("ab->ab", make("V"), out=torch.zeros(4))

    def test_a_missing_axis_is_named_in_strict_mode(self, mesh):
        with in_mode(local=True), pytest.raises(SpmdTypeError, match="says nothing about dp") as caught:
            rules.einsum("ab->ab", make("V"))
        assert caught.value.code == "SW103"

    def test_nothing_is_known_along_a_missing_axis_in_permissive_mode(self, mesh):
        with running(TypingRuleRun("Kernel", (), local=True, strict=False)):
            out = rules.einsum("ab,ab->ab", make("V"), stand_in(2, {"dp": R}))
        assert (place(out, "dp"), place(out, "tp")) == ("", "")

    def test_an_operand_on_another_mesh_is_read_on_the_current_one(self, mesh):
        whole = spmd.MeshAxis.of(8, 1)
        x = spmd.assert_type(torch.zeros(2), {whole: R})
        out = rules.einsum("a->a", x)
        assert (place(out, "dp"), place(out, "tp")) == ("R", "R")


AXES = {"dp": R}


class TestEinsumGlobally:
    @pytest.mark.parametrize(
        ("equation", "first", "second", "result"),
        [
            ("bk,ko->bo", {"tp": S(0)}, {"tp": R}, {"tp": S(0)}),
            ("bk,ko->bo", {"tp": R}, {"tp": S(1)}, {"tp": S(1)}),
            ("bk,ko->bo", {"tp": S(1)}, {"tp": S(0)}, {"tp": P}),
            ("hbk,hko->hbo", {"tp": S(0)}, {"tp": S(0)}, {"tp": S(0)}),
            ("bk,ko->ob", {"tp": S(0)}, {"tp": R}, {"tp": S(1)}),
            ("bk,ko->bo", {"tp": R}, {"tp": R}, {"tp": R}),
            ("bk,ko->bo", {"tp": I}, {"tp": I}, {"tp": I}),
        ],
    )
    def test_labels_decide(self, mesh, equation, first, second, result):
        ndims = [len(term) for term in equation.split("->")[0].split(",")]
        operands = [stand_in(n, {**AXES, **types}) for n, types in zip(ndims, (first, second), strict=True)]
        with in_mode(local=False):
            out = rules.einsum(equation, *operands)
        expected = stand_in(out.ndim, {**AXES, **result})
        assert repr(out) == repr(expected)

    @pytest.mark.parametrize(
        ("equation", "first", "second", "words"),
        [
            ("bk,ko->bo", {"tp": S(1)}, {"tp": R}, "label 'k'.*is sharded over tp in .* but not sharded"),
            ("bk,ko->bo", {"tp": S(0)}, {"tp": S(1)}, "an axis shards one label only"),
            ("bk,ko->bo", {"tp": S(0)}, {"tp": I}, "it must be R"),
            ("bk,ko->bo", {"tp": S(0)}, {"tp": P}, "it must be R"),
            ("b_,_o->bo", {"tp": S(1)}, {"tp": S(0)}, "must not be sharded"),
        ],
    )
    def test_what_the_labels_do_not_admit_is_refused(self, mesh, equation, first, second, words):
        operands = [stand_in(2, {**AXES, **first}), stand_in(2, {**AXES, **second})]
        with in_mode(local=False), pytest.raises(SpmdTypeError, match=words) as caught:
            rules.einsum(equation, *operands)
        assert caught.value.code == "SW305"

    def test_what_varies_must_say_where(self, mesh):
        with in_mode(local=False), pytest.raises(SpmdTypeError, match="varies over tp, but no dim of it") as caught:
            rules.einsum("bk,ko->bo", stand_in(2, {**AXES, "tp": V}), stand_in(2, {**AXES, "tp": R}))
        assert caught.value.code == "SW408"

    def test_the_order_of_axes_on_a_label_must_agree(self, mesh):
        x = stand_in(2, {}, PartitionSpec(None, ("dp", "tp")))
        w = stand_in(2, {}, PartitionSpec(("tp", "dp"), None))
        with in_mode(local=False), pytest.raises(SpmdTypeError, match="label 'k'"):
            rules.einsum("bk,ko->bo", x, w)

    def test_two_axes_on_one_contracted_label_leave_two_sums(self, mesh):
        x = stand_in(2, {}, PartitionSpec(None, ("dp", "tp")))
        w = stand_in(2, {}, PartitionSpec(("dp", "tp"), None))
        with in_mode(local=False):
            out = rules.einsum("bk,ko->bo", x, w)
        assert (place(out, "dp"), place(out, "tp")) == ("P", "P")

    def test_local_axes_of_the_mesh_stay_local(self, mesh):
        x, w = stand_in(2, {"dp": V, "tp": S(1)}), stand_in(2, {"dp": R, "tp": S(0)})
        with spmd.set_current_mesh(local_axes=("dp",)), in_mode(local=False):
            out = rules.einsum("bk,ko->bo", x, w)
        assert (place(out, "dp"), place(out, "tp")) == ("V", "P")

    @pytest.mark.parametrize("mode", [True, False], ids=["local", "global"])
    @pytest.mark.parametrize("equation", ["bk,ok->bo", "bk,k->bk"])
    def test_what_varies_without_a_dim_meets_an_invariant_operand(self, tp_mesh, equation, mode):
        x, w = (stand_in(len(term), {"tp": at}) for term, at in zip(equation[:-4].split(","), (V, I), strict=True))
        with in_mode(local=mode), pytest.raises(SpmdTypeError, match="invariant over tp, is mixed with operand 0"):
            rules.einsum(equation, x, w)


class TestGlobalCalls:
    """Rules under ``typecheck(local=False)``."""

    @pytest.mark.parametrize(("x_dim", "w_dim", "result"), [(1, 0, "I"), (0, None, "SW305"), (1, None, "SW305")])
    def test_a_rule_sees_the_shards(self, tp_mesh, x_dim, w_dim, result):
        def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            out = x @ w
            dist.all_reduce(out)
            return out

        kernel = declared(lambda *, x, w: TestOneRuleServesBothModes.rule(x, w), forward)
        x, w = (make("R") if dim is None else spmd.assert_type(make("V"), {"tp": S(dim)}) for dim in (x_dim, w_dim))
        with typecheck(local=False):
            if result == "I":
                assert place(kernel.apply(x, w)) == "I"
            else:
                with refused(result):
                    kernel.apply(x, w)

    def test_a_result_gets_its_spec(self, tp_mesh):
        x = spmd.assert_type(make("V"), {"tp": S(0)})
        with typecheck(local=False):
            out = declared(lambda *, x, w: rules.einsum("bk,ko->bo", x, w)).apply(x, make("R"))
        assert spmd.get_partition_spec(out) == spmd.get_partition_spec(x)

    def test_a_result_that_varies_must_say_where(self, tp_mesh):
        def hook(out: Any, *, x: Any, w: Any) -> None:
            rules.ignore(x, w)
            spmd.assert_type(out, {"tp": V})

        x, w = make("R"), make("R")
        with typecheck(local=False), refused("SW408", "output 0 varies over tp"):
            declared(hook).apply(x, w)


class TestOneRuleServesBothModes:
    """Item 29: einsum over a sharded label, then all_reduce from P."""

    @staticmethod
    def rule(x: Any, w: Any) -> Any:
        return rules.all_reduce(rules.einsum("bk,ko->bo", x, w), "tp", src=P, dst=I)

    def test_globally_the_contraction_is_partial(self, tp_mesh):
        with in_mode(local=False):
            assert place(self.rule(stand_in(2, {"tp": S(1)}), stand_in(2, {"tp": S(0)}))) == "I"

    def test_locally_it_varies_and_may_be_read_as_partial(self, tp_mesh):
        with in_mode(local=True):
            assert place(self.rule(stand_in(2, {"tp": V}), stand_in(2, {"tp": V}))) == "I"

    @pytest.mark.parametrize(("equation", "places"), [("bk,ko->bo", "VR"), ("ab,ab->ab", "VV"), ("bk,ko,k->bo", "VVR")])
    def test_what_no_contraction_made_is_not_read_as_partial(self, tp_mesh, equation, places):
        operands = [
            stand_in(len(term), {"tp": LETTERS[letter]})
            for term, letter in zip(equation.split("->")[0].split(","), places, strict=True)
        ]
        with pytest.raises(SpmdTypeError, match="expected input type P over tp, got V") as caught:
            rules.all_reduce(rules.einsum(equation, *operands), "tp", src=P, dst=R)
        assert caught.value.code == "SW305"


ADMITTED = {
    "all_reduce": {"PR", "PI", "VR", "VI"},
    "all_gather": {"VR", "VI"},
    "reduce_scatter": {"PV", "VV"},
    "all_to_all": {"VV"},
    "reinterpret": {"RR", "II", "VV", "PP", "VP", "RV", "RP", "IV", "IP", "RI", "IR"},
    "convert": {"RR", "II", "VV", "PP", "RI", "RV", "RP", "IR", "IV", "IP", "VP"},
}


class TestTransitions:
    @pytest.mark.parametrize("dst", "RIVP")
    @pytest.mark.parametrize("src", "RIVP")
    @pytest.mark.parametrize("op", ADMITTED)
    def test_the_admitted_pairs(self, tp_mesh, op, src, dst):
        x = stand_in(2, {"tp": LETTERS[src]})
        call = getattr(rules, op)
        if src + dst in ADMITTED[op]:
            out = call(x, "tp", src=LETTERS[src], dst=LETTERS[dst])
            assert place(out) == dst
            assert place(x) == src
        else:
            with pytest.raises(SpmdTypeError, match="allowed are") as caught:
                call(x, "tp", src=LETTERS[src], dst=LETTERS[dst])
            assert caught.value.code == "SW202"

    @pytest.mark.parametrize(
        ("op", "src", "dst", "after"),
        [
            ("all_gather", S(0), R, R),
            ("all_gather", S(-1), I, I),
            ("reduce_scatter", P, S(1), S(1)),
            ("all_to_all", S(0), S(1), S(1)),
            ("convert", R, S(0), S(0)),
            ("convert", I, S(1), S(1)),
            ("convert", S(1), P, P),
            ("convert", S(1), S(1), S(1)),
        ],
    )
    @pytest.mark.parametrize("local", [True, False])
    def test_shards_are_followed_on_global_axes(self, tp_mesh, op, src, dst, after, local):
        with in_mode(local=local):
            out = getattr(rules, op)(stand_in(2, {"tp": src}), "tp", src=src, dst=dst)
        expected = stand_in(2, {"tp": V if local and isinstance(after, S) else after})
        assert repr(out) == repr(expected)

    @pytest.mark.parametrize(("op", "default"), [("all_reduce", "PR"), ("all_gather", "VR"), ("reduce_scatter", "PV")])
    def test_src_and_dst_have_the_runtime_defaults(self, tp_mesh, op, default):
        src, dst = (LETTERS[letter] for letter in default)
        given = {} if op == "reduce_scatter" else {"dst": dst}
        assert place(getattr(rules, op)(stand_in(2, {"tp": src}), "tp", **given)) == default[1]

    def test_gathering_stacked_pieces_adds_a_dim(self, mesh):
        assert rules.all_gather(stand_in(1, {"tp": V}), "tp", dst=R).ndim == 2

    def test_shards_on_other_axes_follow_their_dims(self, mesh):
        x = stand_in(2, {"dp": S(1), "tp": P})
        with spmd.set_current_mesh(mesh, local_axes=()), in_mode(local=False):
            moved = rules.reduce_scatter(x, "tp", dst=S(0))
        assert repr(moved) == repr(stand_in(2, {"dp": S(1), "tp": S(0)}))

    def test_scattering_to_varying_unbinds_dim_0(self, tp_mesh):
        assert rules.reduce_scatter(stand_in(2, {"tp": P}), "tp", dst=V).ndim == 1
        with pytest.raises(SpmdTypeError, match="has no dims") as caught:
            rules.reduce_scatter(stand_in(0, {"tp": P}), "tp", dst=V)
        assert caught.value.code == "SW206"

    @pytest.mark.parametrize(("src", "dst", "ndim"), [(R, V, 1), (I, V, 1), (V, P, 3), (R, S(0), 2), (R, P, 2)])
    def test_a_conversion_changes_dims_as_the_runtime_does(self, tp_mesh, src, dst, ndim):
        assert rules.convert(stand_in(2, {"tp": src}), "tp", src=src, dst=dst).ndim == ndim

    def test_scattering_to_varying_needs_an_unsharded_dim_0(self, mesh):
        x = stand_in(2, {"dp": S(0), "tp": P})
        with pytest.raises(SpmdTypeError, match="unbinds dim 0, which is sharded") as caught:
            rules.reduce_scatter(x, "tp", dst=V)
        assert caught.value.code == "SW305"

    @pytest.mark.parametrize("op", ["all_gather", "all_to_all"])
    def test_stacked_pieces_have_no_global_reading(self, tp_mesh, op):
        x = stand_in(2, {"tp": S(0)})
        with in_mode(local=False), pytest.raises(SpmdTypeError, match="stacks or unbinds") as caught:
            getattr(rules, op)(x, "tp", dst=R if op == "all_gather" else V)
        assert caught.value.code == "SW412"

    @pytest.mark.parametrize(("src", "dst"), [(3, R), (R, "R"), (None, R), (S, R)])
    def test_src_and_dst_must_be_types(self, tp_mesh, src, dst):
        with pytest.raises(TypeError, match="takes R, I, V, P or S") as caught:
            rules.convert(stand_in(2), "tp", src=src, dst=dst)
        assert caught.value.code == "SW202"

    def test_moving_shards_to_another_dim_needs_all_to_all(self, tp_mesh):
        with pytest.raises(SpmdTypeError, match="cannot move shards from dim 0 to dim 1") as caught:
            rules.convert(stand_in(2, {"tp": S(0)}), "tp", src=S(0), dst=S(1))
        assert caught.value.help[0].startswith("all_to_all")

    @pytest.mark.parametrize(("actual", "declared"), [("R", "I"), ("I", "R"), ("P", "V"), ("V", "R"), ("V", "P")])
    def test_src_must_be_the_actual_type(self, tp_mesh, actual, declared):
        x = stand_in(2, {"tp": LETTERS[actual]})
        with pytest.raises(SpmdTypeError, match=f"expected input type {declared} over tp, got {actual}") as caught:
            rules.reinterpret(x, "tp", src=LETTERS[declared], dst=LETTERS[declared])
        assert caught.value.code == "SW305"

    @pytest.mark.parametrize(("actual", "declared"), [("R", "I"), ("I", "R")])
    def test_r_and_i_are_interchangeable_where_no_gradient_flows(self, tp_mesh, actual, declared):
        out = rules.convert(make(actual), "tp", src=LETTERS[declared], dst=V)
        assert place(out) == "V"
        with pytest.raises(SpmdTypeError):
            rules.convert(make(actual, grad=True), "tp", src=LETTERS[declared], dst=V)

    @pytest.mark.parametrize(("src", "stored"), [(R, "R"), (P, "P"), (S(1), "V")])
    def test_an_axis_that_is_absent_is_established_as_src(self, tp_mesh, src, stored):
        x = stand_in(2)
        rules.convert(x, "tp", src=src, dst=src)
        assert place(x) == stored

    def test_an_s_source_refines_a_bare_v(self, tp_mesh):
        x = stand_in(2, {"tp": V})
        rules.all_gather(x, "tp", src=S(1), dst=R)
        assert repr(x) == repr(stand_in(2, {"tp": S(1)}))

    def test_a_shard_on_another_dim_is_named_with_both_dims(self, tp_mesh):
        with pytest.raises(SpmdTypeError, match=r"expected input shard S\(0\) over tp, got S\(1\)") as caught:
            rules.all_gather(stand_in(2, {"tp": S(1)}), "tp", src=S(0), dst=R)
        assert caught.value.code == "SW305"

    @pytest.mark.parametrize("dim", [2, -3])
    def test_a_dim_must_exist(self, tp_mesh, dim):
        with pytest.raises(SpmdTypeError, match="out of range") as caught:
            rules.all_gather(stand_in(2), "tp", src=S(dim), dst=R)
        assert caught.value.code == "SW132"

    def test_only_the_innermost_axis_of_a_dim_moves(self, mesh):
        x = stand_in(1, {}, PartitionSpec(("dp", "tp")))
        with in_mode(local=False):
            assert place(rules.all_gather(x, "tp", src=S(0), dst=R)) == "R"
            with pytest.raises(spmd.types.RedistributeError, match="tp shards the same dim further in") as caught:
                rules.all_gather(x, "dp", src=S(0), dst=R)
        assert caught.value.code == "SW410"

    def test_a_flattened_axis_moves_its_parts(self, mesh):
        both = spmd.MeshAxis.of(8, 1)
        x = stand_in(1, {}, PartitionSpec(("dp", "tp")))
        with in_mode(local=False):
            out = rules.all_gather(x, both, src=S(0), dst=R)
            back = rules.convert(out, both, src=R, dst=S(0))
        assert (place(out, "dp"), place(out, "tp")) == ("R", "R")
        assert repr(back) == repr(x)

    def test_an_axis_of_one_rank_changes_dims_only(self, tp_mesh):
        one = spmd.MeshAxis.of(1, 1)
        x = stand_in(2, {"tp": R})
        out = rules.all_gather(x, one, src=V, dst=I)
        assert (out.ndim, place(out)) == (3, "R")

    def test_out_is_x_is_the_in_place_form(self, tp_mesh):
        x = torch.zeros(4)
        spmd.assert_type(x, {"tp": P})
        assert rules.all_reduce(x, "tp", dst=R, out=x) is x
        assert place(x) == "R"

    def test_the_operand_must_be_a_tensor(self, tp_mesh):
        with pytest.raises(TypeError, match=r"rules\.all_reduce takes tensors"):
            rules.all_reduce(3, "tp", dst=R)


class TestOutput:
    def test_a_conflicting_type_is_refused(self, tp_mesh):
        with pytest.raises(SpmdTypeError, match="has another type already") as caught:
            rules.output(make("R"), stand_in(2, {"tp": V}))
        assert caught.value.code == "SW305"

    def test_none_is_passed_over(self, tp_mesh):
        out = torch.zeros(2)
        rules.output((out, None), (stand_in(1, {"tp": V}), None))
        assert place(out) == "V"

    @pytest.mark.parametrize(
        ("typed", "words"),
        [((1,), "1 types for 2 results"), (5, "1 types for 2 results"), ((None, None), "gives None")],
    )
    def test_the_form_must_agree(self, tp_mesh, typed, words):
        with pytest.raises(SpmdTypeError, match=words) as caught:
            rules.output((torch.zeros(2), torch.zeros(2)), typed)
        assert caught.value.code == "SW304"
