"""How does a rank reduce its own samples to its loss? The graph of a loss tells whether it is their mean.

cross_entropy(logits, targets)                    a mean of as many as there are: nothing is to be said
losses.sum() / len(x), kl_div(.., "batchmean")    so it is: the divisor is the first size of what is summed
losses.sum(), mse_loss(.., reduction="sum")       a sum
(losses * mask).sum() / mask.sum()                a sum, by what this rank has of its own
cross_entropy(logits, targets) with ignored ones  a mean of those that this rank has, if rows ignore others each
loss + 0.01 * weight.pow(2).sum()                 the sum is of parameters, which are no samples
cross_entropy(logits, targets) / world            a mean, times a power of the number of ranks

The mean over ranks of their means is the mean of all samples where each has as many. Of anything else it is that only
if the program makes up for it, and somebody has to know how.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Sequence
from typing import Any

import torch
from torch.autograd.graph import Node

from shardwise.types.tensor_type import Power

from ..running.recording import has_values
from ..torch_compat import no_modes, saved_by

SUM = "a sum over what the rank has"
PARTIAL_MEAN = "a mean over those targets that the rank does not ignore, or by weights of its own"

MEAN_BY_RANKS = "a mean over what the rank has, multiplied or divided by the number of ranks, as an average is not"
BY_RANKS = "shardwise ranks"
"""Under this name a node keeps the power of the number of ranks by which it multiplies."""

_SUMS = frozenset({"SumBackward0", "SumBackward1", "DotBackward0"})
_THROUGH = frozenset(
    f"{name}Backward0"
    for name in ("Add", "Sub", "Neg", "ToCopy", "Squeeze", "Unsqueeze", "View", "Reshape", "Clone", "Stack", "Alias")
)
"""What gives one number of one or several, or puts several beside each other."""
_OF_ELEMENTS = frozenset(
    f"{name}Backward0"
    for name in ("Pow", "Mul", "Abs", "Neg", "Add", "Sub", "View", "Reshape", "T", "Transpose", "Clone", "ToCopy")
)
"""What is made of parameters' elements, as the terms of a penalty are, and not by a model of data."""
_MEAN, _SUM = 1, 2
"""What a loss keeps as its reduction."""
_UNSIGNED = 1 << 64
"""A node keeps a negative index to ignore as this many more."""
_ROWS = 4096
"""Of so many samples less one at most it is asked whether they ignore the same targets."""
_MOST = 256
"""Nodes of a graph that are looked at."""


def own_reduction(loss: torch.Tensor, shared: Container[float] = ()) -> str | None:
    """What ``loss``, a tensor of one element, is of a rank's samples, if that is not their mean; None if it is, or if
    the graph does not tell.

    ``shared``  numbers that ranks have added up, which where one rank runs may be what this one has of its own.
    """
    with no_modes():  # those that record calls take numbers for what they are not
        if loss.numel() != 1:
            return None
        return next(_reductions(loss.grad_fn, shared), None)


def _reductions(root: Node | None, shared: Container[float]) -> Iterator[str]:
    """``pending`` are nodes, each with what its result is divided by on the way to the loss, and by which power of the
    number of ranks it is multiplied.
    """
    pending: list[tuple[Node | None, tuple[float, ...], Power]] = [(root, (), 0)]
    for _ in range(_MOST):
        if not pending:
            return
        node, divisors, power = pending.pop()
        if node is None:
            continue
        metadata: Any = node.metadata
        power += metadata.get(BY_RANKS, 0)
        name, inner = node.name(), [below for below, _ in node.next_functions]
        reduction = saved_by(node, "reduction")
        if name.startswith("DivBackward"):
            by = [number for number in _number(saved_by(node, "other"), 1) if number not in shared]
            pending.append((inner[0], (*divisors, *by), power))
        elif name.startswith("MulBackward"):
            factors = (*_number(saved_by(node, "other"), -1), *_number(saved_by(node, "self"), -1))
            if math.inf not in factors:  # 0 * x keeps a parameter in the graph, and is no term
                pending += [(below, (*divisors, *factors), power) for below in inner]
        elif (
            name in _THROUGH
            or _is_of_one(node)
            or (name in _SUMS and all(one and one.name() == "StackBackward0" for one in inner))
        ):
            pending += [(below, divisors, power) for below in inner]
        elif name in _SUMS or reduction == _SUM:
            if not _is_mean(_sizes(node), divisors) and not _is_of_parameters(inner):
                yield SUM
        elif reduction == _MEAN and name.startswith("NllLoss") and _counts_anew(node):
            yield PARTIAL_MEAN
        elif power and (reduction == _MEAN or name.startswith("MeanBackward")) and not _is_of_parameters(inner):
            yield MEAN_BY_RANKS


