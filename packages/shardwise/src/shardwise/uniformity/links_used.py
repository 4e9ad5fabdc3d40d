"""Over which axis does a call of a rank run? A collective over that of its group, a message over the one that joins two
ranks.

Messages are mostly sent over the default group, in which every rank has a number, so the group says nothing of their
way: the mesh does, or the groups with names that the program has made.
Worked case, ranks 0 to 7 of the mesh dp=2, tp=4: from rank 1 to rank 2 a message goes over tp, to rank 5 over dp, and
to rank 4 over both, {dp,tp}.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shardwise.mesh.axis import MeshAxis, flatten_axes
from shardwise.mesh.layout import layout_of_ranks
from shardwise.mesh.names import DEFAULT_GROUP

from .calls import Trace, TracedCall, TracedGroup


@dataclass(frozen=True)
class KnownAxes:
    """What is known of the axes along which ranks are joined.

    ``mesh``    those of one mesh, independent of each other.
    ``groups``  of groups with names, by name: they may be any.
    """

    mesh: tuple[MeshAxis, ...]
    groups: dict[str, MeshAxis]

    @classmethod
    def of(cls, traces: Iterable[Trace], mesh: Iterable[MeshAxis] = ()) -> KnownAxes:
        """Of the groups that calls ran over, beside a mesh."""
        groups: dict[str, MeshAxis] = {}
        for trace in traces:
            for event in trace.events:
                if isinstance(event, TracedCall) and event.group.name not in ("", DEFAULT_GROUP, *groups):
                    axis = axis_of(event.group)
                    if axis is not None:
                        groups[event.group.name] = axis
        return cls(tuple(mesh), groups)

    def used(self, call: TracedCall, rank: int) -> MeshAxis | None:
        """The axis over which a call of ``rank`` runs; None if its ranks are none, and then it may use any link."""
        joined = self._joining(rank, call.peer) if call.is_message and call.peer is not None else None
        return axis_of(call.group) if joined is None else joined

    def _joining(self, one: int, other: int) -> MeshAxis | None:
        """The axis of the mesh along which two ranks lie; if it takes several, a group's that has both, or all of these
        as one. None if what is known does not lead from one to the other.
        """
        apart = [axis for axis in self.mesh if axis.layout.offset(one) != axis.layout.offset(other)]
        known = _leads(apart, one, other)
        if known and len(apart) == 1:
            return apart[0]
        both = [axis for axis in self.groups.values() if _leads([axis], one, other)]
        if both:
            return min(both, key=MeshAxis.size)
        return flatten_axes(tuple(apart)) if known and apart else None


def axis_of(group: TracedGroup) -> MeshAxis | None:
    """The axis of the ranks of a group; None if they are none."""
    layout = layout_of_ranks(group.ranks)
    return None if layout is None else MeshAxis(layout)


def _leads(axes: Iterable[MeshAxis], one: int, other: int) -> bool:
    """Whether steps along these axes lead from one rank to the other."""
    return sum(axis.layout.offset(other) - axis.layout.offset(one) for axis in axes) == other - one
