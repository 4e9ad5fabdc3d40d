"""What is the type of a contraction that a rule describes by an equation? ``rules.einsum``, for tensors and stand-ins.

Along a global axis the equation decides: a label is sharded wherever it appears, its axis shards no other label, an
operand without the label does not vary over it, and a label that the result does not carry leaves a pending sum.
Along every other axis the operands follow the local rule, with the linearity that ``linear_in`` declares.
Source: docs/semantics.md sections 3 and 7, Law 7.2.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.tagging import Origin, set_type
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.propagation.local import Given, Refusal, Weak, local_rule
from shardwise.op_rules.schema import OpRule
from shardwise.types.errors import SpmdArgumentError, SpmdTypeError
from shardwise.types.placement import UNKNOWN, I, P, Placement, V
from shardwise.types.spec import PartitionSpec, entry_axes
from shardwise.types.tensor_type import UNKNOWN_TYPE, Ground, TensorType

from .equation import PLAIN, label_dims, parse
from .ndim import NdimWithSpmdType
from .operands import can_receive_gradient, check_operand, is_global, is_strict, name_of, owner, sorted_axes, type_here


@dataclass(frozen=True)
class EinsumOperand:
    """One operand: a label per dim, its type on the current mesh, and what to call it.

    ``summable``  the axes along which it varies and may be read as a partial sum.
    """

    name: str
    labels: tuple[str, ...]
    type: TensorType
    grad: bool
    summable: frozenset[Any]

    def label_over(self, axis: Any) -> str | None:
        """The label of the dim that ``axis`` shards, or None."""
        for label, entry in zip(self.labels, self.type.spec or (), strict=False):
            if axis in entry_axes(entry):
                return label
        return None


def einsum(equation: str, *operands: Any, linear_in: Sequence[Any] = (), out: Any = None) -> Any:
    """The type of the contraction ``equation`` of ``operands``, as a stand-in, or on ``out`` if that is given.

    ``linear_in``  which operands the described function is linear in: ``(0, 1)`` in each of them separately,
                   ``((0, 1),)`` in both jointly. Without it no operand may be a partial sum.
    Errors: TypeError for a malformed equation or operand, SW304 for a wrong number of dims, SW305 for operand types
    that the equation does not admit.
    """
    parsed = parse(equation)
    for operand in operands:
        check_operand(operand, "einsum")
    labels, output = label_dims(parsed, [operand.ndim for operand in operands])
    rule = _rule(linear_in, len(operands))
    entry = current_entry()
    bound = []
    for at, (operand, its_labels) in enumerate(zip(operands, labels, strict=True)):
        name = name_of(operand, f"operand {at}")
        summable: frozenset[Any] = getattr(operand, "summable", frozenset())
        type = type_here(operand, name, entry)
        bound.append(EinsumOperand(name, its_labels, type, can_receive_gradient(operand), summable))
    type, sums = _result(parsed.text, bound, output, rule)
    if out is None:
        return NdimWithSpmdType.of(len(output), type, described=f"einsum({parsed.text!r})", summable=sums)
    if out.ndim != len(output):
        raise SpmdTypeError(
            f"{owner()} says that {parsed.text!r} has {len(output)} dims, but out has {out.ndim}", code="SW304"
        )
    check_operand(out, "einsum")
    set_type(out, type, Origin(user_site(), f"from {owner()}") if isinstance(out, torch.Tensor) else None)
    return out


def _rule(linear_in: Sequence[Any], count: int) -> OpRule:
    """The declared linearity as an op rule over the parameters x0, x1, ..; a group is a sum, groups are factors."""
    groups = [(group,) if isinstance(group, int) else tuple(group) for group in linear_in]
    flat = [position for group in groups for position in group]
    if not all(isinstance(position, int) and 0 <= position < count for position in flat):
        raise SpmdArgumentError(
            f"linear_in={tuple(linear_in)!r} must name operands by their positions 0 to {count - 1}", code="SW304"
        )
    if len(set(flat)) != len(flat):
        raise SpmdArgumentError(f"linear_in={tuple(linear_in)!r} names an operand twice", code="SW304")
    products = [" ".join(f"x{position}" for position in choice) for choice in itertools.product(*groups)]
    return OpRule(
        "einsum",
        " ".join(f"x{position}" for position in range(count)),
        linear=" + ".join(product for product in products if product),
        law="declared by linear_in",
    )


def _result(
    text: str, operands: Sequence[EinsumOperand], output: tuple[str, ...], rule: OpRule
) -> tuple[TensorType, frozenset[Any]]:
    """The result's type, and the axes along which it varies and may be read as a partial sum."""
    if any(operand.type.ground is Ground.UNKNOWN for operand in operands):
        return UNKNOWN_TYPE, frozenset()
    sharded = _shared_entries(text, operands)
    entry = current_entry()
    axes = {axis for operand in operands for axis in operand.type.axes}
    if entry is not None and is_strict():
        axes |= entry.axes
    placements: dict[Any, Placement] = {}
    summable = set()
    for axis in sorted_axes(axes):
        if is_global(axis) and any(operand.type.is_varying(axis) for operand in operands):
            place: Placement | None = _along_global(text, axis, operands, output)
        else:
            place = _along_local(text, axis, operands, rule)
            if place is V and (_contracts_varying(axis, operands, output) or _keeps_sum(axis, operands, rule)):
                summable.add(axis)
        if place is not None:
            placements[axis] = place
    entries = [sharded.get(label) for label in output]
    spec = PartitionSpec(*entries) if any(entry is not None for entry in entries) else None
    return TensorType.of(placements, spec), frozenset(summable)


