"""The operators that a typing rule is composed of: what collectives and coercions do to types alone.

They take tensors or ``NdimWithSpmdType``, move no data, and answer with a stand-in, or put the type on ``out``. What a
transition does is asked of ``op_rules/transitions.py``, so a rule admits what the runtime ops admit; the expert gates
are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from shardwise.diagnostics.errors import RedistributeError, SpmdArgumentError, SpmdTypeError
from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import user_site
from shardwise.interop.annotations.annotating import asserted_type
from shardwise.interop.annotations.refining import refine
from shardwise.interop.running.typing_rule_run import current_run, see
from shardwise.interop.tensors.tagging import Origin, set_type, type_of
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import axis_argument, normalize_axis
from shardwise.op_rules.transition_types import TransitionCall, resolved, spec_after, type_after
from shardwise.op_rules.transitions import REDUCTIONS, TRANSITIONS, Transition, find_transition, letter, transition
from shardwise.types.aliases import DeviceMeshAxis
from shardwise.types.placement import P, PerMeshAxisSpmdType, Placement, Shard, V, to_local_type
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry
from shardwise.types.tensor_type import Ground, TensorType

from .einsum import einsum
from .ndim import NdimWithSpmdType
from .operands import (
    OperandRefused,
    can_receive_gradient,
    check_operand,
    is_global,
    is_unknown,
    name_of,
    owner,
    type_here,
    without_local_axes,
)

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "convert",
    "einsum",
    "ignore",
    "output",
    "reduce_scatter",
    "reinterpret",
]


TypedOperand = torch.Tensor | NdimWithSpmdType
"""What a typing rule works on: a tensor, or a stand-in that has a number of dims and a type."""


def all_reduce(
    x: TypedOperand,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType = P,
    dst: PerMeshAxisSpmdType,
    out: torch.Tensor | None = None,
) -> TypedOperand:
    """The type after summing ``x`` over ``axis``: P or V -> R or I.

    Example:
        >>> x = assert_type(NdimWithSpmdType(2), {"tp": P})
        >>> all_reduce(x, "tp", src=P, dst=R)
        NdimWithSpmdType(ndim=2, {tp: R})
    """
    return _transition("all_reduce", x, axis, src, dst, out)


def all_gather(
    x: TypedOperand,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType = V,
    dst: PerMeshAxisSpmdType,
    out: torch.Tensor | None = None,
) -> TypedOperand:
    """The type after gathering the pieces of ``x``: V or S(i) -> R or I; from V they are stacked on a new dim 0.

    Example:
        >>> x = assert_type(NdimWithSpmdType(2), {"tp": S(0)})
        >>> all_gather(x, "tp", src=S(0), dst=R)
        NdimWithSpmdType(ndim=2, {tp: R})
    """
    return _transition("all_gather", x, axis, src, dst, out)


def reduce_scatter(
    x: TypedOperand,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType = P,
    dst: PerMeshAxisSpmdType = V,
    out: torch.Tensor | None = None,
) -> TypedOperand:
    """The type after summing ``x`` and keeping a piece: P or V -> V or S(i); to V, dim 0 is unbound and goes.

    Example:
        >>> x = assert_type(NdimWithSpmdType(2), {"tp": P})
        >>> reduce_scatter(x, "tp", src=P, dst=S(0))
        NdimWithSpmdType(ndim=2, {tp: V})
    """
    return _transition("reduce_scatter", x, axis, src, dst, out)


def all_to_all(
    x: TypedOperand,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType = V,
    dst: PerMeshAxisSpmdType = V,
    out: torch.Tensor | None = None,
) -> TypedOperand:
    """The type after an exchange of pieces: V or S(i) -> V or S(j).

    Example:
        >>> x = assert_type(NdimWithSpmdType(2), {"tp": S(0)})
        >>> all_to_all(x, "tp", src=S(0), dst=S(1))
        NdimWithSpmdType(ndim=2, {tp: V})
    """
    return _transition("all_to_all", x, axis, src, dst, out)


def reinterpret(
    x: TypedOperand,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType,
    dst: PerMeshAxisSpmdType,
    out: torch.Tensor | None = None,
) -> TypedOperand:
    """The type after reading the same local tensors as something else.

    Example:
        >>> x = assert_type(NdimWithSpmdType(2), {"tp": V})
        >>> reinterpret(x, "tp", src=V, dst=P)
        NdimWithSpmdType(ndim=2, {tp: P})
    """
    return _transition("reinterpret", x, axis, src, dst, out)


def convert(
    x: TypedOperand,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType,
    dst: PerMeshAxisSpmdType,
    out: torch.Tensor | None = None,
) -> TypedOperand:
    """The type after a change of representation that keeps the value and needs no communication.

    Example:
        >>> x = assert_type(NdimWithSpmdType(2), {"tp": R})
        >>> convert(x, "tp", src=R, dst=S(0))
        NdimWithSpmdType(ndim=2, {tp: V})
    """
    return _transition("convert", x, axis, src, dst, out)


def ignore(*values: object) -> None:
    """Say that these tensors (or containers of them) do not bear on the type of the result.

    Example:
        >>> ignore(torch.ones(4), [torch.ones(2)])
    """
    for value in values:
        for leaf in tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                see(leaf)


@dataclass(frozen=True)
class RuleTransition(TransitionCall):
    """A step of a typing rule; ``name`` is the operand's."""

    name: str

    def __str__(self) -> str:
        return f"{self.op}({self.name}, {self.axis!r}, src={self.src!r}, dst={self.dst!r})"


