"""What do the collectives and coercions do to types alone? The operators that a hand-written rule is composed of.

They take tensors or ``NdimWithSpmdType``, move no data, and answer with a stand-in, or put the type on ``out``. Which
moves exist is read from ``op_rules/transitions.py``, so a rule admits what the runtime ops admit; the expert gates are
left out.
Source: api sections 3.12 and 4.13.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.annotating import asserted_type, refine
from shardwise.interop.hook_run import see
from shardwise.interop.tagging import Origin, set_type, type_of
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.axis import MeshAxis, flatten_axes
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import axis_argument, normalize_axis
from shardwise.op_rules.transitions import DEFAULTS, MOVES, find_move, letter
from shardwise.types.errors import RedistributeError, SpmdArgumentError, SpmdTypeError
from shardwise.types.placement import P, Shard, V, to_local_type
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry
from shardwise.types.tensor_type import Ground, TensorType

from .einsum import einsum
from .ndim import NdimWithSpmdType
from .operands import (
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


def all_reduce(x: Any, axis: Any, *, src: Any = DEFAULTS["all_reduce"]["src"], dst: Any, out: Any = None) -> Any:
    """The type after summing ``x`` over ``axis``: P or V -> R or I."""
    return _move("all_reduce", x, axis, src, dst, out)


def all_gather(x: Any, axis: Any, *, src: Any = DEFAULTS["all_gather"]["src"], dst: Any, out: Any = None) -> Any:
    """The type after gathering the pieces of ``x``: V or S(i) -> R or I; from V they are stacked on a new dim 0."""
    return _move("all_gather", x, axis, src, dst, out)


def reduce_scatter(
    x: Any,
    axis: Any,
    *,
    src: Any = DEFAULTS["reduce_scatter"]["src"],
    dst: Any = DEFAULTS["reduce_scatter"]["dst"],
    out: Any = None,
) -> Any:
    """The type after summing ``x`` and keeping a piece: P or V -> V or S(i); to V, dim 0 is unbound and goes."""
    return _move("reduce_scatter", x, axis, src, dst, out)


def all_to_all(
    x: Any,
    axis: Any,
    *,
    src: Any = DEFAULTS["all_to_all"]["src"],
    dst: Any = DEFAULTS["all_to_all"]["dst"],
    out: Any = None,
) -> Any:
    """The type after an exchange of pieces: V or S(i) -> V or S(j)."""
    return _move("all_to_all", x, axis, src, dst, out)


def reinterpret(x: Any, axis: Any, *, src: Any, dst: Any, out: Any = None) -> Any:
    """The type after reading the same local tensors as something else."""
    return _move("reinterpret", x, axis, src, dst, out)


def convert(x: Any, axis: Any, *, src: Any, dst: Any, out: Any = None) -> Any:
    """The type after a change of representation that keeps the value and needs no communication."""
    return _move("convert", x, axis, src, dst, out)


def ignore(*values: Any) -> None:
    """Say that these tensors (or containers of them) do not bear on the type of the result."""
    for value in values:
        for leaf in tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                see(leaf)


@dataclass(frozen=True)
class _Move:
    """One call: ``parts`` are the axes of the operand's type that make up ``axis``, outermost first."""

    op: str
    name: str
    axis: MeshAxis
    parts: tuple[MeshAxis, ...]
    src: Any
    dst: Any
    ndim: int
    ndim_out: int

    def __str__(self) -> str:
        return f"{self.op}({self.name}, {self.axis!r}, src={self.src!r}, dst={self.dst!r})"


