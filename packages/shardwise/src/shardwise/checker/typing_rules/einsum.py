"""``rules.einsum``: the type of a contraction that a typing rule describes by an equation, of tensors and stand-ins.

Propagation is asked as for an operator. Along a global axis the equation decides: a label is sharded wherever it
appears, its axis shards no other label, an operand without the label does not vary over it, and a label that the result
does not carry leaves a pending sum. Along every other axis the operands follow the local rule, with the linearity that
``linear_in`` declares. Source: docs/semantics.md sections 3 and 7, Law 7.2.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError
from shardwise.diagnostics.source import user_site
from shardwise.interop.tensors.tagging import Origin, set_type
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import CurrentMesh, current_entry
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.propagation.call_types import AxisRefusal, propagate
from shardwise.op_rules.propagation.dim_labels import Fate, Labelling
from shardwise.op_rules.propagation.einsum_equation import PLAIN, Labels, read
from shardwise.op_rules.propagation.local import Given, Refusal, local_rule
from shardwise.op_rules.propagation.operand import Bound
from shardwise.op_rules.propagation.placer import Scope
from shardwise.op_rules.schema import OpRule
from shardwise.types.placement import P
from shardwise.types.spec import entry_axes
from shardwise.types.tensor_type import UNKNOWN_TYPE, Ground, TensorType

from .ndim import NdimWithSpmdType
from .operands import (
    can_receive_gradient,
    check_operand,
    is_global,
    is_local_mode,
    is_strict,
    name_of,
    owner,
    sorted_axes,
    type_here,
    without_local_axes,
)


@dataclass(frozen=True)
class EinsumOperand:
    """One operand: a label per dim, its type on the current mesh, and what to call it.

    ``summable``  the axes along which it varies and may be read as a partial sum.
    """

    name: str
    labels: Labels
    type: TensorType
    grad: bool
    summable: frozenset[MeshAxis]

    def entries(self) -> Sequence[object]:
        """How every dim is sharded over global axes."""
        return without_local_axes(self.type.spec) or (None,) * len(self.labels)

    def label_over(self, axis: MeshAxis) -> str | None:
        """The label of the dim that ``axis`` shards, or None."""
        entries = zip(self.labels, self.type.spec or (), strict=False)
        return next((label for label, entry in entries if axis in entry_axes(entry)), None)


def einsum(equation: str, *operands: Any, linear_in: Sequence[object] = (), out: Any = None) -> object:
    """The type of the contraction ``equation`` of ``operands``, as a stand-in, or on ``out`` if that is given.

    ``linear_in``  which operands the described function is linear in: ``(0, 1)`` in each of them separately,
                   ``((0, 1),)`` in both jointly. Without it no operand may be a partial sum.
    Errors: TypeError for a malformed equation or operand, SW304 for a wrong number of dims, SW305 for operand types
    that the equation does not admit.

    Example:
        >>> x = assert_type(NdimWithSpmdType(2), R)
        >>> w = assert_type(NdimWithSpmdType(2), {"dp": R, "tp": S(1)})
        >>> einsum("ij,jk->ik", x, w)
        NdimWithSpmdType(ndim=2, {dp: R, tp: V})
    """
    parsed = read(equation, explicit=True)
    for operand in operands:
        check_operand(operand, "einsum")
    labels, output = parsed.labels([operand.ndim for operand in operands])
    linear = _linear_law(linear_in, len(operands))
    mesh = current_entry()
    bound = []
    for at, (operand, its_labels) in enumerate(zip(operands, labels, strict=True)):
        name = name_of(operand, f"operand {at}")
        summable: frozenset[MeshAxis] = getattr(operand, "summable", frozenset())
        type = type_here(operand, name, mesh)
        bound.append(EinsumOperand(name, its_labels, type, can_receive_gradient(operand), summable))
    rule = _rule(linear, bound, output)
    type = _result(parsed.text, bound, rule, mesh)
    sums = frozenset(axis for axis in type.axes if type.is_varying(axis) and _is_sum(axis, bound, output, rule))
    if out is None:
        return NdimWithSpmdType.of(len(output), type, described=f"einsum({parsed.text!r})", summable=sums)
    if out.ndim != len(output):
        raise SpmdTypeError(
            f"{owner()} says that {parsed.text!r} has {len(output)} dims, but out has {out.ndim}", code="SW304"
        )
    check_operand(out, "einsum")
    set_type(out, type, Origin(user_site(), f"from {owner()}") if isinstance(out, torch.Tensor) else None)
    return out


def _linear_law(linear_in: Sequence[Any], count: int) -> str:
    """The declared linearity as a polynomial over the parameters x0, x1, ..; a group is a sum, groups are factors."""
    groups = [(group,) if isinstance(group, int) else tuple(group) for group in linear_in]
    flat = [position for group in groups for position in group]
    if not all(isinstance(position, int) and 0 <= position < count for position in flat):
        raise SpmdArgumentError(
            f"linear_in={tuple(linear_in)!r} must name operands by their positions 0 to {count - 1}", code="SW304"
        )
    if len(set(flat)) != len(flat):
        raise SpmdArgumentError(f"linear_in={tuple(linear_in)!r} names an operand twice", code="SW304")
    products = [" ".join(f"x{position}" for position in choice) for choice in itertools.product(*groups)]
    return " + ".join(product for product in products if product)


def _rule(linear: str, operands: Sequence[EinsumOperand], output: Labels) -> OpRule:
    """The op rule of the described function. What it contracts is summed, whatever it is said to be linear in."""
    plain = {f"{PLAIN}{at}.{dim}" for at, one in enumerate(operands) for dim in range(len(one.labels))}
    rows = tuple(
        tuple(f"{PLAIN}{at}.{dim}" if label == PLAIN else label for dim, label in enumerate(one.labels))
        for at, one in enumerate(operands)
    )
    result = tuple(f"{PLAIN}.{dim}" if label == PLAIN else label for dim, label in enumerate(output))
    contracted = {label for row in rows for label in row} - set(result) - plain
    fates = {**dict.fromkeys(contracted, Fate.TOTAL), **dict.fromkeys(plain, Fate.OPAQUE)}
    labelling = Labelling(rows, (result,), fates, dict.fromkeys(plain, PLAIN))
    params = " ".join(f"x{at}" for at in range(len(operands)))
    return OpRule("einsum", params, linear=linear, law="declared by linear_in", labels=lambda call: labelling)


def _result(text: str, operands: Sequence[EinsumOperand], rule: OpRule, mesh: CurrentMesh | None) -> TensorType:
    """The result's type. Errors: SW103, SW305, SW408 for the first thing that is wrong."""
    if any(operand.type.ground is Ground.UNKNOWN for operand in operands):
        return UNKNOWN_TYPE
    if is_strict():
        axes = {axis for operand in operands for axis in operand.type.axes} | (mesh.axes if mesh is not None else set())
        for axis in sorted_axes(axes):
            for operand in operands:
                if axis not in operand.type and (operand.grad or not operand.type.ground.is_constant):
                    raise _missing(text, axis, operand)
    scope = None if is_local_mode() else Scope(mesh.local_axes if mesh is not None else frozenset())
    bound = [_bound(at, operand) for at, operand in enumerate(operands)]
    outcome = propagate(rule, bound, mesh, is_strict(), scope=scope)
    if outcome.refusals:
        raise _refused(text, operands, outcome.refusals[0])
    return outcome.type.with_ground(Ground.ABSENT)


