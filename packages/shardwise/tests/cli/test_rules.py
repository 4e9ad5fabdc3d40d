"""``shardwise rules``: the list of rules, and the page of one."""

from __future__ import annotations

import json
import re

import pytest
import torch
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.cli.pages.call_page import call_sections, called_example
from shardwise.cli.pages.dim_fates import from_front, words
from shardwise.cli.pages.example_calls import CALLS
from shardwise.cli.pages.rule_page import examples_of, placements
from shardwise.cli.pages.rule_page import render as page_of
from shardwise.cli.rules import _as_asked
from shardwise.op_rules.registry import all_rules, lookup
from shardwise.op_rules.transitions import TRANSITIONS
from shardwise.types.placement import P, R, S


def rules(*arguments):
    return CliRunner().invoke(main, ["rules", *arguments])


def test_every_rule_is_listed_with_its_law_and_kind():
    lines = rules().stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [rule.op for rule in all_rules()]
    assert lines[-1] == f"{len(all_rules())} rules"


def test_a_word_filters_the_list_by_name_law_or_kind():
    result = rules("--about", "zeros")
    assert result.exit_code == 0
    assert any(line.startswith("zeros ") for line in result.stdout.splitlines())
    assert not any(line.startswith("matmul ") for line in result.stdout.splitlines())


def test_a_word_in_no_rule_is_a_usage_error():
    result = rules("--about", "nonesuch")
    assert result.exit_code == 2
    assert "no rule mentions 'nonesuch': shardwise rules lists all" in result.stderr


@pytest.mark.parametrize("name", ["linear", "F.linear", "nn.functional.linear"])
def test_a_page_shows_law_dims_placements_gradients_and_two_ranks(name):
    text = rules(name).stdout
    assert text.startswith("linear\n")
    assert "  linear     input weight + bias\n" in text
    assert "  S(0)   R       R     ->  S(0)    S(0)              S(0)     P         P\n" in text
    assert "  S(2)   S(1)    R     ->  refused, SW113: bias would be added once per rank\n" in text
    assert "  S(2)   S(1)    P     ->  P       R                 S(2)     S(1)      R\n" in text
    assert "  linear  [2, 6, 6]         [2, 6, 6]         [4, 6, 6], pieces along dim 0\n" in text


def test_the_source_is_the_spelling_that_is_asked_for_where_the_rule_names_its_own():
    assert [
        line.split() for name in ("conv2d", "linear") for line in rules(name).stdout.splitlines() if "source" in line
    ] == [
        ["source", "torch.conv2d"],
        ["source", "torch.nn.functional.linear:", "input", "@", "weight.T", "+", "bias"],
    ]


def test_columns_of_costs_are_as_wide_as_their_cells():
    name = "scaled_dot_product_attention"
    costs = rules(name).stdout.partition("cost over")[2].partition("in torch")[0].splitlines()[1:]
    starts = {
        line.index(what) for line in costs for what in ("left to be", "nothing", "d key", "result") if what in line
    }
    assert len(starts) == 1


@pytest.mark.parametrize(
    ("op", "rows"),
    [
        ("linear", ["[4, 6, 8]         bd0 bd1 k", "[4, 6, 6]         bd0 bd1 n"]),
        ("embedding", ["[4, 6]            id0 id1", "[4, 6, 6]         id0 id1 h"]),
        ("add", ["[4, 6, 8]         d0 d1 d2"]),
        ("softmax", ["[4, 6, 8]         i0 i1 i2"]),
    ],
)
def test_the_dims_of_an_example_are_counted_from_the_first(op, rows):
    page = rules(op).stdout
    for row in rows:
        assert row in page


@pytest.mark.slow
def test_no_operand_of_any_example_counts_its_dims_backwards():
    wrong = []
    for rule in all_rules():
        example = next(iter(examples_of(rule)), None)
        if example is not None:
            names = from_front(example.labelling.operands)
            for dims in example.labelling.operands:
                numbers = [label for label in words(dims, names).split() if label[-1].isdigit()]
                if len({label.rstrip("0123456789") for label in numbers}) == 1 and _goes_down(numbers):
                    wrong.append((rule.op, numbers))
    assert wrong == []


