"""May these gradients enter the optimizer? Only if every sum that a parameter owes has been made.

A gradient that is still a pending sum lets every rank step with its own addend: the replicas drift apart. The gate
stands in front of every ``torch.optim.Optimizer.step``, behind the hooks that the program has put there itself. With a
closure backward runs inside the step, so the gate stands behind the closure, each time that it is run.
Source: docs/semantics.md section 6, Law 6.2.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from shardwise.diagnostics.finding import Unsummed
from shardwise.diagnostics.source import user_location
from shardwise.interop.autograd.gradient_content import contents_of
from shardwise.interop.autograd.gradient_origin import arrival
from shardwise.interop.autograd.gradients import (
    gradient_of,
    gradient_type,
    is_unseen,
    of_unknown_scale,
    off_scale,
    pieces_where,
    undischarged,
    varying,
    waive,
)
from shardwise.interop.autograd.parameter_names import gradient_name, name_of, names_of
from shardwise.interop.calls.located_call import LocatedCall, gradients_as_operands, report
from shardwise.interop.fixes.buckets import buckets_met
from shardwise.interop.fixes.gradient_scales import scaled
from shardwise.interop.fixes.gradient_sums import sum_before_step, sums_by_hand, synchronised
from shardwise.interop.running.recording import is_heard, stepped
from shardwise.interop.tensors.dtensors import is_dtensor, local_part
from shardwise.interop.tensors.element_orders import UNORDERED
from shardwise.interop.tensors.memory_pieces import Content
from shardwise.interop.tensors.tagging import is_pieced, type_of
from shardwise.interop.torch_compat import is_flattened
from shardwise.mesh.axis import MeshAxis, flatten_axes
from shardwise.types.tensor_type import Power

from ..diagnosis.gradient_findings import elements_text
from ..diagnosis.step_findings import (
    gradient_kept_back,
    gradient_misplaced,
    gradient_not_summed,
    gradient_off_scale,
    gradient_unseen,
)
from ..operators import scale_lost
from ..operators.in_flight import check_tensor
from ..state.session import CheckSession
from .averaged_later import settle
from .conflicts import note_step
from .own_steps import communicates
from .replicas import unsynchronised
from .sharded_gradients import kept_back
from .step_settings import shared_setting

FindSession = Callable[[], CheckSession | None]
_FACTS = 3
_SHOWN = 4


def stand(find: FindSession) -> Callable[[], None]:
    """Put the gate in front of all optimizers; gives what takes it away again."""
    handles: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def gate(
        optimizer: torch.optim.Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]] | None:
        session = find()
        closure = kwargs.get("closure", next(iter(args[1:]), None))
        if session is None or (closure is not None and not callable(closure)):
            return None
        if closure is None:
            check_step(session, optimizer)
            return None
        checked = _checked_behind(closure, lambda: check_step(session, optimizer, by_closure=True))
        return ((*args[:1], checked, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": checked})

    def behind_own_hooks(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        if optimizer in handles:
            handles[optimizer].remove()
        handles[optimizer] = optimizer.register_step_pre_hook(gate)

    first = register_optimizer_step_pre_hook(behind_own_hooks)

    def leave() -> None:
        first.remove()
        for handle in handles.values():
            handle.remove()

    return leave


def _checked_behind(closure: Callable[..., object], check: Callable[[], None]) -> Callable[..., object]:
    @functools.wraps(closure)
    def checked(*args: object, **kwargs: object) -> object:
        came = closure(*args, **kwargs)
        check()
        return came

    return checked


def check_step(session: CheckSession, optimizer: torch.optim.Optimizer, *, by_closure: bool = False) -> None:
    """Report the gradients that are not summed, or off the scale, all along one axis as one finding.

    ``by_closure``  they were made inside the step, so that nothing before it mends them.

    Errors: SW608, SW614, SW615, SW616, SW617.
    """
    scaled: dict[tuple[Any, Power], list[torch.Tensor]] = {}
    owing: dict[tuple[Any, bool], list[torch.Tensor]] = {}
    names: dict[int, str | int] = {}
    taken: dict[int, torch.Tensor] = {}
    unknown: dict[Any, None] = {}
    summed: list[torch.Tensor] = []
    summing = communicates(optimizer)
    for group in optimizer.param_groups:
        for parameter, name in zip(group["params"], group.get("param_names") or group["params"], strict=True):
            names[id(parameter)] = name if isinstance(name, str) else len(names)
            if gradient_of(parameter) is not None:
                taken[id(parameter)] = parameter
                if summing:
                    continue
                for axis in undischarged(parameter):
                    owing.setdefault((axis, True), []).append(parameter)
                for axis in varying(parameter):
                    owing.setdefault((axis, False), []).append(parameter)
                unknown |= of_unknown_scale(parameter)
                session.scale_stepped.update(gradient_type(parameter).axes)
                told = settle(session, parameter) if session.sums_not_owed else set()
                summed += [parameter] if told else []
                for axis, exponent in off_scale(parameter).items():
                    if axis not in undischarged(parameter) and axis not in told:
                        scaled.setdefault((axis, exponent), []).append(parameter)
    scale_lost.tell(session, f"{type(optimizer).__name__}.step", unknown)
    _check_settings(session, optimizer, names)
    typed = any(type_of(parameter).axes for group in optimizer.param_groups for parameter in group["params"])
    session.checked += typed
    _note_unjudged(session, taken.values())
    note_step(session, taken.values())
    step = f"{type(optimizer).__name__}.step"
    if is_heard() and not summing:  # else the ranks share the work out
        stepped(step, _operands(taken.values(), names))
    if session.in_flight:
        _check_waited(session, optimizer, step)
    held = {id(parameter): parameter for group in optimizer.param_groups for parameter in group["params"]}
    unseen = [p for p in taken.values() if type_of(p).axes and is_unseen(p)] if session.strict else []
    try:
        for (axis, method), parameters in kept_back(held.values()).items():
            located, said = LocatedCall("step", []), gradient_kept_back(step, _names(parameters, names), axis, method)
            said = replace(said, fixes=synchronised(located.location, method, said.help[0]))
            report(session, located, said, axis, operands=())
        if unseen:
            report(session, LocatedCall("step", []), gradient_unseen(step, _names(unseen, names)), operands=())
        for (axis, pending), parameters in sorted(owing.items(), key=lambda item: item[0][0].sort_key):
            _refuse(session, optimizer, axis, parameters, names, pending, by_closure)
        for (axis, exponent), parameters in sorted(scaled.items(), key=lambda item: (item[0][0].sort_key, item[0][1])):
            _refuse_scale(session, step, axis, exponent, parameters, names)
        for parameter in taken.values():
            _check_place(session, step, parameter, taken, names)
    finally:
        found = (parameter for each in (owing, scaled) for some in each.values() for parameter in some)
        for parameter in (*unseen, *summed, *found):
            waive(parameter)


def _operands(
    parameters: Collection[torch.Tensor], known: Mapping[int, str | int]
) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters and their gradients, by name."""
    for parameter, name in zip(parameters, _names(list(parameters), known), strict=True):
        yield name, parameter
        gradient = gradient_of(parameter)
        if gradient is not None:
            yield f"the gradient of {name}", gradient


