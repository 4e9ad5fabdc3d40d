"""May a gradient be searched for infinities before it is summed? Yes: each rank's answer is its own.

Loss scaling looks at the addends, because an overflow on one rank spoils the sum, and then agrees over all ranks.
"""

from __future__ import annotations

import torch

from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.types.placement import V

from ..operators.ordinary import Handler
from ..state.session import CheckSession

SEARCHES = ("isinf", "isnan", "isfinite")


def searching(usual: Handler) -> Handler:
    """The handler of such a search, which ``usual`` handles where its operand is no pending gradient."""

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        x = args[0] if args else kwargs.get("input", kwargs.get("self"))
        type = type_of(x)
        if not type.partial_axes or gradient_origin(tag_of(x)) is None:
            return usual(session, func, args, kwargs)
        result = func(*args, **kwargs)
        session.checked += 1
        if isinstance(result, torch.Tensor):
            set_tag(result, Tag(type.with_placements({axis: V for axis in type.axes if type.is_partial(axis)})))
        return result

    return handle
