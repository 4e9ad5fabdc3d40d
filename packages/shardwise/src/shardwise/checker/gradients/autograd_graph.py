"""Which tensors does a backward pass accumulate into? Walks the graph that autograd has recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch

from shardwise.interop.torch_compat import no_torch_function

_ACCUMULATE = "AccumulateGrad"


class SumInPlace(Protocol):
    """A raw collective that stands in the graph; ``is_whole``: what comes back in backward is the whole gradient."""

    is_whole: bool


def leaves_of(roots: Iterable[object], inputs: Iterable[object] = ()) -> list[torch.Tensor]:
    """The tensors whose ``.grad`` a backward pass from ``roots`` writes: all leaves, or just ``inputs`` if given.

    Both may hold tensors and gradient edges. The time is proportional to the number of nodes.
    """
    with no_torch_function():
        if inputs:
            found = [_variable(item) for item in inputs]
        else:
            found = _reached([node for root in roots for node in _start(root)])
            found += [root for root in roots if isinstance(root, torch.Tensor) and root.grad_fn is None]
    return list({id(tensor): tensor for tensor in found if tensor is not None and tensor.requires_grad}.values())


def sums_behind(loss: torch.Tensor, axis: object) -> list[SumInPlace] | None:
    """The sums over ``axis``, made in place so that autograd knows nothing of them, that all of ``loss`` comes of; None
    if some of it does not.

    What a rank starts from with 1 is then handed on to its own addends as it is, and that is their gradient.
    """
    found: list[SumInPlace] = []
    with no_torch_function():
        if loss.grad_fn is None:
            return None
        pending: list[Any] = [loss.grad_fn]
        seen = set(pending)
        while pending:
            node = pending.pop()
            passage = getattr(node, "passage", None)
            if passage is not None and passage.axis is axis and passage.sums_addends:
                found.append(passage)
                continue
            if type(node).__name__ == _ACCUMULATE:
                return None
            if passage is None and isinstance(node, torch.autograd.function.BackwardCFunction):
                return None  # nobody knows what it does over the axis
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    pending.append(following)
    return found


def has_sums_behind(loss: torch.Tensor, axis: object) -> bool:
    """Is there any such sum behind ``loss``?"""
    with no_torch_function():
        passages = (getattr(node, "passage", None) for node in _nodes(_start(loss)))
        return any(one is not None and one.axis is axis and one.sums_addends for one in passages)


def _start(root: Any) -> list[object]:
    node = root.grad_fn if isinstance(root, torch.Tensor) else root.node
    return [] if node is None else [node]


def _variable(item: Any) -> torch.Tensor | None:
    if isinstance(item, torch.Tensor):
        return item
    return item.node.variable if type(item.node).__name__ == _ACCUMULATE else None


def _reached(pending: list[object]) -> list[torch.Tensor | None]:
    return [node.variable for node in _nodes(pending) if type(node).__name__ == _ACCUMULATE]


def _nodes(pending: list[object]) -> Iterator[Any]:
    """These nodes and all behind them, each once."""
    seen = set(pending)
    while pending:
        node: Any = pending.pop()
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                pending.append(following)
