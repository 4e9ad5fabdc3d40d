"""Op rules that a program declares for kernels that PyTorch does not know."""

from __future__ import annotations

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown

from . import registry as table
from .schema import OpRule

_rules: dict[str, OpRule] = {}


def register_rule(op: str, params: str, linear: str = "", law: str = "declared by the program") -> None:
    """Declare how the operator ``op`` types: a deterministic function of its operands that does not communicate.

    ``op``      the name that SW301 gives it: ``"mylib.my_kernel"`` for ``torch.ops.mylib.my_kernel``.
    ``params``  its parameters in positional order, as in ``OpRule``: ``"x weight dim"``.
    ``linear``  how partial operands may enter: ``"x weight"`` for a product, ``"x + bias"`` for a sum, ``"out + src"``
                for an accumulation. Empty: never.

    Nothing is checked of this: it is listed among what a run trusts. A sharded dim is not followed through it in
    global mode. Errors: SW304 (a ValueError) for a malformed rule and for an operator that has a rule already.

    Example:
        >>> register_rule("mylib.scaled_product", "x weight", linear="x weight")
    """
    for name, value in (("op", op), ("params", params), ("linear", linear), ("law", law)):
        if not isinstance(value, str):
            raise SpmdArgumentError(f"register_rule takes {name} as text, got {shown(value)}", code="SW304")
    try:
        rule = OpRule(op, params, linear=linear, law=law if linear else "", source="program")
    except ValueError as error:
        raise SpmdValueError(str(error), code="SW304") from None
    if table.lookup(op) is not None:
        raise SpmdValueError(f"the registry has a rule for {op!r}", code="SW304")
    if _rules.setdefault(op, rule) != rule:
        raise SpmdValueError(f"{op!r} has been declared with another rule: {_rules[op].params!r}", code="SW304")


def lookup(op: str) -> OpRule | None:
    """The rule that the program has declared for ``op``."""
    return _rules.get(op)
