"""``shardwise infer``: the inferred types as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from shardwise.diagnostics.printing.printable import columns

if TYPE_CHECKING:
    from shardwise.verifier.annotating.inference import Inference, InferredType

SCHEMA = "shardwise.infer/1"
HEADINGS = {"parameter": "parameters", "buffer": "buffers", "input": "inputs", "module": "what modules give"}


def lines_of(inference: Inference) -> Iterator[str]:
    """The report as text: a table for each kind of tensor, how the types are known, and how many tensors there are."""
    if inference.failure is not None:
        yield f"the run {inference.failure.where} did not come to its end: {inference.failure.text}"
        yield from (f"  {line}" for line in inference.failure.details.splitlines())
        return
    for kind, heading in HEADINGS.items():
        having = [one for one in inference.types if one.kind == kind]
        if having:
            yield f"{heading}:"
            yield from _table(having, inference.ranks)
            yield ""
    reasons: dict[str, dict[str, None]] = {}
    for one in inference.types:
        for axis, place in (one.axes or {}).items():
            reasons.setdefault(one.known_by[axis], {})[f"{axis}: {place}"] = None
    if reasons:
        yield "known by:"
        yield from (f"  {', '.join(places)}: {how}" for how, places in reasons.items())
        yield ""
    lost = inference.unexplained
    said = f"; no layout explains the values of {len(lost)}" if lost else ""
    yield f"{len(inference.types)} tensors on mesh {inference.mesh}{said}"
    if not inference.types:
        yield "no module with parameters was called"


def _table(types: list[InferredType], ranks: int) -> Iterator[str]:
    rows = [(_name(one, ranks), str(list(one.shape)), _written(one)) for one in types]
    yield from (f"  {row}" for row in columns(rows))


def _name(one: InferredType, ranks: int) -> str:
    where = "" if len(one.ranks) == ranks else f" on rank {', '.join(map(str, one.ranks))}"
    return f"{one.name}{where}" + ("" if one.there == one.name else f", which is {one.there}")


def _written(one: InferredType) -> str:
    if one.axes is None:
        return "no layout explains the values"
    if not one.axes:
        return "on this rank alone"
    return ", or ".join(_type(axes) for axes in (one.axes, *one.otherwise))


def _type(axes: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{axis}: {place}" for axis, place in axes.items()) + "}"


def as_dict(inference: Inference) -> dict[str, object]:
    """The report for JSON."""
    failure = inference.failure
    return {
        "schema": SCHEMA,
        "program": inference.program,
        "mesh": inference.mesh,
        "failure": None if failure is None else {"where": failure.where, "text": failure.text},
        "types": [
            {
                "kind": one.kind,
                "name": one.name,
                "ranks": list(one.ranks),
                "name_on_one_rank": one.there,
                "shape": list(one.shape),
                "type": None if one.axes is None else dict(one.axes),
                "known_by": dict(one.known_by),
                "otherwise": [dict(axes) for axes in one.otherwise],
            }
            for one in inference.types
        ],
    }