def _move(op: str, x: Any, axis: Any, src: Any, dst: Any, out: Any) -> Any:
    check_operand(x, op)
    _check_transition(op, src, dst)
    name = name_of(x, "the operand")
    resolved = normalize_axis(axis)
    ndim = x.ndim + _ndim_change(op, name, x.ndim, src, dst)
    src, dst = _on(src, x.ndim, name), _on(dst, ndim, "the result")
    type, parts = _resolved(x, name, resolved)
    move = _Move(op, name, resolved, parts, src, dst, x.ndim, ndim)
    if op == "convert" and isinstance(src, Shard) and isinstance(dst, Shard) and src != dst:
        raise SpmdTypeError(
            f"{owner()}: convert cannot move shards from dim {src.dim} to dim {dst.dim}",
            code="SW202",
            help=(f"all_to_all({name}, {axis_argument(resolved)}, src={src!r}, dst={dst!r})",),
        )
    if resolved.size() > 1:
        type = _established(x, type, move)
        result = _after(type, move)
    else:
        result = _shifted(type, move)
    if out is None:
        summable: frozenset[Any] = getattr(x, "summable", frozenset()) - set(parts)
        return NdimWithSpmdType.of(ndim, result, described=f"{op}({name})", summable=summable)
    if out.ndim != ndim:
        raise SpmdTypeError(f"{owner()} says that {move} has {ndim} dims, but out has {out.ndim}", code="SW304")
    check_operand(out, op)
    set_type(out, result, Origin(user_site(), f"{op} in {owner()}") if isinstance(out, torch.Tensor) else None)
    return out


def _check_transition(op: str, src: Any, dst: Any) -> None:
    for value in (src, dst):
        if not letter(value):
            raise SpmdArgumentError(f"rules.{op} takes R, I, V, P or S(i) as src and dst, got {value!r}", code="SW202")
    if find_move(op, src, dst) is None:
        pairs = ", ".join(f"{a}->{b}" for name, a, b in MOVES if name == op)
        raise SpmdTypeError(
            f"rules.{op} cannot go from {src!r} to {dst!r}; allowed are {pairs} (S for any S(i))", code="SW202"
        )


def _ndim_change(op: str, name: str, ndim: int, src: Any, dst: Any) -> int:
    if op == "all_gather" and src is V:
        return 1
    if op == "reduce_scatter" and dst is V:
        if ndim == 0:
            raise SpmdTypeError(f"reduce_scatter to V unbinds dim 0, but {name} has no dims", code="SW206")
        return -1
    return 0


def _on(placement: Any, ndim: int, name: str) -> Any:
    """``placement`` with its dim counted from the front."""
    if not isinstance(placement, Shard):
        return placement
    if not -ndim <= placement.dim < ndim:
        raise SpmdTypeError(f"{placement!r} is out of range for {name}, which has {ndim} dims", code="SW132")
    return Shard(placement.dim % ndim)


def _resolved(x: Any, name: str, axis: MeshAxis) -> tuple[TensorType, tuple[MeshAxis, ...]]:
    """The operand's type, and the axes of it that make up ``axis``: itself, or smaller ones that flatten to it."""
    type = type_of(x)
    for candidate in (type, type_here(x, name, current_entry())):
        if axis in candidate:
            return candidate, (axis,)
        inside = tuple(a for a in candidate.axes if a < axis)
        if len(inside) > 1 and flatten_axes(inside) == axis:
            return candidate, inside
    return type, (axis,)


def _established(x: Any, type: TensorType, move: _Move) -> TensorType:
    """The operand's type with ``src`` on the move's axes: found there, or asserted where nothing was known.

    Errors: SW305 if the operand is something else. V is read as P only where a contraction may have left a sum.
    """
    wanted = to_local_type(move.src)
    for part in move.parts:
        place = type.get(part)
        if place is None:
            type = refine(type, asserted_type(({part: move.src},), x.ndim), gradient_free=True)
            set_type(x, type, Origin(user_site(), f"established by {owner()}"))
            continue
        if place is wanted or is_unknown(type, part) or _reads_as(x, type, place, wanted, part):
            continue
        raise SpmdTypeError(
            f"{owner()}: {move} expected input type {wanted!r} over {part!r}, got {place!r}",
            code="SW305",
            help=_source_help(move, place),
        )
    if isinstance(move.src, Shard):
        return _with_shard(x, type, move)
    return type


def _reads_as(x: Any, type: TensorType, place: Any, wanted: Any, part: MeshAxis) -> bool:
    free = isinstance(x, torch.Tensor) and not can_receive_gradient(x)
    if free and place.is_equal and wanted.is_equal:
        return True
    if free and type.ground.is_constant and (not wanted.is_partial or type.ground is Ground.ZERO):
        return True
    # An einsum over a sharded label is P where shards are followed and V where they are not: one rule serves both.
    return wanted is P and place is V and part in getattr(x, "summable", ())