def _goes_down(numbers):
    return len(numbers) > 1 and numbers == sorted(numbers, reverse=True)


def test_a_page_shows_laws_and_placements_of_each_result():
    text = rules("linalg.solve_ex").stdout
    assert "  linear     B\n  result 1   in nothing: no operand may be a pending sum; follows from A\n" in text
    assert "  R     P     ->  P, R     R, P              P     R\n" in text
    assert "  results    one per tensor, in a shape that follows from all\n" in rules("meshgrid").stdout
    assert "  P         R         ->  P, R    R, P" in rules("meshgrid").stdout
    assert "  results    one per tensor, each as if alone\n" in rules("atleast_2d").stdout


@pytest.mark.parametrize(("name", "need"), [("squeeze", "one length, or even=True"), ("pixel_shuffle", "whole groups")])
def test_a_page_says_what_lengths_shards_must_have(name, need):
    assert f"\n  d0: shards of {need}\n" in rules(name).stdout


def test_a_page_is_of_the_spelling_that_is_asked_for():
    """Of an operator that shares its rule with others the example is a call of its own, and so is what torch runs."""
    page = rules("conv3d").stdout
    assert page.startswith("conv3d\n  spellings  conv1d, conv2d\n")
    assert "  kernels    aten::conv3d: " in page
    assert rules("torch.nn.functional.conv3d").stdout == page
    assert rules("aten::conv3d").stdout == page


@pytest.mark.parametrize(
    "name", ["aten.add.Tensor", "torch.ops.aten.add.Tensor", "aten::add_", "torch.Tensor.add_", "__iadd__"]
)
def test_an_operator_is_found_by_what_profilers_call_it(name):
    assert rules(name).stdout == rules("add").stdout


@pytest.mark.parametrize(
    ("op", "tries"),
    [
        ("matmull", "try shardwise rules matmul"),
        ("a b c", "try shardwise rules --about 'a b c'"),
        ("torch.nn.Linear", "try shardwise rules linear"),
        ("redistribute", "try shardwise plan FROM TO"),
        ("shardwise.unshard", "try shardwise rules all_gather"),
        ("", "try shardwise rules"),
    ],
)
def test_an_unknown_operator_names_its_neighbours(op, tries):
    result = rules(op)
    assert result.exit_code == 2
    assert f"no rule for {op!r}; {tries}" in " ".join(result.stderr.split())


@pytest.mark.parametrize("op", sorted({op for op, _, _ in TRANSITIONS}))
def test_a_collective_has_a_page_with_every_way_and_its_gradient(op):
    result = rules(op)
    assert result.exit_code == 0
    shown = [line.split() for line in result.stdout.splitlines()]
    for row in (row for row in TRANSITIONS.values() if row.op == op and not row.is_noop):
        source = row.src + ("*" if row.expert else "")
        gradient = ["none"] if row.backward is None else [row.backward[0], row.backward[1], "->", row.backward[2]]
        (own,) = [words for words in shown if words[: 2 + len(gradient)] == [source, row.dst, *gradient]]
        waits = own[2 + len(gradient) :]
        assert ("forward" in waits[:1]) == row.meets(backward=False)
        assert (waits[0] != "neither") == row.meets(backward=True)
    assert rules(f"shardwise.{op}").stdout == result.stdout


CALLED = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from shardwise import I, P, R, S, V, assert_type
from shardwise import {op} as called
mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
x = torch.ones(4, 3, requires_grad={trained})
y = called(assert_type(x, {{"tp": {src}}}), "tp", src={src}, dst={dst}{how})
if {backward}:
    y.backward(torch.ones_like(y))
