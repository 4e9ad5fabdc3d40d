"""How are the calls handled that there is nothing to judge about? Metadata, copies, gradients, fused optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shardwise.interop.autograd.gradients import gradient_type
from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of
from shardwise.interop.torch_call import TorchFunction
from shardwise.types.tensor_type import UNKNOWN_TYPE, constant_type

from ..state.session import CheckSession
from ..writes.gradient_writes import overwritten
from ..writes.write_destination import write
from . import gradient_types as gradients

_ZEROS = constant_type((), zero=True)

Args = Sequence[Any]
Kwargs = Mapping[str, Any]


def pass_through(session: CheckSession, func: TorchFunction, args: Args, kwargs: Kwargs) -> object:
    """Metadata: nothing to check, nothing to type."""
    return func(*args, **kwargs)


def copied(session: CheckSession, func: TorchFunction, args: Args, kwargs: Kwargs) -> object:
    """``copy.deepcopy`` of a tensor: a parameter's copy is made through ``.data`` and would lose the tag."""
    result = func(*args, **kwargs)
    if tag_of(result) is None and (tag := tag_of(args[0])) is not None:
        set_tag(result, Tag(tag.current(), tag.origin))
    return result


def gradient(session: CheckSession, func: TorchFunction, args: Args, kwargs: Kwargs) -> object:
    """``x.grad``, which has its type by the time it can be read."""
    result = func(*args, **kwargs)
    if isinstance(result, torch.Tensor):
        gradients.read(session, args[0], result)
    return result


def set_gradient(session: CheckSession, func: TorchFunction, args: Args, kwargs: Kwargs) -> object:
    """``x.grad = value``."""
    before = gradient_type(args[0])
    result = func(*args, **kwargs)
    if isinstance(args[1], torch.Tensor):
        gradients.assigned(args[0], before, args[1])
    return result


def zero_each(session: CheckSession, func: TorchFunction, args: Args, kwargs: Kwargs) -> object:
    """``torch._foreach_zero_``, with which optimizers clear gradients that they keep."""
    result = func(*args, **kwargs)
    for tensor in args[0]:
        type = overwritten("zero_", tensor, _ZEROS)
        if type is not None:
            write([(tensor, type)], None)
    return result


def optimizer(session: CheckSession, func: TorchFunction, args: Args, kwargs: Kwargs) -> object:
    """Fused updates of many tensors at once: destinations keep their declared types, results are not judged."""
    result = func(*args, **kwargs)
    for item in result if isinstance(result, (list, tuple)) else ():
        if isinstance(item, torch.Tensor) and tag_of(item) is None:
            set_tag(item, Tag(UNKNOWN_TYPE))
    return result
