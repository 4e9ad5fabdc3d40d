"""Which part of the registry is a rule from? Families are the modules of rules, for reports that count by subject."""

from __future__ import annotations

import functools

from shardwise.op_rules.registry import families
from shardwise.op_rules.schema import OpRule


def family(rule: OpRule) -> str:
    """The name of the module that the rule is in, in words."""
    return _by_op()[rule.op].replace("_", " ")


@functools.cache
def _by_op() -> dict[str, str]:
    return {rule.op: name for name, all_rules in families().items() for rule in all_rules}