def _transition(
    op: str,
    x: TypedOperand,
    axis: DeviceMeshAxis,
    src: PerMeshAxisSpmdType,
    dst: PerMeshAxisSpmdType,
    out: torch.Tensor | None,
) -> TypedOperand:
    check_operand(x, op)
    row = _row(op, src, dst)
    name = name_of(x, "the operand")
    resolved = normalize_axis(axis)
    if row.ndim_change < 0 and x.ndim == 0:
        raise SpmdTypeError(f"{op} to V unbinds dim 0, but {name} has no dims", code="SW206")
    ndim = x.ndim + row.ndim_change
    src, dst = _on(src, x.ndim, name), _on(dst, ndim, "the result")
    found = transition(op, src, dst, expert_mode=True)
    if isinstance(found, Diagnosis):
        assert isinstance(src, Shard), "every other pair of the table has a row"
        assert isinstance(dst, Shard), "every other pair of the table has a row"
        raise SpmdTypeError(
            f"{owner()}: convert cannot move shards from dim {src.dim} to dim {dst.dim}",
            code="SW202",
            help=(f"all_to_all({name}, {axis_argument(resolved)}, src={src!r}, dst={dst!r})",),
        )
    type, parts = _resolved(x, name, resolved)
    step = RuleTransition(op, resolved, parts, src, dst, x.ndim, op, name)
    run = current_run()
    if run is not None:
        run.steps.append((op, resolved, dst))
    if row.ndim_change < 0 and type.spec is not None and type.spec[0] is not None:
        raise SpmdTypeError(f"{owner()}: {step} unbinds dim 0, which is sharded: {type.spec!r}", code="SW305")
    if resolved.size() > 1:
        result = _after(_established(x, type, step), step)
    else:
        result = type.with_spec(spec_after(step, type.spec, cuts=False))
    if out is None:
        summable: frozenset[MeshAxis] = getattr(x, "summable", frozenset()) - set(parts)
        return NdimWithSpmdType.of(ndim, result, described=f"{op}({name})", summable=summable)
    if out.ndim != ndim:
        raise SpmdTypeError(f"{owner()} says that {step} has {ndim} dims, but out has {out.ndim}", code="SW304")
    check_operand(out, op)
    set_type(out, result, Origin(user_site(), f"{op} in {owner()}") if isinstance(out, torch.Tensor) else None)
    return out


