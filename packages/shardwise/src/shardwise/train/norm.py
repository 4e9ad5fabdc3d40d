"""How large is the gradient of the whole model? Every element counted once, whatever ranks hold it.

Along each mesh axis a gradient is equal on all ranks, and counted once, or split, and the powers of its pieces are
summed. The sums of all parameters that are split over the same axes travel as one number, axis by axis, innermost
first: one collective per axis over which anything is split. Which ones follows from the parameters and never from
which gradients are there, so all ranks issue the same.
Source: docs/semantics.md section 6, Law 6.3.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown
from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import user_location, user_site
from shardwise.interop.autograd.gradients import undischarged, waive
from shardwise.interop.calls.boundary import boundary
from shardwise.interop.communication import backend
from shardwise.interop.fixes.gradient_sums import sum_before
from shardwise.interop.running import session
from shardwise.interop.running.session import paused
from shardwise.interop.tensors.tagging import Origin, set_type
from shardwise.interop.torch_compat import foreach_norm, foreach_scale_
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import current_entry
from shardwise.mesh.normalize import axis_argument, normalize_axis
from shardwise.types.aliases import DeviceMeshAxis
from shardwise.types.placement import R
from shardwise.types.tensor_type import UNKNOWN_TYPE, TensorType

from .pieces import ParameterPieces, group_along, local_gradient, outermost_first, pending_in, pieces_of
from .refusing import gradients, names_of, refuse


class Declares(Protocol):
    """What a norm asks of a contract."""

    def pieces(self, parameter: Tensor) -> ParameterPieces | None:
        """How the ranks hold ``parameter``; None if the contract does not know it."""

    def name(self, parameter: Tensor) -> str | None:
        """What it is called."""


@boundary
def grad_norm(
    parameters: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    *,
    contract: Declares | None = None,
    over: Sequence[DeviceMeshAxis] = (),
    error_if_nonfinite: bool = False,
) -> Tensor:
    """The norm of the gradients of the whole model as one vector: no dims, equal on all ranks.

    ``parameters``  typed tensors (``assert_type``), DTensors, those of ``fully_shard`` among them, or parameters that
                    ``contract`` knows. One that is given twice counts once, one without a gradient as zeros.
    ``norm_type``   p > 0; ``math.inf`` for the largest magnitude.
    ``contract``    a ``TrainingContract``, for parameters that do not say themselves how they are held.
    ``over``        further axes along which each rank has parameters of its own, as the stages of a pipeline.

    The result is float32, or float64 if a parameter is. Communicates one small message per axis over which a
    parameter is split.
    Types: gradients R, I, V or S(i) -> R along all axes.
    Errors: SW610 for a gradient that is still a pending sum, SW613 for a parameter of which nothing is declared along
    an axis of the current mesh, SW211 for an axis without a process group, SW905 for a norm_type that is no p, a
    RuntimeError with ``error_if_nonfinite`` if the norm is not finite.

    Example:
        >>> w = assert_type(torch.ones(4, requires_grad=True), {"dp": I, "tp": I})
        >>> w.grad = torch.full((4,), 2.0)
        >>> grad_norm([w])
        tensor(4.)
    """
    return _norm("grad_norm", parameters, norm_type, contract, over, error_if_nonfinite)[0]


@boundary
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    *,
    contract: Declares | None = None,
    over: Sequence[DeviceMeshAxis] = (),
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale all gradients in place so that ``grad_norm`` is at most ``max_norm``; the norm from before comes back.

    Arguments, result and errors as for ``grad_norm``. Every rank scales by the same number, the formula is that of
    ``torch.nn.utils.clip_grad_norm_``, and the gradients keep their types.

    Example:
        >>> w = assert_type(torch.ones(4, requires_grad=True), {"dp": I, "tp": I})
        >>> w.grad = torch.full((4,), 2.0)
        >>> clip_grad_norm_([w], 1.0), w.grad
        (tensor(4.), tensor([0.5000, 0.5000, 0.5000, 0.5000]))
    """
    if isinstance(max_norm, bool) or not isinstance(max_norm, int | float):
        raise SpmdArgumentError(f"max_norm is a number, got {shown(max_norm)}", code="SW905")
    total, subject = _norm("clip_grad_norm_", parameters, norm_type, contract, over, error_if_nonfinite)
    with _unchecked(), torch.no_grad():
        factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
        for (device, _), found in _by_kind(subject.gradients).items():
            foreach_scale_(found, factor.to(device))
    return total


