"""The registry is whole and well formed: a rule for every public operator, one rule per name, laws that are stated."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import pytest
import torch
from torch.overrides import get_overridable_functions, get_testing_overrides

from shardwise.interop.calls.op_names import op_name
from shardwise.op_rules.registry import all_rules, assemble, lookup
from shardwise.op_rules.schema import Kind, OpRule

from .exceptions import NEWER

KERNELS = (
    *("miopen_*", "fbgemm_*", "quantized_*_cell", "quantized_*_pool?d", "quantized_batch_norm"),
    *("choose_qparams_optimized", "_rowwise_prune", "_wrapped_*", "_*_copy", "slice_inverse"),
    "_sparse_mask_projection",
)
"""In torch's tables, and called by no program: kernels of one library, of quantised modules, of compiled code."""
NO_RULE = {"__get__"}
"""A property whose getter does not say its name, ``__cuda_array_interface__``."""


def public_functions() -> list[Callable[..., Any]]:
    found = {function for functions in get_overridable_functions().values() for function in functions}
    found |= set(get_testing_overrides())
    # The raw collectives have their own table, op_rules/transitions.py.
    return [each for each in found if not (getattr(each, "__module__", None) or "").startswith("torch.distributed")]


def test_every_public_function_has_a_rule_or_a_reason():
    functions = public_functions()
    assert len(functions) > 1300
    # PyTorch lists them once, which may have been inside a check that had something else in the place of one.
    without = {each.__name__ for each in functions if op_name(inspect.unwrap(each)).find(lookup) is None}
    assert {name for name in without if not any(fnmatchcase(name, kernels) for kernels in KERNELS)} == NO_RULE
    assert all(any(fnmatchcase(name, kernels) for name in without) for kernels in KERNELS)


OPERATORS = {"rdiv", "rpow", "rmatmul", "rremainder", "rfloor_divide", "getitem", "setitem"}
"""Reflected and indexing operators, named after their dunders."""
HIDDEN = {"_set_grad_enabled"}
"""What a function of torch calls under another name when a mode is watching."""


def test_every_name_in_the_registry_is_a_name_in_torch():
    homes = (torch, torch.Tensor, torch.nn.functional, torch.nn.init, torch.ops.aten, torch.ops.higher_order)
    unknown = set()
    for name in (name for rule in all_rules() for name in (rule.op, *rule.spellings)):
        bare = name.removeprefix("torch.")
        if not any(_has(home, spelled) for home in homes for spelled in (bare, f"{bare}_")):
            unknown.add(name)
    assert unknown == OPERATORS | HIDDEN | {
        name.removeprefix("nn.functional.") for name in NEWER if not _has(torch, name)
    }


def _has(home: Any, dotted: str) -> bool:
    for part in dotted.split("."):
        try:
            home = getattr(home, part)
        except (AttributeError, RuntimeError):
            return False
    return True


def test_two_rules_for_one_name_are_refused():
    with pytest.raises(ValueError, match="'plus' has two rules: 'add' and 'sum'"):
        assemble((OpRule("add", spellings=("plus",)), OpRule("sum", spellings=("plus",))))
    with pytest.raises(ValueError, match="'add' has two rules"):
        assemble((OpRule("add"), OpRule("sum", spellings=("add",))))


def test_a_law_may_only_name_parameters_and_must_be_explained():
    with pytest.raises(ValueError, match=r"names \['other'\], not in params"):
        OpRule("f", "input", "input other", law="why")
    with pytest.raises(ValueError, match=r"names \['other'\], not in params"):
        OpRule("f", "input ~other", "input other", law="a template takes no part")
    with pytest.raises(ValueError, match="one-line reason"):
        OpRule("f", "input", "input")


@pytest.mark.parametrize("rule", [rule for rule in all_rules() if rule.linear], ids=lambda rule: rule.op)
def test_a_linear_rule_says_why_and_where_from(rule: OpRule):
    assert rule.law
    assert rule.source
    assert set(rule.static) <= {name.lstrip("*~") for name in rule.parameters}, "a static parameter that never binds"