def _shared_entries(text: str, operands: Sequence[EinsumOperand]) -> dict[str, Any]:
    """Label -> how it is sharded over global axes; every operand with the label must agree."""
    found: dict[str, tuple[Any, str]] = {}
    for operand in operands:
        spec = operand.type.spec
        entries = spec.without({a for a in spec.axes_with_partition_spec() if not is_global(a)}) if spec else None
        for label, entry in zip(operand.labels, entries or (None,) * len(operand.labels), strict=True):
            if label == PLAIN:
                if entry is not None:
                    raise SpmdTypeError(
                        f"{operand.name} is sharded over {_axes(entry)} on a dim that {text!r} writes '_', which must "
                        f"not be sharded",
                        code="SW305",
                    )
                continue
            known, first = found.setdefault(label, (entry, operand.name))
            if known != entry:
                raise SpmdTypeError(
                    f"label {label!r} of {text!r} is {_sharding(known)} in {first} but {_sharding(entry)} in "
                    f"{operand.name}; a label is sharded the same way wherever it appears",
                    code="SW305",
                )
    return {label: entry for label, (entry, _) in found.items() if entry is not None}


def _axes(entry: Any) -> str:
    axes = entry_axes(entry)
    return repr(axes[0]) if len(axes) == 1 else "(" + ", ".join(map(repr, axes)) + ")"


def _sharding(entry: Any) -> str:
    return "not sharded" if entry is None else f"sharded over {_axes(entry)}"


def _along_global(text: str, axis: Any, operands: Sequence[EinsumOperand], output: tuple[str, ...]) -> Placement:
    """Some operand varies over the global ``axis``: which label does it shard, and does the result carry it?"""
    if any(operand.type.get(axis) is UNKNOWN for operand in operands):
        return UNKNOWN
    used: dict[str, str] = {}
    for operand in operands:
        if operand.type.is_varying(axis):
            label = operand.label_over(axis)
            if label is None:
                raise SpmdTypeError(
                    f"{operand.name} varies over {axis!r}, but no dim of it is sharded over {axis!r}",
                    code="SW408",
                    help=(
                        f"assert_type({operand.name}, {{{axis_argument(axis)}: S(0)}}) with its dim, where it is made",
                    ),
                )
            used.setdefault(label, operand.name)
    if len(used) > 1:
        (one, here), (other, there), *_ = used.items()
        raise SpmdTypeError(
            f"{axis!r} shards label {one!r} in {here} and label {other!r} in {there} of {text!r}; an axis shards one "
            f"label only",
            code="SW305",
        )
    (label,) = used
    for operand in operands:
        place = operand.type.get(axis)
        if label not in operand.labels and place is not None and place is not V:
            _refuse_beside_shard(text, axis, label, operand, place)
        if place is None and is_strict() and not operand.type.ground.is_constant:
            raise _missing(text, axis, operand)
    return V if label in output else P


