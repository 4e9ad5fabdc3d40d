"""Rows and values looked up in a table: embeddings, sorted tables, classes, and positions of what is found.

The values that are looked up keep their dims. Where a value belongs in a sorted table is how many entries come before
it: a count, which is summed over shards of the table.
"""

from __future__ import annotations

from dataclasses import replace

from ..propagation.dim_labels import Call, Dims, Fate, Labeller, Labelling, numbered
from ..schema import Arguments, Decided, OpRule, opaque
from ..vocabulary.guards import first_of, not_given, only
from ..vocabulary.labellers import by_role, tensor_at
from .gathering import by_parameter
from .indexing import KEEP

_VOCABULARY = (
    "another rank may have the row: the vocab-parallel way is to mask the ids outside this rank's rows, look up, put"
    " zeros where masked and all_reduce the sum"
)
_WHOLE_ROWS = "max_norm and scale_grad_by_freq look at whole rows and all ids"
_BAGS = "where a bag begins is counted over all ids"
_SORTER = "the positions in sorter are counted over the whole table"
_COUNTED = "how many elements there are depends on the values of all ranks"
_CLASSES = "without num_classes, the number of classes is one more than the largest index on this rank"


def _embedded(table: str, ids: str) -> Labeller:
    """``v h, *i -> *i h``; rows that are rescaled, or gradients scaled by how often an id is met, need all of them."""
    read = by_role(f"{table} {ids}", "[v] h, *i -> *i h")

    def label(call: Call) -> Labelling | None:
        made = read(call)
        if made is None:
            return None
        why = {"v": _VOCABULARY}
        if call.get("max_norm") is not None:
            why["h"] = _WHOLE_ROWS
        if call.get("max_norm") is not None or call.get("scale_grad_by_freq"):
            why |= {name: _WHOLE_ROWS for row in made.results for name in row if name and name != "h"}
        return replace(made, fates=dict.fromkeys(why, Fate.OPAQUE), why=why)

    return label


def _bags(call: Call) -> Labelling | None:
    """embedding_bag: bags ``b n``, or ids in one row with the offsets of bags in it."""
    ids, table = tensor_at(call, "input"), tensor_at(call, "weight")
    if ids is None or table is None or table.ndim != 2 or ids.ndim not in (1, 2):
        return None
    bag: Dims = ("b", "n") if ids.ndim == 2 else ("n",)
    result: Dims = ("b" if ids.ndim == 2 else None, "h")
    rows: dict[str, Dims] = {
        "input": bag, "weight": ("v", "h"), "per_sample_weights": bag, "offsets": ("offset",)
    }  # fmt: skip
    why = {"v": _VOCABULARY, "offset": _BAGS}
    fates = dict.fromkeys(why, Fate.OPAQUE)
    summed = call.get("mode", "mean") == "sum" and ids.ndim == 2
    fates["n"] = Fate.TOTAL if summed else Fate.OPAQUE
    why["n"] = _BAGS if ids.ndim == 1 else "a bag's mean or maximum needs all of its ids"
    if call.get("max_norm") is not None or call.get("scale_grad_by_freq"):
        why |= dict.fromkeys(("h", "b", "n"), _WHOLE_ROWS)
        fates |= dict.fromkeys(("h", "b", "n"), Fate.OPAQUE)
    return by_parameter(call, rows, result, fates, why)


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


_FINDS = "one entry for each element found"


def _positions(given: Arguments) -> Decided | None:
    return Decided((given.get("input"),), (0,), _FINDS, KEEP)


def _classes(given: Arguments) -> Decided | None:
    if given.get("num_classes", -1) != -1:
        return None
    text = "one class more than the largest value"
    return Decided((given.get("input"),), (-1,), text, "one_hot(..., num_classes=...)")


_READS_ROWS = "reads rows of the table at positions that are equal on every rank"
_RESCALES = not_given("max_norm", "max_norm rescales each rank's rows")
_LOOKS_UP = "looks values up in a table"
_FINDS_OUT = "has a shape that depends on values: a pending sum does not pass"

RULES = (
    OpRule(
        "embedding",
        linear="weight",
        law=_READS_ROWS,
        source="torch.nn.functional.embedding",
        static=("max_norm",),
        guard=_RESCALES,
        labels=_embedded("weight", "input"),
    ),
    OpRule("torch.embedding", linear="weight", law=_READS_ROWS, labels=_embedded("weight", "indices")),
    OpRule(
        "embedding_bag",
        linear="weight per_sample_weights",
        law="sums or means of rows of the table, bilinear with the weights of the samples",
        source="torch.nn.functional.embedding_bag",
        static=("max_norm", "mode"),
        guard=first_of(_RESCALES, only("mode", "mean", "sum", reason="is not a sum", default="mean")),
        labels=_bags,
    ),
    # Returns index tensors beside its result.
    OpRule("torch.embedding_bag", law="hands back which rows it read", spellings=("_embedding_bag",)),
    *opaque("writes to an operand besides its result", "embedding_renorm_"),
    *opaque(_LOOKS_UP, "bucketize", labels=_bucketed),
    *opaque(_LOOKS_UP, "searchsorted", "sorted_sequence values", labels=_searched),
    OpRule("one_hot", law=f"{_LOOKS_UP}: a pending sum does not pass", lengths=_classes, labels=_one_hot),
    *(OpRule(op, law=_FINDS_OUT, lengths=_positions, labels=_found) for op in ("nonzero", "argwhere")),
    *opaque("has a shape that depends on values", "nonzero_static", labels=_found),
)
