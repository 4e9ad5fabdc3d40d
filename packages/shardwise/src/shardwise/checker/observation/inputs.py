"""What a data parallel wrapper says of what its model is called with: each rank's own data.

Where gradients are averaged over ranks, each of them has computed its own from data of its own. So what nobody has
typed among the inputs of the modules that the program calls is V there, which is also true of what happens to be equal.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.tagging import Origin, Provenance, Tag, set_part, set_tag, tag_of, type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import V
from shardwise.types.tensor_type import UNTYPED, Ground, TensorType

from ..state.session import CheckSession

_ASSUMED = "an input of a data parallel model"
OF_MEGATRON = "an input of a model of Megatron"
CONSTANT_OF_MEGATRON = "a constant that a model of Megatron is called with"


def type_data(session: CheckSession, inputs: Iterable[object]) -> None:
    """Type those of ``inputs`` that are data and have no type as each rank's own, over the axes of averages."""
    data = [x for x in inputs if isinstance(x, torch.Tensor) and is_data(x)]
    if data:
        type = TensorType.of(dict.fromkeys(averaging_axes(session), V))
        origin = Origin(user_site(), _ASSUMED)
        for x in data:
            put_type(x, type, origin)


def is_assumed(x: torch.Tensor) -> bool:
    """That ``x`` is each rank's own is what its model is taken to want, and nobody has said."""
    tag = tag_of(x)
    return tag is not None and isinstance(tag.origin, Origin) and tag.origin.text in (_ASSUMED, OF_MEGATRON)


def is_constant(x: torch.Tensor) -> bool:
    """That ``x`` is one, or was before the marks of its model gave it a type: a mask, positions."""
    tag = tag_of(x)
    origin = None if tag is None else tag.origin
    return type_of(x).ground.is_constant or (isinstance(origin, Origin) and origin.text == CONSTANT_OF_MEGATRON)


def is_data(x: torch.Tensor) -> bool:
    """True if nobody has typed ``x``, and it is not what another part of the model has made.

    A constant may be one too: positions of the documents that a rank has packed are made of ``arange``.
    """
    known = type_of(x)
    return not is_made(x) and (known is UNTYPED or known.ground is Ground.CONSTANT)


def is_made(x: torch.Tensor) -> bool:
    """True if ``x`` may be what another part of the model has made, or tells its layout itself."""
    return x.requires_grad or (x.is_floating_point() and not torch.is_grad_enabled()) or is_dtensor(x)


def put_type(x: torch.Tensor, type: TensorType, origin: Provenance) -> None:
    """Type ``x``, and of the memory that it shares with others nothing else."""
    tag = tag_of(x)
    if tag is None or tag.cell is None:
        set_tag(x, Tag(type, origin))
    else:
        set_part(x, type, origin)


def averaging_axes(session: CheckSession) -> list[MeshAxis]:
    """Of the axes of averages the widest that have nothing in common, so that they are of one mesh."""
    chosen: list[MeshAxis] = []
    for axis in sorted(session.averaged, key=lambda one: (-one.size(), str(one))):
        if all(axis.isorthogonal(one) for one in chosen):
            chosen.append(axis)
    return chosen
