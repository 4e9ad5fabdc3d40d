"""What type does ``.grad`` have, and which sums does a parameter still owe?

While autograd runs a backward pass under checking, every leaf that it reaches gets a gradient of the dual of the
leaf's type: P for a replicate parameter, R for a partial one, V and I for V and I. What the program then does with the
gradient is typed by the ordinary rules, so a raw all-reduce turns P into R. A gradient that arrived while nobody was
checking, or that belongs to a leaf without a type, is unknown: compatible with anything and never reported.

What it has become since, ``interop/autograd/gradients.py`` reads.
Source: docs/semantics.md sections 2 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.autograd.gradient_origin import GradientOrigin, gradient_now, gradient_origin
from shardwise.interop.autograd.gradients import gradient_of, leave_unseen
from shardwise.interop.tensors.derived_types import derived_type
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.tagging import (
    Tag,
    is_pieced,
    local_type,
    pieces_of,
    replace_pieces,
    set_tag,
    tag_of,
    type_of,
)
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.mesh.regions import exponent_over
from shardwise.types.placement import UNKNOWN, P, Placement, R, V
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Exponent, Ground, TensorType

from ..state.session import CheckSession
from ..writes.gradient_writes import into_gradient
from ..writes.write_destination import write
from .autograd_graph import has_sums_behind, sums_behind

NOWHERE: Final[Mapping[MeshAxis, Exponent]] = MappingProxyType({})
"""The scale of a root of which nothing is known."""


@dataclass(slots=True)
class GradientArrival:
    """A tensor whose ``.grad`` the running backward pass accumulates into.

    ``contribution``  the type of what this pass adds.
    ``before``        the type of what was there; None if nothing was.
    ``unseen``        what was there has been made where nothing is checked.
    ``arrived``       the gradient is there and has its type, so the program may be changing it by now.
    """

    variable: torch.Tensor
    contribution: TensorType
    before: TensorType | None = None
    arrived: bool = False
    unseen: bool = False


@dataclass(slots=True)
class BackwardPass:
    """One run of the autograd engine: what it accumulates into, by the id of the tensor, and from where it was started.

    ``returned``  types that tensor hooks have given to gradients in this pass, by the id of their tensor.
    ``reduced``   what was all-reduced in code that nobody could check, such as a hook on a node of the graph.
    ``roots``     the tensors that it starts from.
    ``scale``     that of the roots, by axis.
    ``arrived``   what it and the passes inside it accumulate into, by id.
    """

    arrivals: dict[int, GradientArrival] = field(default_factory=dict)
    returned: dict[int, TensorType] = field(default_factory=dict)
    reduced: list[torch.Tensor] = field(default_factory=list)
    roots: list[torch.Tensor] = field(default_factory=list)
    scale: dict[MeshAxis, Exponent] = field(default_factory=dict)
    arrived: set[int] = field(default_factory=set)


def dual(type: TensorType, root: Mapping[MeshAxis, Exponent] = NOWHERE) -> TensorType:
    """The type of the gradient of a tensor of this type; unknown where the type says nothing.

    ``root``  the scale of what backward starts from, by axis; of ranks that it does not speak of nothing is known.
    """
    if not type.axes or type.ground is not Ground.ABSENT:
        return UNKNOWN_TYPE
    gradient = type.backward_type()
    scale = {axis: _sum_of(exponent_over(axis, root), gradient.exponent(axis)) for axis in gradient.axes}
    return gradient.with_scale(scale)


def root_scale(
    session: CheckSession, roots: Sequence[torch.Tensor], seeds: Sequence[object] = ()
) -> dict[MeshAxis, Exponent]:
    """The scale of what a backward pass starts from: of the roots, times that of the gradients given for them.

    A loss that is equal on all ranks is counted on each of them, where a wrapper averages what they make of it.
    """
    scale: dict[MeshAxis, Exponent] = {}
    mesh = current_entry()
    mapped = frozenset[object]() if mesh is None else mesh.mapped_axes
    for at, root in enumerate(roots):
        type = derived_type(root)
        seed = seeds[at] if at < len(seeds) else None
        given = type_of(seed) if isinstance(seed, torch.Tensor) else UNTYPED
        # A loss of one element starts from 1 where nobody says otherwise; what varies is each rank's own, but where
        # ``vmap`` takes a sharded dim apart, one of the elements that the ranks have together.
        plain = seed is None or (given is UNTYPED and root.ndim == 0)
        for axis in type.axes:
            seeded = 0 if plain else given.exponent(axis)
            own = type.is_varying(axis) and axis not in mapped
            repeated = _times_counted(root, axis) if session.averages(axis) and type.get(axis) is R else 0
            exponent = None if own else _sum_of(type.exponent(axis), _sum_of(seeded, repeated))
            scale[axis] = exponent if scale.get(axis, exponent) == exponent else None
    return scale


def _times_counted(loss: torch.Tensor, axis: object) -> Exponent:
    """How often gradients count a loss that is equal on all ranks: on each of them, but where it is a sum of which
    autograd knows nothing, so that each rank starts from its own addend.
    """
    if sums_behind(loss, axis) is not None:
        return 0
    return None if has_sums_behind(loss, axis) else 1


def _sum_of(one: Exponent, other: Exponent) -> Exponent:
    return None if one is None or other is None else one + other


def is_gradient_of(expected: Placement, found: Placement) -> bool:
    """Can a value of placement ``found`` stand where ``expected`` is wanted along an axis?

    Equal values are welcome where a list of values is, and each rank's own value is its addend to a pending sum.
    """
    if expected.is_pending_sum("a gradient"):
        return found is P or found.is_varying
    if expected.is_varying:
        return not found.is_partial
    return found.is_equal


def accumulated(before: TensorType | None, contribution: TensorType) -> TensorType:
    """The type of a gradient of type ``before`` (None: there is none) to which ``contribution`` has been added."""
    if before is None or before.ground is Ground.ZERO:
        return contribution
    if before.ground is not Ground.ABSENT or not before.axes:
        return UNKNOWN_TYPE
    sum = contribution.with_placements(
        {axis: _sum(before.get(axis), contribution.get(axis)) for axis in contribution.axes}
    )
    if before.scale == contribution.scale:
        return sum
    return sum.rescaled({axis: None for axis in sum.axes if before.exponent(axis) != contribution.exponent(axis)})


def _sum(before: Placement | None, more: Placement) -> Placement:
    if before is None or before.is_unknown or more.is_unknown:
        return UNKNOWN
    pending = [place.is_pending_sum("adding gradients") for place in (before, more)]
    if any(pending):
        return P if all(pending) else UNKNOWN
    return before if before.is_equal and more.is_equal else V


def arrive(arrival: GradientArrival) -> None:
    """Give the gradient of ``arrival`` its type, unless it has it already."""
    gradient = gradient_of(arrival.variable)
    if arrival.arrived or gradient is None:
        return
    arrival.arrived = True
    if is_dtensor(gradient):
        return
    if arrival.unseen:
        leave_unseen(arrival.variable)
        return
    type = accumulated(arrival.before, arrival.contribution)
    tag = tag_of(gradient)
    if is_pieced(gradient):
        more = local_type(arrival.contribution)
        origin = GradientOrigin(user_site(), arrival.variable)
        sums = [replace(p, type=accumulated(p.type, more), origin=origin) for p in pieces_of(gradient)]
        replace_pieces(gradient, sums)
        set_tag(gradient, Tag(type, origin) if tag is None else tag.of_type(type, origin))
        return
    if tag is not None and tag.cell is not None:
        write([(gradient, type)], GradientOrigin(user_site(), arrival.variable))
        return
    kept = None if tag is None or tag.type is not type else gradient_origin(tag)
    set_tag(gradient, Tag(type, kept or GradientOrigin(user_site(), arrival.variable)))


def read(session: CheckSession, variable: torch.Tensor, gradient: torch.Tensor) -> None:
    """``variable.grad`` was read: by now it has its type, also in the middle of a backward pass."""
    if session.passes and id(variable) in session.passes[-1].arrivals:
        arrive(session.passes[-1].arrivals[id(variable)])
    if tag_of(gradient) is not None:
        return
    if variable.is_leaf or is_dtensor(gradient):
        set_tag(gradient, Tag(UNKNOWN_TYPE))
    else:  # nothing but backward writes the gradient that a tensor inside the graph retains
        set_tag(gradient, Tag(dual(type_of(variable)), GradientOrigin(user_site(), variable)))


def assigned(variable: torch.Tensor, before: TensorType, gradient: torch.Tensor) -> None:
    """``variable.grad = gradient``, after a gradient of type ``before``: it is typed as what was assigned."""
    tag = tag_of(gradient)
    if tag is None or is_dtensor(gradient) or is_dtensor(variable):
        return
    if tag.pieces is not None:
        own, type = dual(type_of(variable)), tag.type_for(gradient)
        if own.axes == type.axes:  # the pieces have no dims, the gradient has those of its parameter
            changes = {axis: type.get(axis) for axis in own.axes if type.get(axis) is not own.get(axis)}
            set_tag(gradient, tag.of_type(own.with_placements(changes) if changes else own, tag.origin))
        return
    type = tag.current()
    origin = gradient_origin(tag)
    made_anew = origin is None or origin.parameter is not variable  # what it was before has nothing to do with it
    believed = type if made_anew else into_gradient(variable, before, type)
    if origin is None or origin.parameter is not variable or believed is not type:
        cell = tag.cell if believed is type else None
        set_tag(gradient, Tag(believed, gradient_now(variable, tag.origin), cell))
