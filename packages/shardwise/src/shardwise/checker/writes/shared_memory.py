"""Parameters in a memory of which each rank writes its own part: equal again once all parts are gathered.

Where the optimizer's work is shared out, ``own = flat.chunk(world)[rank]`` is stepped with, and an all-gather puts the
parts of all ranks back into ``flat``, in which the parameters lie; or which is the one parameter. Until then each
rank's parameters are new in one part and old in the others. The finding about that is taken back by what makes the
memory equal: a collective by which all ranks receive into it, or equal values that are written over its parameters.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence

import torch

from shardwise.interop.autograd.gradient_origin import inherit
from shardwise.interop.autograd.parameter_names import names_of
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.tensors.own_references import OwnReference
from shardwise.interop.tensors.tagging import Provenance, Tag, set_type, tag_of, type_of
from shardwise.interop.torch_compat import base_of, no_torch_function, storage_key, storage_of
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import V
from shardwise.types.tensor_type import TensorType

from ..diagnosis.memory_findings import parts_never_gathered
from ..parts.passed_pieces import note_overwritten, stands_unless_sent
from ..state.session import CheckSession
from .gradient_writes import OVERWRITING


def remember_parameter(session: CheckSession, parameter: torch.Tensor) -> None:
    """``parameter`` may lie in memory that others lie in too."""
    with no_torch_function():
        if not parameter.requires_grad:
            return
        storage = storage_of(parameter)
        if storage is None or storage.nbytes() <= parameter.numel() * parameter.element_size():
            session.alone.add(storage_key(parameter))
        else:
            session.beside.setdefault(storage_key(parameter), []).append(OwnReference(parameter))


def lie_beside(session: CheckSession, tensor: torch.Tensor) -> list[torch.Tensor]:
    """The parameters that share the memory of ``tensor``; the one that it is a part of, if no others do."""
    with no_torch_function():
        key = storage_key(tensor)
        found = [one() for one in session.beside.get(key, ())] or [_whole(session, tensor)]
        return [one for one in found if one is not None and one is not tensor and storage_key(one) == key]


def _whole(session: CheckSession, part: torch.Tensor) -> torch.Tensor | None:
    """The parameter of which ``part`` is a view of some elements, of its ``.data`` too."""
    base = base_of(part)
    if base is None or part.numel() >= base.numel():
        return None
    if is_parameter(base):
        return base
    return _owner(session, storage_key(part))


def _owner(session: CheckSession, key: int) -> torch.Tensor | None:
    """The parameter that has a memory for itself, of which no view that is made of ``.data`` tells.

    A weak reference to it would keep torch from swapping its contents, as ``module.to_empty`` does. So all that is
    alive is looked through where such a view is written into, once for all parameters that there are by then.
    """
    if key in session.alone:
        for thing in gc.get_objects():
            if issubclass(type(thing), torch.Tensor) and is_parameter(thing):
                memory = storage_key(thing)
                if memory in session.alone:
                    session.owners[memory] = thing
        session.alone.difference_update([key], session.owners)
    owner = session.owners.get(key)
    return owner if owner is not None and storage_key(owner) == key else None


def is_parameter(x: torch.Tensor) -> bool:
    """A leaf that gets a gradient; torch does not say so of a view whose memory has been written into since."""
    try:
        return x.requires_grad and x.is_leaf
    except RuntimeError:
        return False


def is_part_of_parameter(session: CheckSession, tensor: torch.Tensor) -> bool:
    """True if ``tensor`` varies, and is a part of a parameter, or of the memory of several, that does not."""
    varying = type_of(tensor).varying_axes
    found = lie_beside(session, tensor) if varying else ()
    return any(type_of(parameter).is_equal(axis) for parameter in found for axis in varying)


def own_part_of(session: CheckSession, tensor: torch.Tensor, tag: Tag | None) -> list[object]:
    """The axes along which ``tensor`` varies and is a part of a larger tensor that is equal, and no parameter.

    Only with local types: global ones have no word for what a rank has written in its own part, so that the part could
    not be cut out again to be gathered.
    """
    if tag is None or tag.cell is None or tag.pieces is not None or not session.local:
        return []
    varying, base = tag.current().varying_axes, base_of(tensor)
    if not varying or base is None or base.requires_grad or tensor.numel() >= base.numel():
        return []
    whole = type_of(base)
    return [axis for axis in varying if whole.is_equal(axis)]


def spread_parts(session: CheckSession, written: Sequence[tuple[torch.Tensor, object]], origin: Provenance) -> None:
    """What these tensors are parts of varies from here on, as each rank has written into its own."""
    for tensor, _ in written:
        axes = own_part_of(session, tensor, tag_of(tensor))
        base = base_of(tensor) if axes else None
        if base is not None:
            set_type(base, type_of(base).with_placements(dict.fromkeys(axes, V)), inherit(base, origin))


def check_own_part(session: CheckSession, op: str, part: torch.Tensor, written: TensorType) -> None:
    """``op`` is about to write values of this type into ``part``. SW120, unless all parts are gathered later."""
    if session.collector is None or not (parameters := lie_beside(session, part)):
        return
    for axis in _axes_of_parts(part, written):
        equal = [parameter for parameter in parameters if type_of(parameter).is_equal(axis)]
        if equal:
            count = session.collector.count
            located = LocatedCall(op, [("the part", part)])
            report(session, located, parts_never_gathered(op, located.name(0), names_of(equal), axis), axis)
            stands_unless_sent(session, axis, part, session.collector.added_since(count), parts=True)


def note_written_over(session: CheckSession, op: str, destination: torch.Tensor, written: TensorType) -> None:
    """Equal values are written into ``destination``: a parameter whose memory had parts of its own has none now."""
    if not session.open_findings or op not in OVERWRITING:
        return
    if lie_beside(session, destination) or not _is_part(destination):
        for axis in written.axes:
            if written.is_equal(axis) and isinstance(axis, MeshAxis):
                note_overwritten(session, axis, destination)


def _is_part(tensor: torch.Tensor) -> bool:
    with no_torch_function():
        base = base_of(tensor)
        return base is not None and tensor.numel() < base.numel()


def _axes_of_parts(part: torch.Tensor, written: TensorType) -> Iterator[MeshAxis]:
    for axis in type_of(part).varying_axes:
        if isinstance(axis, MeshAxis) and axis in written and written.is_varying(axis):
            yield axis
