"""What is left of a rank's own addend once the result of all ranks is taken from it: its own, and no mistake.

Compression with error feedback keeps ``grad - sent`` for the next step, where ``sent`` is what all ranks have made of
these gradients; the noise of gradients is measured by ``grad - mean``. At that line an addend of a pending sum meets
what is equal on all ranks, as where a decay is added before the sum; that it is taken away, and was made of the same
gradient, tells the two apart. What comes of it has no type, and that is listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.diagnostics.source import user_location
from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.tensors.tagging import tag_of
from shardwise.op_rules.propagation.call_types import Outcome
from shardwise.op_rules.propagation.local import Refusal

from ..state.session import CheckSession

_ADDED_PER_RANK = "SW113"
DIFFERENCES = ("sub", "rsub")
"""The operators of which it is asked."""


def is_residual(session: CheckSession, values: Sequence[object], outcome: Outcome) -> bool:
    """True if all that is refused is a difference between a gradient's addend and what was summed of that gradient."""
    if not all(
        one.refusal.code == _ADDED_PER_RANK and _of_one_gradient(one.refusal, values) for one in outcome.refusals
    ):
        return False
    session.lose(
        "the type of what is left of a rank's own gradient once that of all ranks is taken away", user_location()
    )
    return True


def _of_one_gradient(refusal: Refusal, values: Sequence[object]) -> bool:
    made = [gradient_origin(tag_of(values[at])) for at in (*refusal.culprits, *refusal.others)]
    parameters = [None if one is None else one.parameter for one in made]
    return parameters[0] is not None and all(one is parameters[0] for one in parameters)