@dataclass(frozen=True, slots=True)
class _Subject:
    """The parameters of one call, each once, and how the ranks hold them."""

    parameters: list[Tensor]
    pieces: list[ParameterPieces]

    @property
    def gradients(self) -> list[Tensor]:
        """What this rank has of those that are there."""
        return [g for g in map(local_gradient, self.parameters) if g is not None]


def _norm(
    op: str,
    parameters: Tensor | Iterable[Tensor],
    norm_type: float,
    contract: Declares | None,
    over: Sequence[DeviceMeshAxis],
    error_if_nonfinite: bool,
) -> tuple[Tensor, _Subject]:
    power = _power(norm_type)
    if not isinstance(over, Iterable):
        raise SpmdArgumentError(f"over takes a list of mesh axes, got {shown(over)}", code="SW905")
    own = frozenset(axis for axis in map(normalize_axis, over) if axis.size() > 1)
    subject = _subject(parameters, contract)
    running = session.current()
    sound = _check(op, subject, contract, own)
    with _unchecked(), torch.no_grad():
        total = _total(subject, power, own)
        if error_if_nonfinite and not bool(torch.isfinite(total)):
            raise RuntimeError(
                f"the gradient's norm of order {norm_type} is {total.item()}; to go on all the same, "
                "leave out error_if_nonfinite=True"
            )
    if running is not None:
        axes = () if (entry := current_entry()) is None else entry.ordered_axes
        type = TensorType.of(dict.fromkeys(axes, R)) if sound else UNKNOWN_TYPE
        set_type(total, type, Origin(user_site(), f"R since this {op}"))
        running.checked += 1
    return total, subject


def _power(norm_type: float) -> float:
    try:
        power = float(norm_type)
    except (TypeError, ValueError):
        power = math.nan
    if not power > 0:
        raise SpmdValueError(f"norm_type is a number above 0 or math.inf, got {shown(norm_type)}", code="SW905")
    return power


def _subject(parameters: Tensor | Iterable[Tensor], contract: Declares | None) -> _Subject:
    if not isinstance(parameters, Iterable):
        raise SpmdArgumentError(f"parameters are tensors, got {shown(parameters)}", code="SW905")
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if contract is not None and not hasattr(contract, "pieces"):
        raise SpmdArgumentError(f"contract is a TrainingContract, got {shown(contract)}", code="SW905")
    for one in given:
        if not isinstance(one, Tensor):
            raise SpmdArgumentError(f"parameters are tensors, got one of type {type(one).__name__}", code="SW905")
    once = list({id(one): one for one in given}.values())
    known = [None if contract is None else contract.pieces(one) for one in once]
    return _Subject(once, [found or pieces_of(one) for one, found in zip(once, known, strict=True)])


@contextlib.contextmanager
def _unchecked() -> Any:
    """What is computed here has been judged as a whole."""
    running = session.current()
    with contextlib.nullcontext() if running is None else paused(running):
        yield


def _check(op: str, subject: _Subject, contract: Declares | None, own: frozenset[MeshAxis]) -> bool:
    """Report what cannot be counted right; True if there is nothing."""
    entry = current_entry()
    axes = [] if entry is None else [axis for axis in entry.ordered_axes if axis not in own]
    silent: dict[MeshAxis, list[Tensor]] = {}
    pending: dict[MeshAxis, list[Tensor]] = {}
    for parameter, pieces in zip(subject.parameters, subject.pieces, strict=True):
        for axis in pieces.undeclared(axes):
            silent.setdefault(axis, []).append(parameter)
        for axis in _not_summed(parameter):
            pending.setdefault(axis, []).append(parameter)
    for axis in outermost_first(silent):
        _tell_silent(op, axis, silent[axis], contract)
    for axis in outermost_first(pending):
        _tell_pending(op, axis, pending[axis], contract)
    for parameter in (parameter for parameters in pending.values() for parameter in parameters):
        waive(parameter)  # the optimizer would report the same sum once more
    return not silent and not pending


def _not_summed(parameter: Tensor) -> list[MeshAxis]:
    """The axes along which the gradient is a pending sum."""
    if parameter.grad is None:
        return []
    known = [] if session.current() is None else undischarged(parameter)
    return list({*pending_in(parameter.grad), *known})


def _names(parameters: Sequence[Tensor], contract: Declares | None) -> list[str]:
    known = [None if contract is None else contract.name(one) for one in parameters]
    if all(known):
        return [name for name in known if name]
    return [name or found for name, found in zip(known, names_of(parameters), strict=True)]


