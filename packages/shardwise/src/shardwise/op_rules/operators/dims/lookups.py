"""Values looked up in a table, one by one: the values keep their dims.

Where a value belongs in a sorted table is how many entries come before it: a count, which is summed over shards of the
table.
"""

from __future__ import annotations

from dataclasses import replace

from ...propagation.dim_labels import Call, Fate, Labeller, Labelling, numbered, pointwise
from ..roles import by_role, tensor_at

_SORTER = "the positions in sorter are counted over the whole table"
_COUNTED = "how many elements there are depends on the values of all ranks"
_CLASSES = "without num_classes, the number of classes is one more than the largest index on this rank"


def _bucketed(call: Call) -> Labelling | None:
    return _counted(by_role("input boundaries", "*b, t -> *b")(call))


def _searched(call: Call) -> Labelling | None:
    """One table for all values, or a table for each row of them; ``sorter`` has positions in the whole table."""
    table = tensor_at(call, "sorted_sequence")
    text = "t, *b, t -> *b" if table is None or table.ndim == 1 else "*b t, *b v, *b t -> *b v"
    made = by_role("sorted_sequence values sorter", text)(call)
    if made is None or tensor_at(call, "sorter") is None:
        return _counted(made)
    return replace(made, fates={"t": Fate.OPAQUE}, why={"t": _SORTER})


def _counted(made: Labelling | None) -> Labelling | None:
    return None if made is None else replace(made, fates={"t": Fate.TOTAL})


def _one_hot(call: Call) -> Labelling | None:
    labels = numbered(call.first.ndim)
    if call.get("num_classes", -1) == -1:
        every = dict.fromkeys(labels, _CLASSES)
        return Labelling((labels,), ((*labels, None),), dict.fromkeys(every, Fate.OPAQUE), every)
    return Labelling((labels,), ((*labels, None),))


def _found(call: Call) -> Labelling:
    """Positions of elements: as many as there are."""
    labels = numbered(call.first.ndim)
    return Labelling((labels,), ((),), dict.fromkeys(labels, Fate.OPAQUE), dict.fromkeys(labels, _COUNTED))


LABELS: dict[str, Labeller] = {
    "bucketize": _bucketed,
    "searchsorted": _searched,
    "one_hot": _one_hot,
    "unravel_index": pointwise,
    **dict.fromkeys(["nonzero", "nonzero_static", "argwhere"], _found),
}