def _source_help(move: _Move, place: Any) -> tuple[str, ...]:
    if place is V and move.src is P:
        call = f"rules.reinterpret({move.name}, {axis_argument(move.axis)}, src=V, dst=P)"
        return (f"{call} first, if the pieces are meant as addends",)
    if find_move(move.op, place, move.dst) is not None:
        return (f"rules.{move.op}({move.name}, {axis_argument(move.axis)}, src={place!r}, dst={move.dst!r})",)
    return ()


def _with_shard(x: Any, type: TensorType, move: _Move) -> TensorType:
    """``type`` with the claim that the move's axes shard dim ``src.dim``, innermost."""
    dim = move.src.dim
    spec = type.spec or PartitionSpec(*[None] * x.ndim)
    for part in move.parts:
        home = next((at for at, entry in enumerate(spec) if part in entry_axes(entry)), None)
        if home not in (None, dim):
            raise SpmdTypeError(
                f"{owner()}: {move} expected input shard S({dim}) over {part!r}, got S({home})", code="SW305"
            )
        if home is None:
            if len(move.parts) > 1 or spec[dim] is not None:
                axes = (*entry_axes(spec[dim]), part)
                spec = PartitionSpec(*spec[:dim], make_entry(axes), *spec[dim + 1 :])
            else:
                type = refine(type, asserted_type(({part: move.src},), x.ndim), gradient_free=True)
                set_type(x, type, Origin(user_site(), f"established by {owner()}"))
                spec = type.spec or spec
    return type.with_spec(spec)


def _after(type: TensorType, move: _Move) -> TensorType:
    """The result's type: ``dst`` on the move's axes; on global axes also where the shards are now."""
    followed = [part for part in move.parts if is_global(part)]
    if followed and len(followed) < len(move.parts):
        rest = [part for part in move.parts if part not in followed]
        raise SpmdTypeError(
            f"{owner()}: {move} spans axes whose shards are followed, {followed}, and local ones, {rest}", code="SW305"
        )
    if followed:
        _check_global(type, move)
    placed = _shifted(type, move).with_placements(dict.fromkeys(move.parts, to_local_type(move.dst)))
    spec = None if placed.spec is None else placed.spec.without(move.parts)
    if followed and isinstance(move.dst, Shard):
        entries = list(spec or [None] * move.ndim_out)
        entries[move.dst.dim] = make_entry((*entry_axes(entries[move.dst.dim]), *move.parts))
        spec = PartitionSpec(*entries)
    return placed.with_spec(without_local_axes(spec))


def _check_global(type: TensorType, move: _Move) -> None:
    """Errors: SW412 for a form without a global reading, SW410 for an axis that is not innermost."""
    if move.op in _STACKING and (move.dst is V or (move.src is V and move.op != "reduce_scatter")):
        raise _stacks(move)
    for entry in type.spec or ():
        axes = entry_axes(entry)
        if any(part in axes for part in move.parts) and axes[-len(move.parts) :] != move.parts:
            raise RedistributeError(
                f"{owner()}: {move} moves {move.axis!r}, but {axes[-1]!r} shards the same dim further in; only the "
                f"innermost axis of a dim can be moved",
                code="SW410",
            )


_STACKING = ("all_gather", "reduce_scatter", "all_to_all")


def _stacks(move: _Move) -> SpmdTypeError:
    return SpmdTypeError(
        f"{owner()}: {move} stacks or unbinds pieces, which says nothing about a global tensor",
        code="SW412",
        help=("name the dim: S(i) in place of V",),
    )


def _shifted(type: TensorType, move: _Move) -> TensorType:
    """The operand's type with a dim 0 put in front, or taken away."""
    change = move.ndim_out - move.ndim
    if change == 0 or type.spec is None:
        return type
    if change > 0:
        return type.with_spec(PartitionSpec(None, *type.spec))
    if type.spec[0] is not None:
        raise SpmdTypeError(f"{owner()}: {move} unbinds dim 0, which is sharded: {type.spec!r}", code="SW305")
    rest = type.spec[1:]
    return type.with_spec(PartitionSpec(*rest) if any(entry is not None for entry in rest) else None)


def output(out: Any, typed: Any) -> None:
    """Give the real result(s) the types of the stand-in(s); both are one, or tuples or lists of equal length.

    Errors: SW304 for another number of results or dims, SW305 where a result already has a type that contradicts.
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
