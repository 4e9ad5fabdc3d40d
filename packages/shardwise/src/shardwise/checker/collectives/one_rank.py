"""Which rank has what ``reduce`` has summed up? Broadcast from any other, an addend goes to all of them.

After ``reduce(x, dst)`` the value is whole on one rank, and on the others whatever the back end has left there. What
is then written into the tensor is another value, of which nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from shardwise.diagnostics.source import user_location
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.tensors.own_references import by_tensor
from shardwise.interop.torch_compat import no_torch_function, writes_of
from shardwise.mesh.axis import MeshAxis

from ..diagnosis.collective_findings import sent_by_another_rank
from ..state.session import CheckSession


@dataclass(frozen=True, slots=True)
class Reduced:
    """The ``rank`` of ``axis`` has the whole value since the reduce at ``location``.

    ``writes``  how often the tensor had been written by then.
    """

    axis: MeshAxis
    rank: int
    writes: int
    location: SourceLocation | None


_reduced: Any = by_tensor()


def note_reduced(axis: MeshAxis, tensor: torch.Tensor, given: Mapping[str, object]) -> None:
    """``tensor`` has been reduced to the rank that the arguments ``given`` name."""
    rank = _rank_in(given, "dst")
    with no_torch_function():
        writes = writes_of(tensor)
        if rank is not None and writes is not None:
            _reduced[tensor] = Reduced(axis, rank, writes, user_location())


def check_sender(session: CheckSession, axis: MeshAxis, tensor: torch.Tensor, given: Mapping[str, object]) -> None:
    """Report a broadcast from another rank than the one to which the value was reduced. Errors: SW201."""
    with no_torch_function():
        known: Reduced | None = _reduced.pop(tensor, None)
        changed = known is not None and writes_of(tensor) != known.writes
    sender = _rank_in(given, "src")
    if known is None or changed or known.axis != axis or sender in (None, known.rank):
        return
    located = LocatedCall("broadcast", [("tensor", tensor)])
    said = sent_by_another_rank(located.name(0), axis, sender, known.rank, known.location)
    report(session, located, said, axis, operands=[located.operand(0, axis)])


def _rank_in(given: Mapping[str, object], name: str) -> int | None:
    """The rank inside the group that an argument says, as a rank of the job or of the group; None if none does."""
    own, everywhere = given.get(f"group_{name}"), given.get(name)
    if isinstance(own, int):
        return own
    group = given.get("group") or dist.group.WORLD
    if not isinstance(everywhere, int) or not isinstance(group, dist.ProcessGroup):
        return None
    try:
        return dist.get_group_rank(group, everywhere)
    except (ValueError, RuntimeError):  # torch says of a rank outside the group what there is to say
        return None
