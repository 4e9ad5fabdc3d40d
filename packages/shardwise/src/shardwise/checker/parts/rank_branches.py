"""Terms that ranks add by their number: ``if rank == 0: y = y + bias`` before a sum counts the bias once.

The run of one rank shows that a term which all ranks have is added to a pending sum, and not that the others leave it
out. Where a comparison of a number that differs along the axis decides about that line, it is no finding; what comes of
it has no type, and that is listed.
"""

from __future__ import annotations

from shardwise.diagnostics.deciding_lines import deciding_lines
from shardwise.diagnostics.source import is_internal, user_frame, user_location
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.propagation.call_types import Outcome

from ..state.session import CheckSession

_ADDED_PER_RANK = "SW113"


def is_added_by_number(session: CheckSession, outcome: Outcome) -> bool:
    """True if all that is refused are terms that a rank adds or not by its number; then that is listed."""
    axes = {one.axis for one in outcome.refusals if isinstance(one.axis, MeshAxis)}
    if not all(one.refusal.code == _ADDED_PER_RANK for one in outcome.refusals):
        return False
    if not axes or not all(_is_decided(session, axis) for axis in axes):
        return False
    session.lose("the type of what ranks add or leave out by their number", user_location())
    return True


def _is_decided(session: CheckSession, axis: MeshAxis) -> bool:
    """Does a comparison of numbers that differ along ``axis`` decide about the running line, or one that called it?"""
    compared = session.compared.get(axis, set())
    frame = user_frame(1)
    while frame is not None and compared:
        file = frame.f_code.co_filename
        if not is_internal(frame.f_code) and any(
            (file, line) in compared
            for first, last in deciding_lines(file, frame.f_lineno)
            for line in range(first, last + 1)
        ):
            return True
        frame = frame.f_back
    return False
