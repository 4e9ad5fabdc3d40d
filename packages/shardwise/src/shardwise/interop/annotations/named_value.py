"""``checkpoint_value``: what the program calls by a name is what it computes on one device."""

from __future__ import annotations

from typing import TypeVar

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.printing.printable import safe_str
from shardwise.types.tensor_type import TensorType

from ..running.recording import named
from ..tensors.tagging import tag_of
from .asserting import settle
from .refining import refine

T = TypeVar("T")


def checkpoint_value(name: str, x: T) -> T:
    """Have ``shardwise verify`` compare ``x``, a tensor, with the run on one rank. Returns ``x``.

    ``name``  what it is called in the report; in a loop the calls are numbered.
    Errors: SW152 where ``x`` is known to be equal everywhere, or a shard, and an axis's size too large or too small.

    Example:
        >>> hidden = checkpoint_value("hidden", torch.ones(4) * 2)
    """
    tag = tag_of(x)
    if tag is not None:
        _check_scale(name, x, tag.current())
    named(name, x)
    return x


def _check_scale(name: str, x: object, type: TensorType) -> None:
    if any(type.scale.values()):
        try:
            refine(type, type.with_scale({}), gradient_free=True, name=safe_str(name))
        except SpmdTypeError as error:
            if not settle(error, x, "checkpoint_value"):
                raise
