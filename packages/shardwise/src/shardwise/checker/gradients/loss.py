"""From which losses may backward start? Only from those whose seed gradient of 1 on every rank is right.

A backward pass that is not told otherwise starts with 1.0 on each rank. That is the dual of P (the losses of the ranks
are summed) and of I (every rank repeats one computation), and of nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from shardwise.diagnostics.finding import in_brackets
from shardwise.diagnostics.source import user_location, user_site
from shardwise.interop.autograd.gradient_origin import GradientOrigin
from shardwise.interop.autograd.own_reductions import own_reduction
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.fixes.losses import added_up, invariant_instead, on_one_rank
from shardwise.interop.tensors.derived_types import derived_type
from shardwise.interop.tensors.own_references import by_tensor
from shardwise.interop.tensors.tagging import Tag, set_tag, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import is_flattened, is_transformed, no_torch_function
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.types.placement import UNKNOWN, Placement, R, V
from shardwise.types.tensor_type import Exponent, Ground, TensorType

from ..diagnosis.loss_findings import replicated_loss, seed_not_dual, untyped_loss, varying_loss
from ..state.session import CheckSession
from .autograd_graph import leaves_of, sums_behind
from .gradient_types import NOWHERE, dual, is_gradient_of, root_scale
from .sharded_gradients import divides_in_its_own_way

_OF_GRAD = ("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph")
_UNDEALT = "no type says along which dim the ranks share its samples out"
_IN_A_ROW = "FullyShardedDataParallel averages its gradients in one row, of which no step knows a scale"
_losses: Any = by_tensor()
"""Roots of which backward has started with a gradient of 1."""


def is_loss(root: object) -> bool:
    """True if backward has started from ``root`` without a gradient given, and what there is to say has been said."""
    with no_torch_function():
        return root in _losses


def backward(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
    """``Tensor.backward`` and ``torch.autograd.backward``."""
    given = dict(zip(("tensors", "gradient"), args, strict=False)) | dict(kwargs)
    seeds = given.get("gradient", given.get("grad_tensors"))
    check_roots(session, given.get("tensors", given.get("self")), seeds)
    return func(*args, **kwargs)


def grad(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
    """``torch.autograd.grad``: its results have the duals of the inputs' types.

    What is derived once more is part of each rank's own loss, as the inner steps of MAML are: no addend of a gradient.
    """
    given = dict(zip(_OF_GRAD, args, strict=False)) | dict(kwargs)
    inputs = _as_list(given.get("inputs"))
    check_roots(session, given.get("outputs"), given.get("grad_outputs"), inputs=inputs, op="grad")
    results = func(*args, **kwargs)
    outputs = [one for one in _as_list(given.get("outputs")) if isinstance(one, torch.Tensor)]
    scale = root_scale(session, outputs, _as_list(given.get("grad_outputs")))
    types = [derived_type(output) for output in outputs] if given.get("create_graph") else []
    varying = {axis for type in types for axis in (*type.varying_axes, *(() if session.local else type.partial_axes))}
    type_gradients(inputs, results, varying, scale, own=V if session.local else UNKNOWN)
    if any(type_of(x).is_equal(axis) for axis in varying for x in inputs if not session.local):
        session.lose("the type of gradients of each rank's own loss, of which more is derived", user_location())
    return results


def type_gradients(
    inputs: object,
    results: object,
    varying: Collection[object] = (),
    root: Mapping[MeshAxis, Exponent] = NOWHERE,
    *,
    own: Placement = V,
) -> None:
    """Give gradients the duals of their inputs' types; along the axes ``varying`` they are each rank's own.

    ``root``  the scale of what is derived, by axis.
    ``own``   the placement of what is each rank's own.
    """
    for x, result in zip(_as_list(inputs), _as_list(results), strict=False):
        type = type_of(x) if isinstance(x, torch.Tensor) else None
        if isinstance(result, torch.Tensor) and type is not None and type.axes:
            gradient = dual(type, root)
            apart = {axis: own for axis in varying if axis in type and (own is V or type.get(axis).is_equal)}
            told = gradient.with_placements(apart) if gradient.axes else gradient
            set_tag(result, Tag(told, GradientOrigin(user_site(), x)))


def _as_list(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def check_roots(
    session: CheckSession,
    roots: object,
    seeds: object,
    *,
    lists: bool = False,
    inputs: Sequence[object] = (),
    op: str = "backward",
) -> None:
    """Report roots that are no losses, and gradients given for roots that are none of theirs.

    ``lists``   a varying root is a list of losses, each with its own derivative.
    ``inputs``  what the derivatives are taken by; where all of it varies, ``lists`` holds.
    ``op``      the function that is called.
    """
    seeds = _as_list(seeds)
    if session.untyped is not None and op == "backward":
        _take_losses(session, _as_list(roots))
    for position, root in enumerate(_as_list(roots)):
        seed = seeds[position] if position < len(seeds) else None
        if isinstance(root, torch.Tensor) and seed is None:
            _check_root(session, root, lists, inputs, op)
        elif isinstance(root, torch.Tensor) and isinstance(seed, torch.Tensor):
            _check_seed(session, root, seed)


def _take_losses(session: CheckSession, roots: Sequence[object]) -> None:
    losses = [root for root in roots if isinstance(root, torch.Tensor)]
    reached = {axis for leaf in leaves_of(losses) for axis in type_of(leaf).axes}
    for loss in losses:
        session.untyped.take_loss(loss, reached | session.averaged)
        if session.only_observed:
            _note_own_reduction(session, loss)


def _note_own_reduction(session: CheckSession, loss: torch.Tensor) -> None:
    """A wrapper averages over ranks what each derives of its own loss. That is derived of the loss of one device where
    losses are means of as many samples; where ``loss`` is none, its scale has to be known.
    """
    type, leaves = derived_type(loss), leaves_of([loss])
    rows = any(map(is_flattened, leaves))
    unscaled = [axis for axis in session.averaged if not _has_scale(session, type, axis, only_means=rows)]
    said = own_reduction(loss, session.untyped.shared) if unscaled else None
    if said is not None and not divides_in_its_own_way(set(map(id, leaves))):
        place = in_brackets(user_location())
        session.own_reductions[f"the scale of the loss{place}, {said}: {_IN_A_ROW if rows else _UNDEALT}"] = None


def _has_scale(session: CheckSession, type: TensorType, axis: MeshAxis, *, only_means: bool) -> bool:
    """Is the loss known to be equal over ``axis``, or with global types a sum over it of a scale, or a mean?"""
    if any(type.get(one).is_unknown for one in type.axes) or all(axis.isorthogonal(one) for one in type.axes):
        return False
    over = [one for one in type.axes if not axis.isorthogonal(one)]
    known = not session.local and all(
        (type.exponent(one) == 1 if only_means else type.exponent(one) is not None) for one in over
    )
    return known or not any(type.is_varying(one) or (only_means and type.is_partial(one)) for one in over)


def _check_root(session: CheckSession, loss: torch.Tensor, lists: bool, inputs: Sequence[object], op: str) -> None:
    type = derived_type(loss)
    mesh = current_entry()
    with no_torch_function():
        _losses[loss] = None
    if type.ground is not Ground.ABSENT or (mesh is not None and not mesh.axes):
        return
    session.checked += bool(type.axes)
    located = LocatedCall(op, [("loss", loss)])
    name = located.name(0)
    if not type.axes:
        if session.strict:
            report(session, located, untyped_loss(name, mesh.ordered_axes if mesh is not None else ()))
        return
    for axis, place in zip(type.axes, type.placements, strict=True):
        place.is_pending_sum("backward")  # raises for other kinds
        permitted = session.observe or not session.strict
        own = permitted and place is V and _may_be_added_up(loss, axis)
        averaged = session.observe and session.averages(axis)
        sums = sums_behind(loss, axis) if place is R else None
        for passage in sums or ():
            passage.is_whole = True
        if own or averaged:
            continue  # each rank starts from the loss of its own batch, and somebody adds the gradients up
        if place is R and sums is None:
            said = replicated_loss(name, axis)
            fixes = invariant_instead(loss, axis, said.help[0]) or on_one_rank(located.names[0][1], axis, said.help[-1])
            said = replace(said, fixes=fixes)
            report(session, located, said, axis)
        elif place.is_varying and not lists and not _all_vary(inputs, axis):
            said = varying_loss(name, axis)
            report(session, located, replace(said, fixes=added_up(located.names[0][1], axis, *said.help)), axis)


def _may_be_added_up(loss: torch.Tensor, axis: object) -> bool:
    """May the objective be the sum of the ranks' losses? Then gradients of replicas are addends, which the optimizer's
    gate wants summed, and those of pieces are whole. A parameter that is I says that every rank has the whole loss; one
    of which nothing is known along the axis, as an expert that only some ranks have, says nothing.
    """
    places = [type_of(leaf).get(axis) for leaf in leaves_of([loss])]
    return any(places) and all(place is None or place.is_unknown or place is R or place is V for place in places)


def _all_vary(tensors: Sequence[object], axis: object) -> bool:
    """True if each rank of ``axis`` takes the derivative of its own loss, by nothing that it shares with another."""
    return bool(tensors) and all(isinstance(x, torch.Tensor) and type_of(x).is_varying(axis) for x in tensors)


def _is_variable(seed: torch.Tensor) -> bool:
    """True for zeros by which the gradient will be differentiated: ``autograd.functional.jvp`` derives twice."""
    return seed.requires_grad and seed.is_leaf and not is_transformed(seed) and not seed.detach().any()


def _check_seed(session: CheckSession, root: torch.Tensor, seed: torch.Tensor) -> None:
    """A gradient given for ``root`` must be of the dual type. Errors: SW606."""
    own, given = derived_type(root), type_of(seed)
    if own.ground is not Ground.ABSENT or given.ground in (Ground.ZERO, Ground.UNKNOWN, Ground.EMPTY):
        return
    if _is_variable(seed):
        set_tag(seed, Tag(dual(own)))
        return
    located = LocatedCall("backward", [("tensor", root), ("gradient", seed)])
    for axis, place in zip(own.axes, own.placements, strict=True):
        found = R if given.ground.is_constant else given.get(axis)
        if place.is_unknown or found is None or found.is_unknown:
            continue
        wanted = place.dual
        if is_gradient_of(wanted, found):
            continue
        said = seed_not_dual(located.name(0), located.name(1), axis, place, wanted, found)
        report(session, located, said, axis, operands=located.shown(axis))
