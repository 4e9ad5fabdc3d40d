"""A mean over tokens of which some are ignored: how many the other ranks ignore, one rank's run does not show.

``cross_entropy`` leaves out targets of ``ignore_index`` and divides by the number of the others. The ranks' means are a
pending average only if each rank has as many of them, so where a run meets such a target its mean has no type.
"""

from __future__ import annotations

import torch

from shardwise.diagnostics.source import user_location
from shardwise.interop.running.recording import has_values
from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import no_torch_function
from shardwise.types.placement import UNKNOWN

from ..call.arguments import Op
from ..state.session import CheckSession
from .ordinary import Handler

IGNORING = frozenset(
    {"cross_entropy", "nll_loss", "cross_entropy_loss", "nll_loss_nd", "nll_loss2d", "linear_cross_entropy"}
)
"""The losses that leave targets out, by the names of their rules."""
_LOST = "the mean over targets of which some are ignored: the other ranks may ignore more or fewer"


def ignoring(op: Op, handler: Handler) -> Handler:
    """``handler``, whose mean is of no known type if targets of this call are ignored."""

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        result = handler(session, func, args, kwargs)
        if session.local or not isinstance(result, torch.Tensor) or (tag := tag_of(result)) is None:
            return result
        type = tag.current()
        averaged = [axis for axis in type.partial_axes if type.exponent(axis) == 1]
        if averaged and _ignores(dict(op.arguments(args, kwargs))):
            set_tag(result, Tag(type.with_placements(dict.fromkeys(averaged, UNKNOWN)), tag.origin))
            session.lose(_LOST, user_location())
        return result

    return handle


def _ignores(given: dict[str, object]) -> bool:
    """A target of the call is one that it leaves out."""
    target, index = given.get("target"), given.get("ignore_index", -100)
    if not isinstance(target, torch.Tensor) or not isinstance(index, int) or target.is_floating_point():
        return False
    with no_torch_function():
        return has_values(target) and bool(torch.eq(target, index).any())
