"""The sharding of an einsum, forward and backward, and why: the mental arithmetic of sharding, by machine.

Per mesh axis, from labels alone (Law 7.2): a kept label that is sharded must be sharded in every operand
that carries it and the others are replicate; a contracted one that is sharded in all its carriers leaves a pending sum;
nothing else is valid. The gradient of an operand is the same kind of einsum with that operand's labels and the
result's swapped, so the same rule derives every backward sharding; what it must come to is the operand's dual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardwise.diagnostics.errors import SpmdTypeError, SpmdValueError
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import I, P, PerMeshAxisLocalSpmdType, R, V
from shardwise.types.spec import partition_spec_get_shard, spec_of
from shardwise.types.tensor_type import TensorType

from ..schema import OpRule
from .call_types import propagate
from .dim_labels import Labelling
from .einsum_equation import read
from .local import Refusal
from .operand import Bound
from .placer import Scope

_EXAMPLE = ('shardwise einsum "sbi,io->sbo" "s@dp" "o@tp"',)
_PRODUCT = OpRule("einsum", "equation *operands", "^operands", law="a product is linear in each factor")


@dataclass(frozen=True, slots=True)
class Placing:
    """A placement along one axis, in terms of labels: ``label`` is the sharded one, else ``placement`` is R, I or P."""

    placement: PerMeshAxisLocalSpmdType
    label: str = ""

    def __str__(self) -> str:
        return f"S({self.label})" if self.label else repr(self.placement)

    @property
    def dual(self) -> Placing:
        """The gradient's placement."""
        return self if self.label else Placing(self.placement.backward_type())


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the answer: a tensor (``operand 1``, ``gradient of result``), its placement, and why."""

    tensor: str
    labels: str
    placing: Placing | None
    why: str


@dataclass(frozen=True, slots=True)
class EinsumVerdict:
    """What one axis comes to; ``refused`` says why it comes to nothing (``planner.repairs`` has the ways out)."""

    axis: str
    forward: tuple[Line, ...]
    backward: tuple[Line, ...] = ()
    refused: str = ""
    code: str = ""


class Einsum:
    """An einsum equation with one letter per dim, and what its operands are along every axis."""

    def __init__(self, equation: str) -> None:
        try:
            parsed = read(equation) if "." not in equation else None
        except SpmdTypeError as error:
            raise SpmdValueError(error.message, help=_EXAMPLE) from None
        if parsed is None:
            raise SpmdValueError(f"{equation!r} is not an einsum equation with one letter per dim", help=_EXAMPLE)
        if not any(parsed.inputs):
            raise SpmdValueError(
                f"no operand of {equation!r} has letters, so none has a dim that an axis could cut", help=_EXAMPLE
            )
        self.operands, self.result = parsed.labels([len(term) for term in parsed.inputs])
        repeated = [term for term in self.operands if len(set(term)) < len(term)]
        if repeated:
            raise SpmdValueError(
                f"the term {''.join(repeated[0])!r} repeats a label, so it takes a diagonal: take that first, and "
                "write the equation of what is left, each label once in a term"
            )

    def judge(self, axis: str, placings: Sequence[Placing]) -> EinsumVerdict:
        """The verdict along one axis for these placements of the operands."""
        forward = [
            Line(f"operand {at + 1}", "".join(labels), placing, "given")
            for at, (labels, placing) in enumerate(zip(self.operands, placings, strict=True))
        ]
        outcome = derive(self.operands, self.result, placings)
        if isinstance(outcome, Refusal):
            why = _explain_refusal(outcome, self.operands, placings)
            return EinsumVerdict(axis, tuple(forward), refused=why, code=outcome.code)
        result, why = outcome
        forward.append(Line("result", "".join(self.result), result, why))
        return EinsumVerdict(axis, tuple(forward), tuple(self._backward(placings, result)))

    def _backward(self, placings: Sequence[Placing], result: Placing) -> list[Line]:
        lines = [Line("gradient of result", "".join(self.result), result.dual, f"the dual of {result}")]
        for at, labels in enumerate(self.operands):
            others = [one for position, one in enumerate(self.operands) if position != at]
            beside = [one for position, one in enumerate(placings) if position != at]
            wanted = placings[at].dual
            why = _explain_gradient(labels, self.result, others, beside, result.dual, wanted)
            lines.append(Line(f"gradient of operand {at + 1}", "".join(labels), wanted, why))
        return lines


_AXIS = MeshAxis.of(2, 1)
"""The mesh axis of every question: what it comes to is the same along all."""


def _type(labels: Sequence[str], placing: Placing) -> TensorType:
    spec = spec_of(_AXIS if label == placing.label else None for label in labels)
    return TensorType.of({_AXIS: placing.placement}, spec)


def derive(
    operands: Sequence[Sequence[str]], result: Sequence[str], placings: Sequence[Placing]
) -> tuple[Placing, str] | Refusal:
    """The result's placement and the reason, or why there is none."""
    labelling = Labelling(tuple(tuple(labels) for labels in operands), (tuple(result),))
    rule = replace(_PRODUCT, labels=lambda call: labelling)
    bound = [
        Bound("operands", _type(labels, placing), at, grad=True, shape=(-1,) * len(labels))
        for at, (labels, placing) in enumerate(zip(operands, placings, strict=True))
    ]
    outcome = propagate(rule, bound, None, True, scope=Scope())
    if outcome.refusals:
        return outcome.refusals[0].refusal
    place, shard = outcome.type.get(_AXIS), partition_spec_get_shard(outcome.type.spec, _AXIS)
    label = next((placing.label for placing in placings if placing.label), "")
    if not label:
        return Placing(place), _LOCAL_REASONS[place]
    if shard is None:
        return Placing(place), f"{label} is contracted and sharded: every rank has the sum over its own {label}"
    carriers = sum(label in labels for labels in operands)
    kind = "in all operands that carry it" if carriers > 1 else "and only one operand carries it"
    return Placing(V, label), f"{label} is kept, sharded {kind}"