def test_a_guard_or_a_draw_reads_only_static_parameters():
    for rule in all_rules():
        if rule.draws is not None:
            assert rule.kind is Kind.RANDOM, rule.op
            assert rule.static, rule.op


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("add_", "add"),
        ("masked_fill_", "masked_fill"),
        ("copy_", "copy_"),
        ("zero_", "zero_"),
        ("fill_", "fill_"),
        ("uniform_", "uniform_"),
        ("requires_grad_", "requires_grad_"),
        ("subtract", "sub"),
        ("T", "t"),
        ("data", "detach"),
        ("torch.embedding", "torch.embedding"),
    ],
)
def test_a_name_finds_its_rule(name: str, op: str):
    rule = lookup(name)
    assert rule is not None
    assert rule.op == op


@pytest.mark.parametrize("name", ["no_such_operator", "no_such_operator_", "__len", "_"])
def test_an_unknown_name_finds_nothing(name: str):
    assert lookup(name) is None


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Kind.CONSTANT, "ones full arange eye linspace ones_like new_ones tril_indices hann_window tensor as_tensor"),
        (Kind.ZERO, "zeros zeros_like new_zeros zero_"),
        (Kind.EMPTY, "empty empty_like new_empty empty_strided from_numpy"),
        (Kind.RANDOM, "rand randn randn_like normal_ uniform_ bernoulli multinomial dropout randperm rrelu"),
        (Kind.VALUE, "item tolist numpy __bool__ __int__ __float__ __index__ __complex__ equal allclose is_nonzero"),
        (
            Kind.METADATA,
            "shape grad requires_grad __repr__ __format__ data_ptr register_hook is_same_size is_floating_point numel"
            " size stride dim __len__ get_device untyped_storage is_contiguous retain_grad requires_grad_",
        ),
        (Kind.OPTIMIZER, "_foreach_add_ _foreach_addcdiv_ _foreach_lerp_ _foreach_norm _fused_adamw_ _foreach_sqrt"),
        (Kind.PURE, "relu softmax nonzero unique masked_select argmax any isnan where add real T getitem"),
    ],
)
def test_operators_are_of_their_kind(kind: Kind, names: str):
    kinds = {name: rule.kind for name in names.split() if (rule := lookup(name)) is not None}
    assert kinds == dict.fromkeys(names.split(), kind)


COPIES = "clone add cat gather index_select flip repeat contiguous float tril"
VIEWS = (
    "view reshape transpose T mT permute narrow select getitem split chunk unbind expand squeeze unsqueeze diagonal"
    " unfold movedim swapaxes as_strided view_as real imag detach data flatten unflatten view_as_real tensor_split"
)


@pytest.mark.parametrize("name", VIEWS.split())
def test_a_view_is_marked_as_one(name: str):
    rule = lookup(name)
    assert rule is not None
    assert rule.view


@pytest.mark.parametrize("name", COPIES.split())
def test_a_copy_is_no_view(name: str):
    rule = lookup(name)
    assert rule is not None
    assert not rule.view