def _row(op: str, src: object, dst: object) -> Transition:
    for value in (src, dst):
        if not letter(value):
            raise SpmdArgumentError(f"rules.{op} takes R, I, V, P or S(i) as src and dst, got {value!r}", code="SW202")
    row = find_transition(op, src, dst)
    if row is None:
        pairs = ", ".join(f"{a}->{b}" for name, a, b in TRANSITIONS if name == op)
        raise SpmdTypeError(
            f"rules.{op} cannot go from {src!r} to {dst!r}; allowed are {pairs} (S for any S(i))", code="SW202"
        )
    return row


def _on(placement: PerMeshAxisSpmdType, ndim: int, name: str) -> PerMeshAxisSpmdType:
    """``placement`` with its dim counted from the front."""
    if not isinstance(placement, Shard):
        return placement
    if not -ndim <= placement.dim < ndim:
        raise SpmdTypeError(f"{placement!r} is out of range for {name}, which has {ndim} dims", code="SW132")
    return Shard(placement.dim % ndim)


def _resolved(x: object, name: str, axis: MeshAxis) -> tuple[TensorType, tuple[MeshAxis, ...]]:
    """The operand's type, and the axes of it that make up ``axis``. Errors: SW133 if it is on another mesh."""
    type, parts = resolved(axis, type_of(x), current_entry())
    if not parts:
        type_here(x, name, current_entry())
    return (type, parts) if parts else (type_of(x), (axis,))


def _established(x: Any, type: TensorType, step: RuleTransition) -> TensorType:
    """The operand's type with ``src`` on the step's axes: found there, or asserted where nothing was known.

    Errors: SW305 if the operand is something else. V is read as P only where a contraction may have left a sum.
    """
    wanted = to_local_type(step.src)
    for part in step.axes:
        place = type.get(part)
        if place is None:
            type = refine(type, asserted_type(({part: step.src},), x.ndim), gradient_free=True)
            set_type(x, type, Origin(user_site(), f"established by {owner()}"))
            continue
        if place is wanted or is_unknown(type, part) or _reads_as(x, type, place, wanted, part):
            continue
        if step.op in REDUCTIONS and _is_addends(x, place, wanted, part):
            continue
        said = f"{owner()}: {step} expected input type {wanted!r} over {part!r}, got {place!r}"
        raise OperandRefused(said, step.name, part, place, wanted, help=_source_help(step, place))
    if isinstance(step.src, Shard):
        return _with_shard(x, type, step, step.src.dim)
    return type


def _reads_as(x: object, type: TensorType, place: Placement, wanted: Any, part: MeshAxis) -> bool:
    free = isinstance(x, torch.Tensor) and not can_receive_gradient(x)
    if free and place.is_equal and wanted.is_equal:
        return True
    if free and type.ground.is_constant and (not wanted.is_partial or type.ground is Ground.ZERO):
        return True
    # An einsum over a sharded label is P where shards are followed and V where they are not: one rule serves both.
    return wanted is P and place is V and part in getattr(x, "summable", ())


def _is_addends(x: object, place: Placement, wanted: object, part: MeshAxis) -> bool:
    """What a reduction takes is read as addends: where global types see a pending sum, local ones may see V."""
    if wanted is V:
        return place is P
    return wanted is P and place is V and isinstance(x, torch.Tensor) and not is_global(part)


def _source_help(step: RuleTransition, place: object) -> tuple[str, ...]:
    if place is V and step.src is P:
        call = f"rules.reinterpret({step.name}, {axis_argument(step.axis)}, src=V, dst=P)"
        return (f"{call} first, if the pieces are meant as addends",)
    if find_transition(step.op, place, step.dst) is not None:
        return (f"rules.{step.op}({step.name}, {axis_argument(step.axis)}, src={place!r}, dst={step.dst!r})",)
    return ()


