"""What was found of one call of an autograd function: the typings along the axis of its collectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardwise.mesh.axis import MeshAxis

from .public_transitions import PublicTransition
from .simulated_ranks.replay import IssuedCollective


@dataclass(frozen=True, order=True)
class Typing:
    """One admissible typing along the axis: a letter for each operand and each result."""

    operands: str
    results: str


@dataclass(frozen=True)
class FunctionTransition:
    """What was found of one call.

    ``axis``     of its collectives; None if it issues none.
    ``ways``     the typings for which backward is the partner of forward.
    ``scaled``   for a number: those for which it is, but for this factor.
    ``issued``, ``backward``  the collectives of forward, and of backward.
    ``unclear``  why nothing is said against it; empty: without a way it is wrong.
    ``like``     the public calls whose forward does the same, and what backward does: of a function of one tensor.
    ``never_waited``  an asynchronous collective whose handle nobody waits for, and nobody has.
    """

    axis: MeshAxis | None = None
    ways: frozenset[Typing] = frozenset()
    scaled: Mapping[float, frozenset[Typing]] = field(default_factory=dict)
    forward: tuple[IssuedCollective, ...] = ()
    backward: tuple[IssuedCollective, ...] = ()
    unclear: str = ""
    like: tuple[PublicTransition, ...] = ()
    backward_like: tuple[PublicTransition, ...] = ()
    never_waited: IssuedCollective | None = None

    @property
    def is_local(self) -> bool:
        """Neither forward nor backward communicates."""
        return self.axis is None and not self.unclear
