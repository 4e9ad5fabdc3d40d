"""Which operand of a call is which? Signatures whose terms belong to parameters, not to positions.

``linear(x, w, bias=b)``, ``linear(x, bias=b, weight=w)`` and ``linear(x, w)`` are one rule. ``by_role`` writes it as a
term per parameter; ``stretched`` does the same for labels that were computed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

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
    all_rules: Sequence[Sequence[Label]],
    tensors: Sequence[Shape],
    results: Sequence[Dims],
    fates: Mapping[Label, Fate] | None = None,
    why: Mapping[Label, str] | None = None,
) -> Labelling | None:
    """The labels of operands whose dims of size 1 are stretched to the size that the label has elsewhere.

    None if the sizes do not match, so that the call is bound to fail.
    """
    if any(len(rule) != tensor.ndim for rule, tensor in zip(all_rules, tensors, strict=True)):
        return None
    size: dict[Label, int] = {}
    for rule, tensor in zip(all_rules, tensors, strict=True):
        for label, extent in zip(rule, tensor.shape, strict=True):
            if size.setdefault(label, extent) == 1:
                size[label] = extent
            elif extent not in (1, size[label]):
                return None
    operands = tuple(
        tuple(None if extent == 1 and size[label] != 1 else label for label, extent in zip(rule, t.shape, strict=True))
        for rule, t in zip(all_rules, tensors, strict=True)
    )
    single = {
        (at, label)
        for at, (rule, tensor) in enumerate(zip(all_rules, tensors, strict=True))
        for label, extent in zip(rule, tensor.shape, strict=True)
        if extent == 1 and size[label] == 1
    }
    return Labelling(operands, tuple(results), fates or {}, why or {}, spread=frozenset(single))
