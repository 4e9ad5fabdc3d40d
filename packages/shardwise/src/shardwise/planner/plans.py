"""What a plan is: steps that take a tensor from one type to another, with the bytes and the time of each. Pure data.

Everything that prints or draws a plan reads these values; nothing here searches.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardwise._pictured import Pictured
from shardwise.types.tensor_type import TensorType

MEETING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})
"""Ops in which ranks wait for each other; the others are local."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One collective or local step.

    ``op``        all_reduce, all_gather, reduce_scatter, all_to_all, or the local ones: convert, scale.
    ``axes``      the mesh axes that it runs over, outermost first; several are one flattened axis.
    ``dim``       the tensor dim that it gathers, cuts or takes pieces off; None if it concerns none, or several.
    ``src``, ``dst``        the whole type before and after it.
    ``before``, ``after``   the local shape before and after it, of the rank that holds most.
    ``bytes``     what one rank receives, of the rank that receives most.
    ``messages``  how many it receives one after another.
    ``time``      seconds, by the cost model.
    ``factor``    what a ``scale`` multiplies by; 1 for every other op.
    """

    op: str
    axes: tuple[object, ...]
    src: TensorType
    dst: TensorType
    before: tuple[int, ...]
    after: tuple[int, ...]
    dim: int | None = None
    bytes: int = 0
    messages: int = 0
    time: float = 0.0
    factor: float = 1.0

    @property
    def is_collective(self) -> bool:
        """Ranks wait for each other in it."""
        return self.op in MEETING


@dataclass(frozen=True, slots=True)
class Plan(Pictured):
    """Steps that take a tensor of global ``shape`` from type ``src`` to type ``dst``.

    Example:
        >>> from shardwise.planner.route import plan
        >>> dp, tp = MeshAxis.of(2, 4), MeshAxis.of(4, 1)
        >>> types = TensorType.of({dp: R, tp: P}), TensorType.of({dp: R, tp: R})
        >>> [step.op for step in plan((3,), "float32", *types).steps]
        ['all_reduce']
    """

    shape: tuple[int, ...]
    dtype: str
    src: TensorType
    dst: TensorType
    steps: tuple[PlanStep, ...]

    @property
    def bytes(self) -> int:
        """What one rank receives."""
        return sum(step.bytes for step in self.steps)

    @property
    def time(self) -> float:
        """Seconds, one step after another."""
        return sum(step.time for step in self.steps)

    @property
    def collectives(self) -> tuple[PlanStep, ...]:
        """The steps in which ranks wait for each other."""
        return tuple(step for step in self.steps if step.is_collective)

    @property
    def largest(self) -> int:
        """The elements of the largest local tensor on the way, the operand included."""
        return max((_numel(shape) for step in self.steps for shape in (step.before, step.after)), default=0)


@dataclass(frozen=True, slots=True)
class RejectedPlan:
    """Another way to the same type, what it is called, and why it was not taken."""

    name: str
    why: str
    plan: Plan | None = None


def _numel(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