"""
NUMBERED = {"S": "S(0)", "P(max)": 'P("max")', "P(min)": 'P("min")'}
CALLABLE = [row for row in TRANSITIONS.values() if not row.is_noop]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("row", CALLABLE, ids=lambda row: f"{row.op} {row.src} {row.dst}")
def test_a_collective_s_page_has_the_bytes_that_its_calls_are_counted_with(row, tmp_path):
    src, dst = (NUMBERED.get(one, one) for one in (row.src, row.dst))
    how = ", expert_mode=True" if row.expert else ""
    trained = row.backward is not None
    received = []
    for backward in (False, trained):
        source = CALLED.format(op=row.op, src=src, dst=dst, how=how, trained=trained, backward=backward)
        (tmp_path / "called.py").write_text(source)
        counted = CliRunner().invoke(main, ["cost", f"{tmp_path}/called.py", "--mesh", "tp=4", "--format", "json"])
        assert counted.exit_code == 0, counted.output
        received.append(sum(axis["bytes"] for axis in json.loads(counted.stdout)["axes"].values()))
    forward, both = received
    gradient = ("nothing" if both == forward else f"{both - forward} B") if trained else "none"
    table = rules(row.op).stdout.partition("cost over 4 ranks with 12 numbers each, float32\n")[2]
    assert f"{row.src} {row.dst} {f'{forward} B' if forward else 'nothing'} {gradient}" in [
        " ".join(line.split()) for line in table.splitlines()
    ]


@pytest.mark.parametrize(
    ("op", "line"),
    [
        ("embedding", "S(0)   R       ->  S(0)    S(0)              -        P"),
        ("where", "R          P      P      ->  P       R                 -            R        R"),
        ("detach", "P      ->  P       -                 -"),
    ],
    ids=["whole numbers", "a mask", "what is detached"],
)
def test_what_has_no_gradient_is_shown_with_none(op, line):
    assert f"\n  {line}\n" in rules(op).stdout


@pytest.mark.parametrize(
    "op",
    ["batch_norm", "getitem", "item", "zeros_like", "full", "nonzero", "linalg.cholesky", "linalg.eigh", "avg_pool3d"],
)
def test_what_torch_runs_is_shown_also_where_a_call_needs_more_than_tensors_of_any_shape(op):
    page = rules(op).stdout
    assert "\n  forward    " in page
    assert "operators  not shown" not in page


def test_attention_is_called_with_its_values():
    text = rules("scaled_dot_product_attention").stdout
    assert "  S(1)   R     R      ->  S(1)" in text
    assert "  s: needed whole: no shard can do its part alone\n" in text
    assert "  forward    " in text


def test_the_sum_of_a_result_is_of_the_extent_that_torch_gives():
    assert "  P         P         result             1536 B by an all_reduce of [8, 6, 8]\n" in rules("cat").stdout


def facts(op):
    rule = lookup(op)
    return {(line.operands, line.results) for line in placements(rule, called_example(rule)[0]) if line.results}


def test_the_placements_of_a_product_are_those_of_the_calculus():
    assert facts("mm") == {
        ((S(0), R), (S(0),)),
        ((R, S(1)), (S(1),)),
        ((S(1), S(0)), (P,)),
        ((P, R), (P,)),
        ((R, P), (P,)),
    }


@pytest.mark.one_in(4)
@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.op)
def test_every_rule_has_a_page(rule):
    found = lookup(rule.op)
    text = page_of(found, called_example(found)[0])
    assert text.splitlines()[0] == rule.op
    assert all(line == line.rstrip() for line in text.splitlines() if "->" in line)


def test_a_page_of_a_branch_says_how_its_results_join():
    lines = [" ".join(line.split()) for line in rules("cond").stdout.splitlines()]
    assert "pred true_fn false_fn -> result" in lines
    assert {"R R V -> V", "V R R -> V", "R P P -> P", "R R P -> refused, SW113", "R I I -> I"} <= set(lines)
    assert "a slice of the result" in rules("map").stdout


def test_a_page_shows_what_torch_makes_of_the_call():
    text = rules("linear").stdout
    assert "  kernels    aten::linear: CompositeImplicitAutograd" in text
    assert re.search("  forward    view, t, addmm, (_unsafe_)?view\n", text), "torch 2.15 calls the other"
    assert "  backward   view, t, mm, t, mm, t, sum.dim_IntList, view" in text
    assert "  backward   embedding_dense_backward\n" in rules("embedding").stdout
    assert "  backward   hands the gradient on\n" in rules("add").stdout


def test_a_page_shows_what_is_left_to_be_summed_and_its_cost():
    text = rules("linear").stdout
    assert "  S(0)   R       R     d weight           192 B by an all_reduce of [6, 8]\n" in text
    assert "  P      R       P     result             576 B by an all_reduce of [4, 6, 6]\n" in text
    # Whole numbers have no gradient, so nobody owes one.
    assert "d input" not in rules("embedding").stdout.partition("cost over")[2]


def test_what_a_page_says_is_owed_is_what_the_placements_say():
    rule = lookup("linear")
    owed = [line.operands for line in placements(rule, called_example(rule)[0]) if P in line.results]
    shown = next(call_sections(rule, *called_example(rule)))
    for one in owed:
        assert "  ".join(f"{place!r:<{width}}" for place, width in zip(one, (5, 6, 4), strict=True)) in shown


@pytest.mark.slow
def test_every_operator_has_its_further_sections_and_no_number_is_drawn_of_the_program(nightly):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for rule in list(all_rules())[:: 1 if nightly else 7]:
        found = lookup(rule.op)
        sections = list(call_sections(found, *called_example(found)))
        assert sections[-1].startswith("in torch")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_every_rule_with_labels_has_an_example():
    rules = [lookup(rule.op) for rule in all_rules()]
    assert [rule.op for rule in rules if rule.labels is not None and next(examples_of(rule), None) is None] == []


@pytest.mark.parametrize("op", CALLS)
def test_a_call_written_for_a_page_is_of_a_rule_that_needs_it_and_runs(op):
    example, recorded = called_example(_as_asked(lookup(op), (op,)))
    assert {*example.names, *example.given} == {*CALLS[op].sizes, *CALLS[op].given}
    if op not in ("native_batch_norm", "_native_batch_norm_legit", "fake_quantize_per_channel_affine", "setitem"):
        # These write running statistics, take whole numbers of 32 bits, or give nothing back.
        assert recorded is not None


@pytest.mark.parametrize(
    ("op", "result"),
    [
        ("reshape", "[4, 48]           d0 d1"),
        ("flatten", "[192]             d0"),
        ("sum", "[]"),
        ("cat", "[8, 6, 8]         - d1 d2"),
        ("unsqueeze", "[4, 1, 6, 8]      d0 - d2 d3"),
        ("kron", "[16, 36, 64]"),
        ("conv1d", "[4, 4, 6]"),
        ("conv2d", "[2, 4, 4, 6]      n o s0 s1"),
        ("upsample_nearest2d", "[2, 4, 12, 16]    d0 d1 - -"),
        ("index_put", "[4, 6, 8]         i0 i1 i2"),
        ("multinomial", "[4, 2]            i0 -"),
        ("gather", "[4, 3, 8]         i0 at i2"),
        ("maximum", "[4, 6, 8]         "),
    ],
)
def test_a_result_has_the_shape_that_torch_gives(op, result):
    page = rules(op).stdout
    assert f"\n  result     {result}" in page
    assert "operators  not shown" not in page


def test_an_example_is_a_call_that_torch_takes():
    """Of operators with two operands the example has both, also where a pending sum passes through neither."""
    for op in ("maximum", "eq", "atan2", "where", "bitwise_and"):
        assert "operators  not shown" not in rules(op).stdout


@pytest.mark.parametrize(
    ("op", "said"),
    [("zeros", "read as R, I or P"), ("randn", "cut like the shard"), ("arange", "the same on every rank")],
)
def test_the_page_of_what_is_made_of_no_operand_says_what_its_result_is(op, said):
    page = rules(op).stdout
    assert said in page
    assert "operand is refused" not in page
    assert "no call with tensors" not in page


@pytest.mark.parametrize("op", ["cuda", "xpu", "mtia"])
def test_a_copy_to_a_device_that_torch_was_built_without_has_a_page_without_its_operators(op, monkeypatch):
    def not_built(*_, **__):
        raise AssertionError(f"Torch not compiled with {op} enabled")

    monkeypatch.setattr(torch.Tensor, op, not_built)
    ran = rules(op)
    assert ran.exit_code == 0, ran.output
    assert "operators  not shown: no call with tensors like these runs on a CPU" in ran.output
