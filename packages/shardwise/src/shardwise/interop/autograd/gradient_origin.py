"""Is this tensor a gradient, or made of one? What arrives by backward carries an origin of its own kind.

Origins are handed on by every operator, so a bucket that gradients were put into, a copy in another dtype, or an
accumulation buffer still knows that gradients are in it.
"""

from __future__ import annotations

import torch

from shardwise.diagnostics.source import Site
from shardwise.diagnostics.source_location import SourceLocation

from ..tensors.dtensors import local_part
from ..tensors.own_references import OwnReference
from ..tensors.tagging import Origin, Provenance, Tag, tag_of
from ..torch_compat import no_torch_function, same_memory


class GradientOrigin(Origin):
    """The history of a gradient starts here; ``parameter`` is what it is the gradient of, while that is alive.

    ``arrived``  the call of backward by which it arrived, also if it was written since; None where nobody has seen it.
    """

    __slots__ = ("_parameter", "arrived")

    def __init__(
        self,
        site: Site | None,
        parameter: torch.Tensor,
        parent: Origin | None = None,
        arrived: Site | None = None,
    ) -> None:
        super().__init__(site, "the gradient that arrived by this call", parent)
        self._parameter = OwnReference(parameter)
        self.arrived = arrived or site
        self.gradient = self

    @property
    def parameter(self) -> torch.Tensor | None:
        return self._parameter()


def gradient_origin(tag: Tag | None) -> GradientOrigin | None:
    """Where the history of a tensor with this tag goes back to a gradient; None if it does not."""
    if tag is None:
        return None
    found = None if tag.origin is None else beginning(tag.origin)
    pieces = None if found is not None else tag.pieces
    if pieces is not None:
        return next((one for piece in pieces.pieces if (one := beginning(piece.origin)) is not None), None)
    return found


def beginning(origin: Provenance) -> GradientOrigin | None:
    """The same for an origin, or a tuple of them."""
    if not isinstance(origin, tuple):
        return None if origin is None else origin.gradient
    return next((one.gradient for one in origin if one is not None and one.gradient is not None), None)


def inherit(tensor: object, origin: Provenance) -> Provenance:
    """``origin``, or one that also says that ``tensor``, which is written into, was a gradient and stays that one."""
    own = gradient_origin(tag_of(tensor))
    if own is None or beginning(origin) is own:
        return origin
    parameter = own.parameter
    return Origin(None, "", own) if parameter is None else gradient_now(parameter, origin, own.arrived)


def gradient_now(parameter: torch.Tensor, origin: Provenance, arrived: Site | None = None) -> GradientOrigin:
    """The origin of what became the gradient of ``parameter``, and came about as ``origin`` says."""
    first = next((one for one in origin if one is not None), None) if isinstance(origin, tuple) else origin
    return GradientOrigin(None, parameter, first, arrived)


def arrival(gradient: object) -> SourceLocation | None:
    """The call of backward by which a gradient, or what a value is made of, arrived."""
    origin = gradient_origin(tag_of(gradient))
    return None if origin is None or origin.arrived is None else origin.arrived.location()


def origin_after(tensor: object, site: Site | None, text: str) -> Origin:
    """The origin of what a collective has left in ``tensor``; a gradient stays one."""
    return Origin(site, text, gradient_origin(tag_of(tensor)))


def owner_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The leaf whose ``.grad`` is ``tensor`` or all of its memory; None if it is not a gradient but made of one."""
    origin = gradient_origin(tag_of(tensor))
    parameter = None if origin is None else origin.parameter
    if parameter is None:
        return None
    with no_torch_function():
        gradient = parameter.grad if parameter.is_leaf or parameter.retains_grad else None
        if gradient is None:
            return None
        gradient = local_part(gradient)
        if gradient.numel() != tensor.numel():
            return None
        if gradient is tensor:
            return parameter
        same = same_memory(gradient, tensor) and gradient.storage_offset() == tensor.storage_offset()
        return parameter if same else None