_LOCAL_REASONS: Mapping[PerMeshAxisLocalSpmdType, str] = {
    R: "the same inputs on every rank",
    I: "one computation that every rank repeats",
    P: "linear in the pending operand, the others are replicate",
}


def _explain_refusal(refusal: Refusal, operands: Sequence[Sequence[str]], placings: Sequence[Placing]) -> str:
    named = [f"operand {at + 1}" for at in refusal.culprits]
    if refusal.code == "SW401":
        dims = ", ".join(f"{name} is {placings[at]}" for name, at in zip(named, refusal.culprits, strict=True))
        return f"different labels are sharded over one axis: {dims}"
    if refusal.code == "SW402":
        label = next(placing.label for placing in placings if placing.label)
        return f"{' and '.join(named)} has the whole of {label}, of which the others have a piece"
    if refusal.code == "SW111":
        return f"{' and '.join(named)} are both pending: (a0 + a1) * (b0 + b1) is not a0*b0 + a1*b1"
    if refusal.code == "SW110":
        return f"{' and '.join(named)} is pending and meets an operand that varies"
    if refusal.code == "SW101":
        return f"{' and '.join(named)} is invariant and meets an operand that is not: its gradient would be an addend"
    return refusal.reason


def _explain_gradient(
    labels: Sequence[str],
    result: Sequence[str],
    others: Sequence[Sequence[str]],
    beside: Sequence[Placing],
    seed: Placing,
    wanted: Placing,
) -> str:
    """Why the gradient, an einsum of the others with the result's gradient, comes to the dual of the operand."""
    terms = ",".join("".join(term) for term in [*others, result])
    swapped = f"{terms}->{''.join(labels)}"
    if wanted.placement is I and not wanted.label:
        return f"{swapped}: everything is invariant"
    derived = derive([*others, tuple(result)], tuple(labels), [*beside, seed])
    if isinstance(derived, Refusal):
        return f"{swapped}: a vector-Jacobian product is linear in the result's gradient, which is {seed}"
    return f"{swapped}: {derived[1]}"