def _refuse_beside_shard(text: str, axis: Any, label: str, operand: EinsumOperand, place: Placement) -> None:
    """An operand without the sharded label must be the same on every rank, and used differently by each."""
    if place.is_partial or (place is I and operand.grad):
        raise SpmdTypeError(
            f"label {label!r} of {text!r} is sharded over {axis!r}, but {operand.name}, which does not carry it, is "
            f"{place!r} over {axis!r}; it must be R",
            code="SW305",
        )


def _along_local(text: str, axis: Any, operands: Sequence[EinsumOperand], rule: OpRule) -> Placement | None:
    """The local rule; None if no operand says anything about ``axis``."""
    givens: list[Given] = []
    present: list[EinsumOperand] = []
    for at, operand in enumerate(operands):
        place: Placement | Weak | None = operand.type.get(axis)
        if operand.type.ground.is_constant and not operand.grad:
            place = Weak.ZERO if operand.type.ground is Ground.ZERO else Weak.CONSTANT
        if place is None:
            if is_strict():
                raise _missing(text, axis, operand)
            continue
        givens.append(Given(f"x{at}", place, None, operand.grad))
        present.append(operand)
    if not givens:
        return None
    verdict = local_rule(rule, givens)
    if isinstance(verdict, Refusal):
        raise _refused(text, axis, present, givens, verdict)
    if isinstance(verdict, Weak):
        return present[0].type.get(axis) if axis in present[0].type else None
    return verdict


def _contracts_varying(axis: Any, operands: Sequence[EinsumOperand], output: tuple[str, ...]) -> bool:
    """True if some label may be sharded over ``axis`` and summed: the operands that vary are those that carry it."""
    contracted = {label for operand in operands for label in operand.labels if label != PLAIN} - set(output)
    return any(
        all(operand.type.is_varying(axis) == (label in operand.labels) for operand in operands) for label in contracted
    )


def _keeps_sum(axis: Any, operands: Sequence[EinsumOperand], rule: OpRule) -> bool:
    """True if every operand that varies may be read as a partial sum, and the result is one then."""
    givens = [
        Given(f"x{at}", P if axis in operand.summable else operand.type.get(axis), None, operand.grad)
        for at, operand in enumerate(operands)
        if axis in operand.type
    ]
    return local_rule(rule, givens) is P


def _missing(text: str, axis: Any, operand: EinsumOperand) -> SpmdTypeError:
    return SpmdTypeError(
        f"the type of {operand.name} says nothing about {axis!r}, which is in play in {text!r}",
        code="SW103",
        help=(f"assert_type({operand.name}, {{{axis_argument(axis)}: R}}) where it is made (or I, V, P, S(i))",),
    )


def _refused(
    text: str, axis: Any, operands: Sequence[EinsumOperand], givens: Sequence[Given], refusal: Refusal
) -> SpmdTypeError:
    culprits = " and ".join(operands[position].name for position in refusal.culprits)
    others = ", ".join(f"{operands[at].name} ({givens[at].place!r})" for at in refusal.others)
    if refusal.code == "SW101":
        said = f"{culprits}, invariant over {axis!r}, is mixed with {others} in {text!r}"
    elif refusal.code == "SW110":
        said = f"{culprits}, partial over {axis!r}, is combined with {others}, varying, in {text!r}"
    elif refusal.code == "SW111":
        said = f"{culprits} are both partial over {axis!r} and {text!r} multiplies them"
    elif refusal.code == "SW113":
        said = f"{others} is partial over {axis!r} and {culprits} is not, but linear_in says they are added in {text!r}"
    else:
        said = f"{culprits} is partial over {axis!r}, and {text!r} is not declared to be linear in it"
    return SpmdTypeError(f"{owner()}: {said}", code="SW305", help=_linear_help(givens, refusal))


def _linear_help(givens: Sequence[Given], refusal: Refusal) -> tuple[str, ...]:
    """The ``linear_in`` under which the partial operands would be admitted."""
    partial = [int(given.param[1:]) for given in givens if given.place is P]
    if refusal.code not in ("SW112", "SW114") or not partial:
        return ()
    written = f"({partial[0]},)" if len(partial) == 1 else f"(({', '.join(map(str, partial))}),)"
    return (f"linear_in={written}, if the function is linear in {'it' if len(partial) == 1 else 'them jointly'}",)
