"""What types would a function's results have, without running it? It runs on tensors that have no data, checked.

Collectives inside move nothing, random operators draw nothing, and what the function writes into tensors that it
captures is not written. A function whose course depends on values cannot be run like this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.running.session import paused
from shardwise.interop.tensors.tagging import Provenance, Tag, set_tag, tag_of
from shardwise.interop.torch_compat import (
    fake_mode_of,
    fake_tensor_mode,
    forget_fakes,
    is_batched,
    is_fake,
    outside_transforms,
    tree_leaves,
    tree_map,
    without_data,
)
from shardwise.types.tensor_type import TensorType

from ..state.session import CheckSession


class NotDry(Exception):
    """The function cannot be run without data, or fails; the reason is its cause."""


class Laboratory:
    """Where one operator's functions run dry: tensors made here meet each other and the program's own.

    The operator may itself stand in a function that runs dry, or in a program on tensors without data.
    """

    def __init__(self, session: CheckSession, operands: object) -> None:
        self.session = session
        fakes = [leaf for leaf in tree_leaves(operands) if is_fake(leaf)]
        self.is_dry = session.dry is not None or bool(fakes)
        """Operands have no values, so there is nothing to run but this."""
        self.mode = session.dry or (fake_mode_of(fakes[0]) if fakes else fake_tensor_mode())

    def stand_in(self, value: object, like: Tag | None = None, *, grad: bool = False, rows: int | None = None) -> Any:
        """A tensor without data in place of ``value``, of its type or tagged ``like``; other values as they are.

        ``grad``  it takes a gradient also if ``value`` does not. ``rows``: of another dim in front.
        """
        if not isinstance(value, torch.Tensor):
            return value
        kind: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
        with paused(self.session), outside_transforms(), self.mode:
            if rows is None and not is_batched(value):  # what vmap wraps has no strides of its own
                made = torch.empty_strided(value.shape, value.stride(), **kind)
            else:
                made = torch.empty((*(() if rows is None else (rows,)), *value.shape), **kind)
            made.requires_grad_(value.requires_grad or grad)
        tag = tag_of(value) if like is None else like
        if tag is not None:
            set_tag(made, Tag(tag.current(), tag.origin))
        return made

    def retype(self, made: torch.Tensor, type: TensorType, origin: Provenance = None) -> None:
        """Give a tensor that was made here another type."""
        tag = tag_of(made)
        set_tag(made, Tag(type, origin if tag is None or origin is not None else tag.origin))

    def stand_ins(self, values: object) -> Any:
        """``stand_in`` of every leaf."""
        return tree_map(self.stand_in, values)

    def run(self, function: Callable[..., object], operands: Sequence[object]) -> object:
        """What ``function`` gives for stand-ins, typed. Errors: NotDry; SpmdTypeError for what is wrong inside."""
        before = self.session.dry
        self.session.dry = self.mode
        try:
            with outside_transforms(), without_data(self.mode), self.session.again():
                return function(*operands)
        except SpmdTypeError:
            raise
        except Exception as error:
            raise NotDry from error
        finally:
            self.session.dry = before
            if before is None and not self.is_dry:
                forget_fakes(self.mode)