def _tell_pending(op: str, axis: MeshAxis, parameters: list[Tensor], contract: Declares | None) -> None:
    names = _names(parameters, contract)
    verb = "is" if len(names) == 1 else "are"
    said = Diagnosis(
        "SW610",
        f"{op} takes {gradients(names)}, which {verb} not summed over {axis!r}",
        (f"the norm of one addend of {axis.size()} says nothing of that of their sum, and each rank has another",),
        (
            f"dist.all_reduce(p.grad, group=mesh.get_group({axis_argument(axis)})) before it",
            "TrainingContract.finalize() before it, with the sums that the step owes",
        ),
    )
    said = replace(said, fixes=sum_before(user_location(), parameters, axis, said.help[0]))
    refuse(op, axis, said, parameters=parameters, names=names)


def _tell_silent(op: str, axis: MeshAxis, parameters: list[Tensor], contract: Declares | None) -> None:
    names = _names(parameters, contract)
    along = axis_argument(axis)
    said = Diagnosis(
        "SW613",
        f"{op} takes {gradients(names)}, of which nothing is declared along {axis!r}",
        (f"equal on the {axis.size()} ranks it counts once, and in {axis.size()} pieces each of them counts",),
        (
            f"assert_type({names[0]}, {{{along}: R}}) or S(i), where it is made",
            f'TrainingContract(model, types={{"*": {{{along}: R}}}}), given as contract=',
            f"over=({along},) if each rank has parameters of its own along {axis!r}",
        ),
    )
    refuse(op, axis, said, parameters=parameters, names=names)


def _total(subject: _Subject, power: float, own: frozenset[MeshAxis]) -> Tensor:
    """The norm, from this rank's pieces and what the others have."""
    wide = any(one.dtype in (torch.float64, torch.complex128) for one in subject.parameters)
    dtype = torch.float64 if wide else torch.float32
    device = next((one.device for one in subject.parameters), torch.empty(0).device)
    bins: dict[frozenset[MeshAxis], list[Tensor]] = {own: []}
    groups: dict[MeshAxis, Any] = {}
    for parameter, pieces in zip(subject.parameters, subject.pieces, strict=True):
        held = bins.setdefault(pieces.split | own, [])
        groups.update(pieces.groups)
        gradient = local_gradient(parameter)
        if gradient is not None and gradient.numel():  # some ranks may have no rows of a short tensor
            held.append(gradient)
    parts = {axes: _powers(held, power, dtype, device) for axes, held in bins.items()}
    axes = frozenset[MeshAxis]().union(*parts)
    # Stages of a pipeline have unlike parameters: what they have in common comes last.
    for axis in [*reversed(outermost_first(axes - own)), *reversed(outermost_first(own))]:
        parts = _reduced(parts, axis, power, group_along(axis, groups))
    total = parts[frozenset()]
    return total if power in (1.0, math.inf) else total.pow(1.0 / power)


def _reduced(
    parts: Mapping[frozenset[MeshAxis], Tensor], axis: MeshAxis, power: float, group: object
) -> dict[frozenset[MeshAxis], Tensor]:
    """``parts`` with what is split over ``axis`` combined over it, in one message."""
    split = sorted((axes for axes in parts if axis in axes), key=lambda axes: sorted(one.sort_key for one in axes))
    message = torch.stack([parts[axes] for axes in split])
    if math.isinf(power):
        message.nan_to_num_(nan=math.inf, posinf=math.inf)  # back ends differ in what the maximum with NaN is
    backend.current.all_reduce(message, op=dist.ReduceOp.MAX if math.isinf(power) else dist.ReduceOp.SUM, group=group)
    result = {axes: part for axes, part in parts.items() if axis not in axes}
    for axes, part in zip(split, message.unbind(0), strict=True):
        rest = axes - {axis}
        result[rest] = _combined(result[rest], part, power) if rest in result else part
    return result


def _combined(a: Tensor, b: Tensor, power: float) -> Tensor:
    return torch.maximum(a, b) if math.isinf(power) else a + b


def _powers(held: Sequence[Tensor], power: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The sum of the magnitudes' powers, or the largest magnitude; 0 of nothing."""
    total = torch.zeros((), dtype=dtype, device=device)
    for found in _by_kind(held).values():
        norms = torch.stack([norm.to(device, dtype) for norm in foreach_norm(found, power, dtype)])
        part = norms.max() if math.isinf(power) else norms.pow(power).sum()
        total = _combined(total, part, power)
    return total


def _by_kind(held: Sequence[Tensor]) -> dict[tuple[torch.device, torch.dtype], list[Tensor]]:
    """Lists that one fused kernel takes."""
    kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for one in held:
        kinds.setdefault((one.device, one.dtype), []).append(one)
    return kinds