def _note_unjudged(session: CheckSession, taken: Collection[torch.Tensor]) -> None:
    """Remember how many of these parameters' gradients are unknown along an axis over which the program exchanges, or
    over which its ranks train on data of their own.
    """
    own = frozenset[MeshAxis]() if session.data is None else session.data.own
    for axis in session.exchanged.keys() | session.averaged | own:
        unknown = sum(not _is_judged(session, parameter, axis, whole=axis in own) for parameter in taken)
        if unknown > session.unjudged.get(axis, (0, 0))[0]:
            session.unjudged[axis] = unknown, len(taken)


def _is_judged(session: CheckSession, parameter: torch.Tensor, axis: MeshAxis, *, whole: bool) -> bool:
    """Somebody knows what the gradient is along ``axis``, ``whole`` or in part: the checker, or DTensor and FSDP1 where
    these sum it.
    """
    if is_flattened(parameter):
        return True
    type = gradient_type(parameter)
    known = [one for one in type.axes if not axis.isorthogonal(one) and not type.get(one).is_unknown]
    if known and not whole:
        return True
    if is_dtensor(parameter) and (known or all(axis.isorthogonal(one) for one in session.averaged)):
        groups = map(MeshAxis.of, parameter.device_mesh.get_all_groups())  # type: ignore[attr-defined]
        known += [one for one in groups if not axis.isorthogonal(one) and one not in known]
    known.sort(key=lambda one: one.sort_key)
    apart = bool(known) and known[0].isorthogonal(*known[1:])
    return bool(known) and (not (whole and apart) or axis <= flatten_axes(tuple(known)))


