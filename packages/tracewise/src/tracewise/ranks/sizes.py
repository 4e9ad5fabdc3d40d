"""Which sizes of a collective must agree between ranks, and within one call."""

from __future__ import annotations

from tracewise.model.collectives import Kind

# Every member passes as much.
EQUAL = frozenset(("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter"))


def same_sized(kind: Kind) -> object:
    """What must be equal on all members: the operation, and elements and dtypes where they may not differ."""
    if kind.op not in EQUAL or _is_uneven(kind):
        return kind.op
    return (kind.op, kind.elements, kind.dtypes)


def size_fault(kind: Kind, group_size: int) -> str:
    """What does not fit between input and output of one call over a group of known size; empty if all fits."""
    if not group_size or _is_uneven(kind) or not kind.sizes or not kind.out_sizes:
        return ""
    given, taken = kind.elements, kind.out_elements
    if kind.op == "all_gather" and taken != given * group_size:
        return f"{given} elements of each of {group_size} ranks do not fill {taken}"
    if kind.op == "reduce_scatter" and given != taken * group_size:
        return f"{given} elements do not make pieces of {taken} for each of {group_size} ranks"
    return ""


def _is_uneven(kind: Kind) -> bool:
    """Lists of tensors of unequal sizes: a form in which every rank may pass its own size."""
    return len(set(kind.out_sizes)) > 1 or len(set(kind.sizes)) > 1