def _number(value: object, power: int) -> tuple[float, ...]:
    """A number that is saved, as what is divided by; none if it is a tensor of several elements."""
    if isinstance(value, torch.Tensor):
        told = value.numel() == 1 and not value.requires_grad and not value.is_complex() and has_values(value)
        value = value.item() if told else None
    if not isinstance(value, (int, float)):
        return ()
    return (float(value) ** power if value else math.inf,)


def _sizes(node: object) -> Sequence[int]:
    sizes = saved_by(node, "self_sym_sizes")
    if isinstance(sizes, tuple):
        return sizes
    x = next((x for x in (saved_by(node, name) for name in ("target", "self", "tensor")) if x is not None), None)
    return tuple(x.shape) if isinstance(x, torch.Tensor) else ()


def _is_of_one(node: Node) -> bool:
    """Does it add up, or average, one number? ``losses.sum().mean()`` is what ``losses.sum()`` is."""
    return node.name().startswith(("SumBackward", "MeanBackward")) and math.prod(_sizes(node)) == 1


def _is_mean(sizes: Sequence[int], divisors: Sequence[float]) -> bool:
    """Is what is summed divided by its first size, alone or with others? There is one of what has one element."""
    if math.prod(sizes) == 1:
        return True
    counts = {sizes[0] * math.prod(rest) for rest in _subsets(sizes[1:])} if sizes else set()
    return any(math.isclose(math.prod(some), count) for some in _subsets(divisors) for count in counts if count > 1)


def _subsets(values: Sequence[float]) -> Iterator[tuple[float, ...]]:
    few = values[:8]
    return itertools.chain.from_iterable(itertools.combinations(few, count) for count in range(len(few) + 1))


def _counts_anew(node: object) -> bool:
    """Does a mean over targets divide by something else than their number?"""
    target, total = saved_by(node, "target"), saved_by(node, "total_weight")
    if not isinstance(target, torch.Tensor) or not isinstance(total, torch.Tensor):
        return False
    if not has_values(total) or not has_values(target) or bool(total == target.numel()):
        return False
    ignored = saved_by(node, "ignore_index")
    if saved_by(node, "weight") is not None or not isinstance(ignored, int):
        return True
    # As where the last position of every row has nothing to predict: so it is on every rank.
    left_out = (target == (ignored if ignored < _UNSIGNED // 2 else ignored - _UNSIGNED)).flatten()
    rows = [left_out.view(count, -1) for count in range(2, min(len(left_out), _ROWS)) if len(left_out) % count == 0]
    return not any(bool((row == row[:1]).all()) and not row.all() for row in rows)


def _is_of_parameters(nodes: Sequence[Node | None]) -> bool:
    """Do these nodes lead to leaves alone, and only through what is done to single elements?"""
    pending = list(nodes)
    for _ in range(_MOST):
        if not pending:
            return True
        node = pending.pop()
        if node is None:
            continue
        if node.name() in _OF_ELEMENTS:
            pending += [below for below, _ in node.next_functions]
        elif not node.name().endswith("AccumulateGrad"):
            return False
    return False
