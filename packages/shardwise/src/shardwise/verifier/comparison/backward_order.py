"""Which wrong gradient does backward compute first? Those before it are right, so the mistake lies between them and it.

Gradients enter an optimizer in the order of its parameters, which says nothing of where a mistake is. Backward meets
parameters in the reverse of the order in which the forward pass first uses them:

    used       embed, layer 0, layer 1, head
    gradients  wrong, wrong,   right,   right        first in backward: that of layer 0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardwise.interop.running.recording import Draw, Key, Record, Use
from shardwise.mesh.axis import MeshAxis

from ..distance.numbers import Against, FirstInBackward, ValueDisagreement
from .clipped_gradients import clipped_among

Judged = Sequence[tuple[Key, object]]


def first_in_backward(
    judged: Judged, runs: Sequence[Mapping[Key, Record | Draw]], axes: Mapping[MeshAxis, str] | None = None
) -> FirstInBackward | None:
    """The first in the step of the first wrong gradient; None where nobody watched the uses of parameters.

    ``judged``  the verdicts on gradients.
    ``axes``    of the mesh, with their names.
    ``runs``    of the ranks. Orders of uses are those of the first rank that has a gradient; of several such ranks, as
                of the stages of a pipeline, the last is looked at, which is nearest to the loss.
    """
    step = min((key.nth for key, verdict in judged if isinstance(verdict, ValueDisagreement)), default=0)
    found: list[tuple[int, Use, Key, object]] = []
    for key, verdict in judged:
        rank = next((rank for rank, run in enumerate(runs) if key in run), None)
        record = None if rank is None else runs[rank][key]
        if rank is not None and key.nth == step and isinstance(record, Record) and record.use is not None:
            found.append((rank, record.use, key, verdict))
    clipped = clipped_among([one[3] for one in found if isinstance(one[3], ValueDisagreement)], axes)
    wrong = [one for one in found if isinstance(one[3], ValueDisagreement) and one[3] not in clipped]
    if not wrong:
        return None
    rank, use, _, first = max(wrong, key=lambda one: (one[0], one[1].order))
    assert isinstance(first, ValueDisagreement), "it has been chosen from those"
    right = [(one[1].order, one[2].name) for one in found if one[0] == rank and one[1].order > use.order]
    if first.against is Against.RANKS and not any(verdict == "equal" for *_, verdict in found):
        return None  # a sum over ranks is missing, behind all of backward
    equal = {one[2].name for one in found if one[3] == "equal"}
    return FirstInBackward(first, use.location, tuple(name for _, name in sorted(right) if name in equal))
