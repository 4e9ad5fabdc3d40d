"""Is a hand-written rule true? ``rulecheck`` runs the function on simulated ranks and compares numbers."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from shardwise.checker.typing_rules.protocol import TypingRuleCall
from shardwise.verifier.rulecheck.check import RuleCheckError, RuleCheckReport, check_rule

__all__ = ["RuleCheckError", "RuleCheckReport", "rulecheck"]


def rulecheck(
    cls: type,
    args: Sequence[object],
    placements: Mapping[str, object] | None = None,
    *,
    mesh: Mapping[str, int] | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    local_tensor_mode: bool = False,
) -> RuleCheckReport | None:
    """Test ``cls.spmd_typecheck`` numerically, forward and backward.

    ``args``        global tensors and the other arguments of ``cls.apply``; a string that names a mesh axis stands for
                    the process group of that axis. Tensors may be in lists, tuples and dicts; their names are then
                    written like ``"pair[0]"``.
    ``placements``  argument -> mesh axis -> R, I, P or S(i) (or an ``SpmdType``), for every axis; None: try all that
                    are plausible and report which the rule admits.
    ``mesh``        axis -> size, outermost first. Needed with ``placements``; else two ranks of one axis.
    ``local_tensor_mode``  run a function with process groups, on a thread per rank; none may be initialised yet.

    Returns a report, or None for explicit placements.
    Errors: RuleCheckError if the numbers refute the rule or nothing was checked, ``SpmdTypeError`` if the rule rejects
    explicit placements, TypeError for a wrong call.

    Example:
        >>> class Twice(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return 2 * x
        ...     @staticmethod
        ...     def backward(ctx, gradient):
        ...         return 2 * gradient
        ...     @staticmethod
        ...     def spmd_typecheck(*, x):
        ...         return rules.convert(x, "tp", src=P, dst=P)
        >>> rulecheck(Twice, (torch.ones(4, requires_grad=True),), {"x": {"tp": P}}, mesh={"tp": 2})
    """
    make_rule = functools.partial(TypingRuleCall, local=False, strict=True)
    return check_rule(
        cls, args, placements, make_rule, mesh=mesh, rtol=rtol, atol=atol, local_tensor_mode=local_tensor_mode
    )