@pytest.mark.parametrize(
    ("name", "static", "reason"),
    [
        ("to", {"dtype": torch.float16, "dtypes": {"input": "float32"}}, None),
        ("to", {"other": torch.int32, "dtypes": {"input": "float32"}}, "rounds"),
        ("to", {"other": torch.bool, "dtypes": {"input": "int64"}}, "zero"),
        ("to", {"other": "cuda", "dtypes": {"input": "float32"}}, None),
        ("to", {"other": torch.int32, "dtypes": {"input": "int64"}}, None),
        ("to", {"dtypes": {"input": "float32", "other": "int64"}}, "rounds"),
        ("to", {"other": torch.zeros(1, dtype=torch.int64), "dtypes": {"input": "float32"}}, "rounds"),
        ("to", {}, None),
        ("type", {"dtype": "torch.cuda.LongTensor"}, "rounds"),
        ("type", {"dtype": torch.IntTensor}, "rounds"),
        ("type", {"dtype": torch.FloatTensor}, None),
        ("long", {"dtypes": {"input": "float32"}}, "rounds"),
        ("char", {"dtypes": {"input": "float64"}}, "rounds"),
        ("long", {"dtypes": {"input": "int32"}}, None),
        ("sum", {"dtype": torch.int64, "dtypes": {"input": "float32"}}, "rounds"),
        ("sum", {"dtype": torch.float64, "dtypes": {"input": "float32"}}, None),
        ("cumsum", {"dtype": torch.int64, "dtypes": {"input": "float32"}}, "rounds"),
        ("div", {"rounding_mode": "floor"}, "rounds"),
        ("div", {"rounding_mode": None}, None),
        ("scatter", {"reduce": "multiply"}, "not a sum"),
        ("scatter", {"reduce": "add"}, None),
        ("scatter_reduce", {"reduce": "amax"}, "not a sum"),
        ("embedding", {"max_norm": 1.0}, "rescales"),
        ("embedding", {"max_norm": None}, None),
        ("embedding_bag", {"mode": "max"}, "not a sum"),
        ("embedding_bag", {}, None),
        ("layer_norm", {"dtypes": {"input": "float32", "bias": "float32"}}, "without a weight"),
        ("layer_norm", {"dtypes": {"input": "float32", "weight": "float32", "bias": "float32"}}, None),
        ("batch_norm", {"training": True, "partial": {"input"}}, "own statistics"),
        ("batch_norm", {"training": True, "partial": {"weight", "bias"}}, None),
        ("batch_norm", {"partial": {"input"}}, None),
        ("instance_norm", {"partial": {"input", "bias"}}, "own statistics"),
        ("nll_loss", {"partial": {"weight"}}, "divides by the weights"),
        ("nll_loss", {"partial": {"weight"}, "reduction": "sum"}, None),
        ("nll_loss", {"partial": {"input"}}, None),
        ("cross_entropy", {"partial": {"target"}, "dtypes": {"target": "int64"}}, "class numbers"),
        ("cross_entropy", {"partial": {"target"}, "dtypes": {"target": "float32"}}, None),
        ("cross_entropy", {"label_smoothing": 0.1, "dtypes": {"target": "float32"}}, "adds the same"),
        ("linalg.lstsq", {"A": torch.zeros(5, 3)}, "residuals"),
        ("linalg.lstsq", {"A": torch.zeros(3, 3)}, None),
        ("alpha_dropout", {"training": True}, "constant"),
        ("alpha_dropout", {"training": False}, None),
    ],
)
def test_a_guard_says_when_the_law_fails(name: str, static: dict[str, Any], reason: str | None):
    rule = lookup(name)
    assert rule is not None
    assert rule.guard is not None
    found = rule.guard(static)
    assert (found is None) if reason is None else (found is not None and reason in found)


@pytest.mark.parametrize(
    ("name", "static", "draws"),
    [
        ("dropout", {}, True),
        ("dropout", {"p": 0.0}, False),
        ("dropout", {"training": False}, False),
        ("torch.dropout", {"p": 0.1, "train": True}, True),
        ("torch.dropout", {"p": 0.1, "train": False}, False),
        ("alpha_dropout", {}, False),
        ("rrelu", {}, False),
        ("rrelu", {"training": True}, True),
        ("scaled_dot_product_attention", {}, False),
        ("scaled_dot_product_attention", {"dropout_p": 0.1}, True),
        ("multi_head_attention_forward", {"dropout_p": 0.1, "training": False}, False),
        ("lstm", {"num_layers": 2, "dropout": 0.5, "train": True, "bidirectional": False}, True),
        ("lstm", {"num_layers": 2, "dropout": 0.5, "train": False, "bidirectional": True}, False),
        ("lstm", {"num_layers": True, "dropout": 2, "train": 0.5, "bidirectional": True}, True),
        ("lstm", {"num_layers": True, "dropout": 2, "train": 0.0, "bidirectional": True}, False),
    ],
)
def test_a_random_operator_knows_when_it_draws_nothing(name: str, static: dict[str, Any], draws: bool):
    rule = lookup(name)
    assert rule is not None
    assert rule.draws is not None
    assert rule.draws(static) is draws


@pytest.mark.processes
def test_the_registry_loads_without_torch():
    code = "import sys, shardwise.op_rules.registry as t; t.lookup('add'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