def _check_waited(session: CheckSession, optimizer: torch.optim.Optimizer, step: str) -> None:
    """Report gradients that are still being summed, and parameters that are still being gathered. SW220, SW221."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = gradient_of(parameter)
            if gradient is not None:
                check_tensor(session, step, gradient, writes=False, label=functools.partial(gradient_name, parameter))
                check_tensor(session, step, parameter, writes=True, label=functools.partial(name_of, parameter))


def _check_settings(session: CheckSession, optimizer: torch.optim.Optimizer, known: Mapping[int, str | int]) -> None:
    """Report settings, as a learning rate, that differ between ranks on which the parameters are equal."""
    step = f"{type(optimizer).__name__}.step"
    for group in optimizer.param_groups:
        for setting, value in group.items():
            group[setting] = shared_setting(
                session, step, setting, value, group["params"], lambda equal: _names(equal, known)
            )


def _refuse_scale(
    session: CheckSession,
    step: str,
    axis: MeshAxis,
    exponent: Power,
    parameters: Sequence[torch.Tensor],
    known: Mapping[int, str | int],
) -> None:
    names = _names(parameters, known)
    said = gradient_off_scale(step, names, axis, exponent)
    fixes = scaled([_gradient(one) for one in parameters], axis, exponent)
    if fixes:
        said = replace(said, help=tuple(fix.help for fix in fixes), fixes=fixes)
    report(session, LocatedCall("step", []), said, axis, operands=gradients_as_operands(parameters, names, axis))


def _refuse(
    session: CheckSession,
    optimizer: torch.optim.Optimizer,
    axis: MeshAxis,
    parameters: Sequence[torch.Tensor],
    known: Mapping[int, str | int],
    pending: bool,
    by_closure: bool,
) -> None:
    """``pending``: the gradients are addends; otherwise they vary, though the parameters do not."""
    names, step = _names(parameters, known), f"{type(optimizer).__name__}.step"
    facts = []
    located = LocatedCall("step", [("optimizer", optimizer)])
    owed = pending and unsynchronised(session, parameters, axis)
    if owed:
        facts.append("DistributedDataParallel owes that sum, and its last forward ran inside no_sync()")
    for parameter, name in zip(parameters, names, strict=True):
        parts = pieces_where(parameter, lambda type: type.is_partial(axis) if pending else type.is_varying(axis))
        if parts:
            facts.append(f"of the gradient of {name} that is so of {elements_text(_gradient(parameter), parts)}")
    more = [f"and {len(facts) - _FACTS} more gradients of which that is so in part"] if len(facts) > _FACTS else []
    scales = {type_of(_gradient(parameter)).exponent(axis) for parameter in parameters}
    scale = scales.pop() if len(scales) == 1 else None
    where = "after backward, in the closure" if by_closure else "before it"
    ways = sums_by_hand("p.grad", axis, scale, where, "for p in parameters: ")
    told = [way.help for way in ways] + ([] if scale == 0 else [_by_wrapper(scale)])
    said = gradient_not_summed(step, names, axis, told, pending=pending, facts=[*facts[:_FACTS], *more])
    taken = {id(one) for group in optimizer.param_groups for one in group["params"] if gradient_of(one) is not None}
    if pending and len(facts) == owed:
        every = taken == set(map(id, parameters))
        place = None if by_closure else located.location
        fixes = sum_before_step(place, optimizer, parameters, axis, ways, every=every, owed=owed)
        if (arrived := arrival(_gradient(parameters[0]))) is not None:
            said = replace(said, unsummed=Unsummed(arrived))
    else:  # where parts of a gradient are summed, another sum of all adds them up again
        fixes = buckets_met(located.location)
    others = tuple(fix.help for fix in fixes if fix.help not in said.help)
    said = replace(said, help=others or said.help, fixes=fixes)  # where a wrapper averages, a sum alone is too large
    operands = gradients_as_operands(parameters, names, axis)
    report(session, located, said, axis, operands=operands)


def _by_wrapper(scale: Power | None) -> str:
    """What sums the gradients besides. ``scale``: that of the gradients, None if nobody knows whether to average."""
    if scale is None:
        mean = "if the loss is the mean of each rank's own samples: they average while backward runs"
        return f"or DistributedDataParallel or fully_shard over that axis, {mean}"
    return "or DistributedDataParallel or fully_shard over that axis, which average while backward runs"


def _check_place(
    session: CheckSession,
    step: str,
    parameter: torch.Tensor,
    taken: Mapping[int, torch.Tensor],
    known: Mapping[int, str | int],
) -> None:
    """Report elements of the gradient that are known to be those of other elements. Errors: SW614."""
    gradient = _gradient(parameter)
    at = 0
    for piece in contents_of(gradient) if is_pieced(gradient) else ():
        count = (piece.stop - piece.start) // piece.itemsize
        owner = None if piece.content is None else piece.content.owner()
        if piece.content is not None and owner is not None and id(owner) in taken:
            if piece.content.order is UNORDERED:
                session.lose(f"the order of the elements of a gradient that {step} takes", user_location())
                return
            if owner is not parameter or not piece.content.starts_at(at, count):
                name, other = (_names([one], known)[0] for one in (parameter, owner))
                text = f"{_elements(piece.content, count)} of the gradient of {other}"
                said = gradient_misplaced(step, name, elements_text(gradient, [piece]), text)
                report(session, LocatedCall("step", []), said, operands=())
                return
        at += count


def _elements(content: Content, count: int) -> str:
    """The elements that a content is, as text."""
    if content.order is not None:
        shown = ", ".join(str(content.order.at(content.first + place)) for place in range(min(count, _SHOWN)))
        return f"elements {shown}{' and so on' if count > _SHOWN else ''}"
    first = content.first
    return f"elements {first} to {first + count - 1}" if count > 1 else f"element {first}"


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    gradient = gradient_of(parameter)
    assert gradient is not None, "what is asked about has a gradient"
    return local_part(gradient)


def _names(parameters: Sequence[torch.Tensor], known: Mapping[int, str | int]) -> list[str]:
    """``known``  the name of each parameter that the optimizer holds, or its place among them."""
    places = {key: place for key, place in known.items() if isinstance(place, int)}
    said = {key: name for key, name in known.items() if isinstance(name, str)}
    return [said.get(id(p), name) for p, name in zip(parameters, names_of(parameters, places), strict=True)]
