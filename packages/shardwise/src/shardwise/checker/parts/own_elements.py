"""A rank's own samples taken one by one, and the positions at which it finds something: right, and of no global type.

for boxes, goal in zip(model(images), goals)     as many samples as a rank has, whatever is computed of each
row, slot = torch.where(chosen == expert)        positions in the rank's own rows, by which it reads these rows

One device has other samples there and other positions, so nothing that global types could say is true of them. Whether
it is meant is seen in no line: a recurrence over a sequence that is cut takes it apart in the same way. So it is no
finding, nothing is claimed of the result, and the run says that it has not judged it. ``unbind`` with names for what it
gives stays refused: there is one number of them on any mesh.
"""

from __future__ import annotations

import sys
from types import FrameType

import torch

from shardwise.diagnostics.finding import in_brackets
from shardwise.diagnostics.source import user_location
from shardwise.op_rules.propagation.call_types import Outcome

from ..call.arguments import Op
from ..state.session import CheckSession

_NEEDED_WHOLE = "SW405"
_FINDING = frozenset(["nonzero", "argwhere", "torch.where"])


def takes_own_elements(session: CheckSession, op: Op, values: list[object], outcome: Outcome) -> bool:
    """True if all that is refused is that elements along a sharded dim are told apart; noted as not judged."""
    if session.local or session.strict or any(one.refusal.code != _NEEDED_WHOLE for one in outcome.refusals):
        return False
    if op.rule.op == "unbind":
        if not _is_iterated():
            return False
        what = "the samples of a shard one by one"
    elif op.rule.op in _FINDING and len(values) == 1:
        what = f"the positions that {op.name} finds in a shard"
    else:
        return False
    said = f"what is computed of {what}, which each rank counts from 0{in_brackets(user_location())}"
    session.own_elements[said] = None
    return True


def _is_iterated() -> bool:
    """A loop asks for the elements: torch calls ``unbind`` for it."""
    iterating = torch.Tensor.__iter__.__code__
    frame: FrameType | None = sys._getframe(2)
    own = __name__.partition(".")[0]
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == own:
        frame = frame.f_back
    return frame is not None and frame.f_code is iterating
