"""What labellers of several families are made of: terms by parameter, maps of dims, and readers of arguments.

``by_role`` writes a signature as a term per parameter: ``linear(x, w, bias=b)``, ``linear(x, bias=b, weight=w)`` and
``linear(x, w)`` are one rule. ``stretched`` does the same for labels that were computed. ``moved`` makes the labels of
a call that only moves elements, from a map "dim of the operand -> dim of the result". The rest reads arguments, which
torch lets a program spell in several ways: ``x.permute(1, 0)``, ``x.permute((1, 0))``, ``torch.permute(x, dims=(1,
0))``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..propagation.dim_labels import Call, Dims, Fate, Label, Labeller, Labelling, Shape, signature

_cached = functools.cache(signature)


def by_role(params: str, text: str) -> Labeller:
    """The labeller for a signature with one term for each of the parameters ``params``, any of which may be absent."""
    left, _, right = text.partition("->")
    terms = dict(zip(params.split(), left.split(","), strict=True))

    def label(call: Call) -> Labelling | None:
        if any(tensor.param not in terms for tensor in call.tensors):
            return None
        return _cached(", ".join(terms[tensor.param] for tensor in call.tensors) + " -> " + right)(call)

    return label


def because(why: str, labeller: Labeller) -> Labeller:
    """``labeller``, with the reason why its opaque labels are opaque."""

    def label(call: Call) -> Labelling | None:
        made = labeller(call)
        return None if made is None else replace(made, why=dict.fromkeys(made.fates, why))

    return label


def tensor_at(call: Call, param: str) -> Shape | None:
    """The tensor that was given for ``param``."""
    return next((tensor for tensor in call.tensors if tensor.param == param), None)


def stretched(
    rows: Sequence[Sequence[Label]],
    tensors: Sequence[Shape],
    results: Sequence[Dims],
    fates: Mapping[Label, Fate] | None = None,
    why: Mapping[Label, str] | None = None,
) -> Labelling | None:
    """The labels of operands whose dims of size 1 are stretched to the size that the label has elsewhere.

    None if the sizes do not match, so that the call is bound to fail.
    """
    if any(len(row) != tensor.ndim for row, tensor in zip(rows, tensors, strict=True)):
        return None
    size: dict[Label, int] = {}
    for row, tensor in zip(rows, tensors, strict=True):
        for label, extent in zip(row, tensor.shape, strict=True):
            if size.setdefault(label, extent) == 1:
                size[label] = extent
            elif extent not in (1, size[label]):
                return None
    operands = tuple(
        tuple(None if extent == 1 and size[label] != 1 else label for label, extent in zip(row, t.shape, strict=True))
        for row, t in zip(rows, tensors, strict=True)
    )
    single = {
        (at, label)
        for at, (row, tensor) in enumerate(zip(rows, tensors, strict=True))
        for label, extent in zip(row, tensor.shape, strict=True)
        if extent == 1 and size[label] == 1
    }
    return Labelling(operands, tuple(results), fates or {}, why or {}, spread=frozenset(single))


def moved(
    call: Call,
    target: Mapping[int, int],
    ndim: int,
    why: str | Mapping[int, str] = "",
    *,
    fate: Fate = Fate.OPAQUE,
    even: Iterable[int] = (),
    grouped: Iterable[int] = (),
) -> Labelling:
    """Labels of a call whose first operand has its dims moved as ``target`` says into a result of ``ndim`` dims.

    Dims with the same target share a label. ``why``: for all other dims, or one by one, why they cannot be sharded.
    ``even``: dims of the operand whose shards must be of one size, or the ranks' results would not fit together.
    ``grouped``: dims whose shards must be whole groups, or the call itself fails.
    Further operands are positions; none of their dims can be sharded.
    """
    dims = tuple(f"d{target[dim]}" if dim in target else f"x{dim}" for dim in range(call.first.ndim))
    lost = [dim for dim in range(call.first.ndim) if dim not in target]
    reasons = why if isinstance(why, Mapping) else dict.fromkeys(lost, why)
    kept = set(target.values())
    result: Dims = tuple(f"d{dim}" if dim in kept else None for dim in range(ndim))
    return Labelling(
        (dims, *(unshardable(tensor) for tensor in call.tensors[1:])),
        (result,),
        {f"x{dim}": fate for dim in lost},
        {f"x{dim}": reasons[dim] for dim in lost if reasons.get(dim)},
        even=frozenset(f"d{target[dim]}" for dim in even if dim in target),
        grouped=frozenset(f"d{target[dim]}" for dim in grouped if dim in target),
    )


def kept(
    call: Call, lost: Iterable[int] = (), why: str = "", *, fate: Fate = Fate.OPAQUE, grouped: Iterable[int] = ()
) -> Labelling:
    """Labels of a call that leaves every dim in its place; those that are ``lost`` cannot be sharded."""
    without = set(lost)
    ndim = call.first.ndim
    return moved(call, {dim: dim for dim in range(ndim) if dim not in without}, ndim, why, fate=fate, grouped=grouped)


def unshardable(tensor: Shape) -> Dims:
    """The labels of a tensor that must be whole on every rank."""
    return (None,) * tensor.ndim


def argument(call: Call, *names: str, default: object = None) -> Any:
    """The argument that goes by one of ``names``."""
    return next((value for name in names if (value := call.get(name)) is not None), default)


def wrapped(dim: int, ndim: int) -> int:
    """A tensor dim counted from the front; a scalar has the dims 0 and -1. Errors: IndexError where there is none."""
    count = max(ndim, 1)
    if not -count <= dim < count:
        raise IndexError(f"dim {dim} of {ndim}")
    return dim % count


def dims_of(value: int | Sequence[int], ndim: int) -> list[int]:
    """One dim or several, counted from the front."""
    return [wrapped(dim, ndim) for dim in ([value] if isinstance(value, int) else value)]


def listed(call: Call, *names: str) -> list[int] | None:
    """The numbers given as one list, or one by one after the operand; None if they are not plain numbers."""
    value = argument(call, *names)
    if value is None or type(value) is int:
        value = [each for each in call.arguments.values() if type(each) is int]
    if not isinstance(value, (list, tuple)) or not all(type(each) is int for each in value):
        return None
    return list(value)


def shared_in(call: Call, *names: str) -> list[int]:
    """The places of the numbers in ``listed`` that are one n-th of those on one device."""
    value = argument(call, *names)
    if isinstance(value, (list, tuple)):
        return [at for name, at in call.shared if value is call.get(name)]
    plain = [name for name, each in call.arguments.items() if type(each) is int]
    return [at for at, name in enumerate(plain) if call.is_shared(name)]
