"""The registry of op rules, assembled once and looked up by canonical name.

A name may be prefixed where torch gives one name to functions that differ: ``torch.embedding`` takes its operands in
another order than ``nn.functional.embedding``, whose rule has the plain name; ``Tensor.where`` likewise. A caller tries
the prefixed name first. An in-place name that has no rule of its own has the rule of the name without the underscore.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from dataclasses import replace

from .operators import (
    attention,
    backward,
    casting,
    contraction,
    control_flow,
    convolution,
    elementwise,
    fourier,
    indexing,
    linear_algebra,
    losses,
    masked,
    metadata,
    normalisation,
    opaque,
    optimizer,
    reduction,
    shaping,
    value_reads,
)
from .operators import factories as factory
from .operators import random_ops as random
from .operators.dims import all_labels
from .propagation.dim_labels import Labeller
from .schema import OpRule

_MODULES: tuple[types.ModuleType, ...] = (
    elementwise,
    casting,
    contraction,
    convolution,
    reduction,
    masked,
    losses,
    shaping,
    indexing,
    attention,
    normalisation,
    fourier,
    linear_algebra,
    backward,
    factory,
    random,
    value_reads,
    metadata,
    optimizer,
    control_flow,
    opaque,
)


def lookup(name: str) -> OpRule | None:
    """The rule of the operator with canonical name ``name``; None if there is none."""
    table = _table()
    rule = table.get(name)
    if rule is None and name.endswith("_") and not name.endswith("__"):
        rule = table.get(name[:-1])
    return rule


def all_rules() -> tuple[OpRule, ...]:
    """Every rule, in the order of the modules."""
    return tuple(rule for module in _MODULES for rule in module.RULES)


def modules() -> dict[str, tuple[OpRule, ...]]:
    """The rules of every module, by the module's own name."""
    return {module.__name__.rpartition(".")[2]: module.RULES for module in _MODULES}


@functools.cache
def _table() -> dict[str, OpRule]:
    return assemble(label(all_rules(), all_labels()))


def label(rules: tuple[OpRule, ...], labels: Mapping[str, Labeller]) -> tuple[OpRule, ...]:
    """The rules with their labels; labels for a name that has no rule are refused."""
    stray = sorted(set(labels) - {rule.op for rule in rules})
    if stray:
        raise ValueError(f"labels for operators without a rule: {', '.join(stray)}")
    return tuple(replace(rule, labels=labels[rule.op]) if rule.op in labels else rule for rule in rules)


def assemble(rules: tuple[OpRule, ...]) -> dict[str, OpRule]:
    """Rules by every name they answer to; two rules for one name are refused."""
    table: dict[str, OpRule] = {}
    for rule in rules:
        for name in (rule.op, *rule.spellings):
            if name in table:
                raise ValueError(f"{name!r} has two rules: {table[name].op!r} and {rule.op!r}")
            table[name] = rule
    return table