def _with_shard(x: torch.Tensor, type: TensorType, step: RuleTransition, dim: int) -> TensorType:
    """``type`` with the claim that the step's axes shard ``dim``, innermost."""
    spec = type.spec or PartitionSpec(*[None] * x.ndim)
    for part in step.axes:
        home = next((at for at, entry in enumerate(spec) if part in entry_axes(entry)), None)
        if home not in (None, dim):
            raise SpmdTypeError(
                f"{owner()}: {step} expected input shard S({dim}) over {part!r}, got S({home})", code="SW305"
            )
        if home is None:
            if len(step.axes) > 1 or spec[dim] is not None:
                axes = (*entry_axes(spec[dim]), part)
                spec = PartitionSpec(*spec[:dim], make_entry(axes), *spec[dim + 1 :])
            else:
                type = refine(type, asserted_type(({part: step.src},), x.ndim), gradient_free=True)
                set_type(x, type, Origin(user_site(), f"established by {owner()}"))
                spec = type.spec or spec
    return type.with_spec(spec)


def _after(type: TensorType, step: RuleTransition) -> TensorType:
    """The result's type. Errors: SW305, SW410, SW412 and others where the shards cannot be followed."""
    local_axes = [part for part in step.axes if not is_global(part)]
    after = type_after(step, type, local_axes, sized=True)
    refusal = after.refusal
    if refusal is None:
        return after.type.with_spec(without_local_axes(after.type.spec))
    if refusal.code == "SW410":
        inner = next(entry_axes(entry)[-1] for entry in type.spec or () if step.axes[0] in entry_axes(entry))
        raise RedistributeError(
            f"{owner()}: {step} moves {step.axis!r}, but {inner!r} shards the same dim further in; only the innermost "
            f"axis of a dim can be moved",
            code="SW410",
        )
    if refusal.code == "SW412":
        raise SpmdTypeError(
            f"{owner()}: {step} stacks or unbinds pieces, which says nothing about a global tensor",
            code="SW412",
            help=("name the dim: S(i) in place of V",),
        )
    raise SpmdTypeError(f"{owner()}: {step}: {refusal.message}", code=refusal.code, help=refusal.help)


def output(out: object, typed: object) -> None:
    """Give the real result(s) the types of the stand-in(s); both are one, or tuples or lists of equal length.

    Errors: SW304 for another number of results or dims, SW305 where a result already has a type that contradicts.
    Example:
        >>> y = torch.ones(4)
        >>> output(y, assert_type(NdimWithSpmdType(1), {"tp": P}))
        >>> print(typeof(y))
        f32[4] {dp: R, tp: P}
    """
    if isinstance(out, (tuple, list)):
        if not isinstance(typed, (tuple, list)) or len(typed) != len(out):
            given = len(typed) if isinstance(typed, (tuple, list)) else 1
            raise SpmdTypeError(f"{owner()} gives {given} types for {len(out)} results", code="SW304")
        for one, its_type in zip(out, typed, strict=True):
            output(one, its_type)
        return
    if out is None or not isinstance(out, (torch.Tensor, NdimWithSpmdType)):
        return
    if not isinstance(typed, (torch.Tensor, NdimWithSpmdType)):
        raise SpmdTypeError(
            f"{owner()} gives {typed!r} for a result that is a tensor, expected an NdimWithSpmdType or a tensor",
            code="SW304",
        )
    if typed.ndim != out.ndim:
        raise SpmdTypeError(f"{owner()} gives {typed.ndim} dims for a result that has {out.ndim}", code="SW304")
    try:
        merged = refine(type_of(out), type_of(typed), gradient_free=False)
    except SpmdTypeError as error:
        raise SpmdTypeError(f"{owner()}: a result has another type already: {error.message}", code="SW305") from None
    set_type(out, merged, Origin(user_site(), f"from {owner()}"))