def _bound(at: int, operand: EinsumOperand) -> Bound:
    shape = (-1,) * len(operand.labels)  # no law here asks for sizes
    return Bound(f"x{at}", operand.type, None, operand.grad, operand.name, shape)


def _is_sum(axis: MeshAxis, operands: Sequence[EinsumOperand], output: Labels, rule: OpRule) -> bool:
    """True if a result that varies over a local axis may be read as a partial sum."""
    return not is_global(axis) and (_contracts_varying(axis, operands, output) or _keeps_sum(axis, operands, rule))


def _contracts_varying(axis: MeshAxis, operands: Sequence[EinsumOperand], output: Labels) -> bool:
    """True if some label may be sharded over ``axis`` and summed: the operands that vary are those that carry it."""
    contracted = {label for operand in operands for label in operand.labels if label != PLAIN} - set(output)
    return any(
        all(operand.type.is_varying(axis) == (label in operand.labels) for operand in operands) for label in contracted
    )


def _keeps_sum(axis: MeshAxis, operands: Sequence[EinsumOperand], rule: OpRule) -> bool:
    """True if every operand that varies may be read as a partial sum, and the result is one then."""
    givens = [
        Given(f"x{at}", P if axis in operand.summable else operand.type.get(axis), None, operand.grad)
        for at, operand in enumerate(operands)
        if axis in operand.type
    ]
    return local_rule(rule, givens) is P


def _missing(text: str, axis: MeshAxis, operand: EinsumOperand) -> SpmdTypeError:
    return SpmdTypeError(
        f"the type of {operand.name} says nothing about {axis!r}, which is in play in {text!r}",
        code="SW103",
        help=(f"assert_type({operand.name}, {{{axis_argument(axis)}: R}}) where it is made (or I, V, P, S(i))",),
    )


