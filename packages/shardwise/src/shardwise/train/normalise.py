"""What is a loss divided by? By the number of tokens that count on all ranks together, which no rank knows alone.

A mean over a rank's own tokens is a term of the mean over all only if every rank has equally many of them: with
padding, packed sequences or uneven shards it is another loss. Here the sum is over a rank's tokens and the count is
global, so a rank's loss is a term of the whole one (P), and its gradients add up to the gradient of the mean.
Source: docs/semantics.md section 6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shardwise.collectives.coerce import convert, reinterpret
from shardwise.collectives.communicate import all_reduce
from shardwise.collectives.partial import sum as partial_sum
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown
from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.calls.boundary import boundary
from shardwise.interop.calls.located_call import LocatedCall, axis_text, report
from shardwise.interop.communication.process_groups import communicator
from shardwise.interop.fixes.losses import counted_by_all
from shardwise.interop.running import session
from shardwise.interop.tensors.tagging import set_type, type_of
from shardwise.mesh.normalize import normalize_axis
from shardwise.types.aliases import DeviceMeshAxes, DeviceMeshAxis
from shardwise.types.placement import UNKNOWN, P, PerMeshAxisSpmdType, R, V


@boundary
def token_count(mask: Tensor, *axes: DeviceMeshAxis) -> Tensor:
    """How many tokens count, on all ranks along ``axes`` together: int64, no dims.

    ``mask``  of any shape; true, or not zero, where a token counts.
    ``axes``  the mesh axes that split the tokens, such as "dp" and "cp".

    Types: V or S(i) along ``axes`` -> R. Communicates one number per axis.
    For gradient accumulation add up the counts of all micro-batches of a step and give the sum to ``token_mean``.
    Errors: SW905 for a mask that is no tensor and without axes; those of ``sum`` and ``all_reduce``.
    Example:
        >>> mask = assert_type(torch.ones(4, dtype=torch.bool), {"dp": S(0), "tp": R})
        >>> print(typeof(token_count(mask, "dp")))
        i64[] {dp: R, tp: R}
    """
    _tensor("mask", mask)
    _some("token_count", axes)
    count = partial_sum((mask != 0).long(), out_partial_axes=axes)
    for axis in axes:
        count = all_reduce(count, axis, src=P, dst=R)
    return count


@boundary
def token_mean(
    losses: Tensor,
    *axes: DeviceMeshAxis,
    mask: Tensor | None = None,
    count: Tensor | int | None = None,
    averaged: DeviceMeshAxes = (),
) -> Tensor:
    """This rank's term of the mean loss over all tokens that count, on all ranks along ``axes`` together: no dims.

    ``losses``  one for each token of this rank, not reduced.
    ``mask``    of a shape that broadcasts against ``losses``; true where a token counts. Left out, all count.
    ``count``   the global number of tokens, equal on all ranks: of all micro-batches if gradients are accumulated, or
                otherwise known. Left out, it is counted, which communicates one number per axis.
    ``averaged``  an axis, or several in a tuple, along which a wrapper averages gradients and does not sum them, as
                DistributedDataParallel and ``fully_shard`` do: the result is multiplied by their number of ranks.

    Call ``backward`` on the result: the gradients of parameters that are R along ``axes`` are then P and owe one sum.
    The ``all_reduce`` of the detached result is the mean for the log. If no token counts anywhere the loss is 0.

    Types: V or S(i) along ``axes`` -> P. Formula: sum(losses * mask) / max(count, 1), times the ranks
    along ``averaged``.
    Errors: SW905 for what is no tensor and without axes; those of ``sum`` and ``all_reduce``; SW110 or SW114 for a
    count that is not equal on all ranks.

    Example:
        >>> losses = assert_type(torch.ones(4), {"dp": S(0), "tp": R})
        >>> count = token_count(torch.ones_like(losses), "dp")
        >>> print(typeof(token_mean(losses, "dp", count=count)))
        f32[] {dp: P, tp: R}
    """
    _tensor("losses", losses)
    _some("token_mean", axes)
    if mask is not None:
        _tensor("mask", mask)
        # A loss that does not count may be anything, infinity too: it is replaced, not multiplied by 0.
        losses = torch.where(mask != 0, losses, 0.0)
    if count is None:
        counted = torch.ones_like(losses, dtype=torch.bool) if mask is None else (mask != 0).expand(losses.shape)
        count = token_count(counted, *axes)
    least = count.clamp(min=1) if isinstance(count, Tensor) else max(_number(count), 1)
    if isinstance(count, Tensor) and isinstance(least, Tensor) and session.current() is not None:
        _check_count(count, least, axes)
    term = partial_sum(losses, out_partial_axes=axes) / least
    ranks = math.prod(communicator(axis).size for axis in (averaged if isinstance(averaged, tuple) else (averaged,)))
    return term if ranks == 1 else term * ranks


def _check_count(count: Tensor, least: Tensor, axes: Sequence[DeviceMeshAxis]) -> None:
    """Report a ``count`` that differs between the ranks; ``least``, made of it, is unknown there."""
    running = session.current()
    for axis in map(normalize_axis, axes):
        if running is None or not type_of(count).is_varying(axis):
            continue
        located = LocatedCall("token_mean", [("count", count)])
        name = located.name(0)
        exponent = type_of(count).exponent(axis)
        ways, fixes = counted_by_all(*located.names[0], "token_mean", axis, exponent)
        said = Diagnosis(
            "SW110",
            f"token_mean divides a pending sum over {axis_text(axis)} by {name}, which differs per rank there",
            ("addends that are divided by numbers of their own do not add up to a mean over all ranks",),
            ways,
            fixes,
        )
        report(running, located, said, axis)
        set_type(least, type_of(least).with_placements({axis: UNKNOWN}))


@boundary
def auxiliary(loss: Tensor, *axes: DeviceMeshAxis, src: PerMeshAxisSpmdType) -> Tensor:
    """A further loss as a term of the whole, to be added to what ``token_mean`` gives.

    ``loss``  without dims: a router's balance, a penalty on weights.
    ``axes``  those along which the loss that it is added to is P.
    ``src``   R: equal on the ranks along ``axes``, and counted once, not once per rank; V: each rank has its own, and
              the mean over the ranks is meant.

    Types: ``src`` -> P along ``axes``.
    Errors: SW905 for another ``src``, for what is no tensor and without axes; SW201 if the loss is not ``src``.
    Example:
        >>> balance = assert_type(torch.tensor(0.1), R)
        >>> print(typeof(auxiliary(balance, "dp", src=R)))
        f32[] {dp: P, tp: R}
    """
    _tensor("loss", loss)
    _some("auxiliary", axes)
    if src not in (R, V):
        raise SpmdValueError(
            f"src of auxiliary is R (equal on all ranks) or V (each rank's own), got {shown(src)}", code="SW905"
        )
    ranks = 1
    for axis in axes:
        if src is R:
            loss = convert(loss, axis, src=R, dst=P)
        else:
            loss = reinterpret(loss, axis, src=V, dst=P)
            ranks *= communicator(axis).size
    return loss if ranks == 1 else loss / ranks


def _tensor(name: str, given: object) -> None:
    if not isinstance(given, Tensor):
        raise SpmdArgumentError(f"{name} is a tensor, got {shown(given)} of type {type(given).__name__}", code="SW905")


def _number(count: object) -> int | float:
    if isinstance(count, bool) or not isinstance(count, int | float):
        what = f"count is a number or a tensor, got {shown(count)} of type {type(count).__name__}"
        raise SpmdArgumentError(what, code="SW905")
    return count


def _some(name: str, axes: tuple[DeviceMeshAxis, ...]) -> None:
    if not axes:
        raise SpmdArgumentError(
            f"{name} needs the mesh axes that split the tokens", code="SW905", help=(f'{name}(..., "dp", "cp")',)
        )
