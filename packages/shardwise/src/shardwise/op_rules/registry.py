"""The registry of op rules, assembled once and looked up by canonical name.

A name may be prefixed where torch gives one name to functions that differ: ``torch.embedding`` takes its operands in
another order than ``nn.functional.embedding``, whose rule has the plain name; ``Tensor.where`` likewise. A caller tries
the prefixed name first. An in-place name that has no rule of its own has the rule of the name without the underscore.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from . import derived
from .operators import (
    attention,
    casting,
    contraction,
    control_flow,
    convolution,
    elementwise,
    factories,
    fourier,
    gathering,
    indexing,
    inspection,
    joining,
    linear_algebra,
    lookups,
    losses,
    masked,
    normalisation,
    optimizer,
    random_ops,
    recurrent,
    reduction,
    repeating,
    scans,
    slicing,
    sparse_quantised,
    views,
)
from .schema import OpRule

_FAMILIES = (
    elementwise,
    casting,
    contraction,
    convolution,
    reduction,
    scans,
    masked,
    losses,
    views,
    slicing,
    repeating,
    joining,
    indexing,
    gathering,
    lookups,
    attention,
    normalisation,
    recurrent,
    fourier,
    linear_algebra,
    factories,
    random_ops,
    inspection,
    optimizer,
    control_flow,
    sparse_quantised,
)


def lookup(name: str) -> OpRule | None:
    """The rule of the operator with canonical name ``name``; None if there is none."""
    table = _table()
    rule = table.get(name)
    if rule is None and name.endswith("_") and not name.endswith("__"):
        rule = table.get(name[:-1])
    return rule


def all_rules() -> tuple[OpRule, ...]:
    """Every rule, in the order of the families."""
    return tuple(rule for rules in families().values() for rule in rules)


@functools.cache
def families() -> dict[str, tuple[OpRule, ...]]:
    """The rules of every family, by the name of its module; what torch tags as pointwise fills up the first."""
    found = {family.__name__.rpartition(".")[2]: family.RULES for family in _FAMILIES}
    written = assemble(rule for rules in found.values() for rule in rules)
    return found | {"elementwise": (*elementwise.RULES, *elementwise.tagged(written))}


@functools.cache
def _table() -> dict[str, OpRule]:
    return assemble(all_rules())


def assemble(rules: Iterable[OpRule]) -> dict[str, OpRule]:
    """Rules by every name they answer to, torch's own aliases included; two rules for one name are refused."""
    table: dict[str, OpRule] = {}
    for rule in rules:
        for name in (rule.op, *rule.spellings):
            if name in table:
                raise ValueError(f"{name!r} has two rules: {table[name].op!r} and {rule.op!r}")
            table[name] = rule
    for op, aliases in derived.ALIASES.items():
        if op in table:
            table |= {alias: table[op] for alias in aliases if alias not in table}
    return table