def _refused(text: str, operands: Sequence[EinsumOperand], found: AxisRefusal) -> SpmdTypeError:
    """What to say of a refusal."""
    axis, refusal = found.axis, found.refusal
    # The local rule counts the operands that say something about the axis.
    places = found.positions or range(len(operands))
    culprits, others = ([operands[places[at]] for at in each] for each in (refusal.culprits, refusal.others))
    if refusal.code == "SW408":
        name = culprits[0].name
        return SpmdTypeError(
            f"{name} varies over {axis!r}, but no dim of it is sharded over {axis!r}",
            code="SW408",
            help=(f"assert_type({name}, {{{axis_argument(axis)}: S(0)}}) with its dim, where it is made",),
        )
    sharded = is_global(axis) and any(operand.label_over(axis) is not None for operand in operands)
    if found.givens and not sharded:
        return _refused_locally(text, axis, culprits, others, found)
    said = _unlike(text, operands) or _beside_shard(text, axis, operands, culprits[0])
    return SpmdTypeError(said, code="SW305")


def _unlike(text: str, operands: Sequence[EinsumOperand]) -> str:
    """What is sharded in one operand and otherwise in another, or must not be sharded at all; empty if nothing is."""
    first: dict[str, EinsumOperand] = {}
    for operand in operands:
        for label, entry in zip(operand.labels, operand.entries(), strict=True):
            if label == PLAIN and entry is not None:
                return (
                    f"{operand.name} is sharded over {_axes(entry)} on a dim that {text!r} writes '_', which must not "
                    f"be sharded"
                )
            other = first.setdefault(label, operand)
            known = other.entries()[other.labels.index(label)]
            if label != PLAIN and known != entry:
                return (
                    f"label {label!r} of {text!r} is {_sharding(known)} in {other.name} but {_sharding(entry)} in "
                    f"{operand.name}; a label is sharded the same way wherever it appears"
                )
    return ""


def _axes(entry: object) -> str:
    axes = entry_axes(entry)
    return repr(axes[0]) if len(axes) == 1 else "(" + ", ".join(map(repr, axes)) + ")"


def _sharding(entry: object) -> str:
    return "not sharded" if entry is None else f"sharded over {_axes(entry)}"


def _beside_shard(text: str, axis: MeshAxis, operands: Sequence[EinsumOperand], culprit: EinsumOperand) -> str:
    """Why the axis cannot shard what it does; an operand without the label must be used differently by each rank."""
    over = [(label, one.name) for one in operands if (label := one.label_over(axis)) is not None]
    for label, name in over[1:]:
        if label != over[0][0]:
            return (
                f"{axis!r} shards label {over[0][0]!r} in {over[0][1]} and label {label!r} in {name} of {text!r}; an "
                f"axis shards one label only"
            )
    return (
        f"label {over[0][0]!r} of {text!r} is sharded over {axis!r}, but {culprit.name}, which does not carry it, is "
        f"{culprit.type.get(axis)!r} over {axis!r}; it must be R"
    )


def _refused_locally(
    text: str, axis: MeshAxis, culprits: Sequence[EinsumOperand], others: Sequence[EinsumOperand], found: AxisRefusal
) -> SpmdTypeError:
    named = " and ".join(one.name for one in culprits)
    beside = ", ".join(f"{one.name} ({one.type.get(axis)!r})" for one in others)
    said = _LOCALLY.get(found.refusal.code, _LOCALLY["SW112"]).format(named, beside, repr(axis), repr(text))
    return SpmdTypeError(f"{owner()}: {said}", code="SW305", help=_linear_help(found.givens, found.refusal))


_LOCALLY = {
    "SW101": "{0}, invariant over {2}, is mixed with {1} in {3}",
    "SW110": "{0}, partial over {2}, is combined with {1}, varying, in {3}",
    "SW111": "{0} are both partial over {2} and {3} multiplies them",
    "SW112": "{0} is partial over {2}, and {3} is not declared to be linear in it",
    "SW113": "{1} is partial over {2} and {0} is not, but linear_in says they are added in {3}",
}


def _linear_help(givens: Sequence[Given], refusal: Refusal) -> tuple[str, ...]:
    """The ``linear_in`` under which the partial operands would be admitted."""
    partial = [int(given.param[1:]) for given in givens if given.placement is P]
    if refusal.code not in ("SW112", "SW114") or not partial:
        return ()
    written = f"({partial[0]},)" if len(partial) == 1 else f"(({', '.join(map(str, partial))}),)"
    return (f"linear_in={written}, if the function is linear in {'it' if len(partial) == 1 else 'them jointly'}",)
