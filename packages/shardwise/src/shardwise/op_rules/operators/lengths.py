"""Which operators give a tensor whose size depends on values? Each says by which operand, and along which dim.

The size is a number that every rank finds for itself. Where the deciding operand differs between ranks, so do the
lengths of the results, and a collective on them does not fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .dims.indexing import planned


@dataclass(frozen=True, slots=True)
class Decided:
    """``by``: the operands whose values decide; ``dims``: of every result the dim that they decide, None for none.

    A single entry in ``dims`` is for all results. ``text``: what the size of the dim is, in words; ``instead``: how the
    same is had with a size that no value decides.
    """

    by: tuple[Any, ...]
    dims: tuple[int | None, ...]
    text: str
    instead: str


Arguments = Mapping[str, Any]
Decider = Callable[[Arguments], Decided | None]
"""Of a call with these arguments by name; None: its shape depends on shapes only."""

_SELECTS = "one entry for each element that the mask selects"
_FINDS = "one entry for each element found"
_KEEP = "keep the rows that are not meant: torch.where(mask, x, 0) in place of x[mask], or a fixed capacity"


def _found(given: Arguments) -> Decided | None:
    return Decided((given.get("input"),), (0,), _FINDS, _KEEP)


def _where(given: Arguments) -> Decided | None:
    return None if len(given) > 1 else Decided((given.get("condition"),), (0,), _FINDS, _KEEP)


def _selected(given: Arguments) -> Decided | None:
    return Decided((given.get("mask"),), (0,), _SELECTS, _KEEP)


def _indexed(given: Arguments) -> Decided | None:
    index = given.get("index")
    if _is_mask(index):
        return Decided((index,), (0,), _SELECTS, _KEEP)
    items = index if isinstance(index, tuple) else (index,)
    masks = tuple(item for item in items if _is_mask(item))
    plan = planned(given["input"].shape, index) if masks and "input" in given else None
    return None if plan is None else Decided(masks, (plan.place,), _SELECTS, _KEEP)


def _is_mask(item: Any) -> bool:
    return str(getattr(item, "dtype", "")) == "torch.bool"


def _distinct(given: Arguments) -> Decided | None:
    dim = given.get("dim")
    values = 0 if dim is None else dim
    return Decided(
        (given.get("input"),),
        (values, *(None,) * bool(given.get("return_inverse")), *(0,) * bool(given.get("return_counts"))),
        "one entry for each distinct value",
        "count in bins that are the same on every rank: torch.bincount(..., minlength=...) or torch.histc",
    )


def _repeated(given: Arguments) -> Decided | None:
    if given.get("output_size") is not None:
        return None
    repeats = given.get("repeats", given.get("input"))
    text, instead = "as many entries as the repeats add up to", "pad the result to a fixed capacity"
    return Decided((repeats,), (given.get("dim") or 0,), text, instead)


def _binned(given: Arguments) -> Decided | None:
    if given.get("minlength"):
        return None
    return Decided((given.get("input"),), (0,), "one bin more than the largest value", "bincount(..., minlength=...)")


def _classes(given: Arguments) -> Decided | None:
    if given.get("num_classes", -1) != -1:
        return None
    text = "one class more than the largest value"
    return Decided((given.get("input"),), (-1,), text, "one_hot(..., num_classes=...)")


DECIDED: Mapping[str, Decider] = {
    "nonzero": _found,
    "argwhere": _found,
    "torch.where": _where,
    "masked_select": _selected,
    "getitem": _indexed,
    "unique": _distinct,
    "unique_consecutive": _distinct,
    "repeat_interleave": _repeated,
    "bincount": _binned,
    "one_hot": _classes,
}
"""By the name of the operator's rule."""
