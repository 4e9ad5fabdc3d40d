"""What is a slice along dim 0, and a stack of results? The types inside and outside of ``scan`` and ``map``.

A slice has the local types of the whole and its spec without dim 0. A scan goes from slice to slice, so dim 0 must not
be sharded. A map takes them one by one: along the axes that shard dim 0 each rank maps its own, which has local
semantics inside, and stacks them to its piece.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.calls.located_call import LocatedCall, axis_text, report
from shardwise.interop.tensors.tagging import Tag, tag_of, type_of
from shardwise.interop.torch_compat import tree_leaves, tree_map
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry, set_current_entry
from shardwise.mesh.normalize import axis_argument
from shardwise.types.aliases import PartitionSpecEntry
from shardwise.types.placement import UNKNOWN, Placement, R, V
from shardwise.types.spec import entry_axes, spec_of
from shardwise.types.tensor_type import TensorType

from ..diagnosis.sharding_refusals import not_mapped, not_stacked
from ..state.session import CheckSession
from .dry_run import Laboratory


class Slices:
    """The slices of ``xs`` along dim 0, for the operator ``op``."""

    def __init__(self, session: CheckSession, op: str, xs: Sequence[torch.Tensor]) -> None:
        self.session = session
        self.op = op
        self.xs = xs
        specs = [] if session.local else [type_of(x).spec for x in xs]
        self.entry: Any = next((spec[0] for spec in specs if spec is not None and spec[0] is not None), None)
        """What shards dim 0; None: nothing does, or only local types are known."""
        self.axes = tuple(entry_axes(self.entry))

    def items(self, lab: Laboratory) -> list[torch.Tensor]:
        """One slice of each, without data."""
        return [lab.stand_in(x[0], self._sliced(tag_of(x))) for x in self.xs]

    def _sliced(self, tag: Tag | None) -> Tag | None:
        if tag is None:
            return None
        type = tag.current()
        spec = None if type.spec is None else spec_of(list(type.spec)[1:])
        return Tag(type.with_spec(spec), tag.origin)

    def in_order(self, lab: Laboratory) -> list[torch.Tensor]:
        """The same for an operator that goes from slice to slice; a sharded dim 0 is reported."""
        for x in self.xs if self.axes else ():
            spec = type_of(x).spec
            for axis in entry_axes(spec[0]) if spec is not None else ():
                located = LocatedCall(self.op, [("xs", x)])
                name = located.name(0)
                said = Diagnosis(
                    "SW405",
                    f"{self.op} goes along a dim of {name} in order, and that dim is sharded over {axis_text(axis)}",
                    ("every rank would start from the first of its own slices",),
                    (f"all_gather({name}, {axis_argument(axis)}, src=S(0), dst=R) for all of it",),
                )
                report(self.session, located, said, axis)
        made = self.items(lab)
        for item in made if self.axes else ():
            unknown = {axis: UNKNOWN for axis in self.axes if axis in type_of(item)}
            lab.retype(item, type_of(item).with_placements(unknown))
        return made

    @contextlib.contextmanager
    def apart(self, others: Sequence[object]) -> Iterator[None]:
        """Inside the block, axes that shard dim 0 have local semantics; what else they shard is reported."""
        mesh = current_entry()
        for value in (*self.xs, *tree_leaves(list(others))) if self.axes else ():
            self._check_whole(value)
        if mesh is not None and self.axes:
            set_current_entry(mesh.mapping(self.axes))
        try:
            yield
        finally:
            set_current_entry(mesh)

    def _check_whole(self, value: object) -> None:
        mapped = any(value is x for x in self.xs)
        spec = type_of(value).spec
        for axis in self.axes:
            cut = [dim for dim, entry in enumerate(spec or ()) if axis in entry_axes(entry)]
            wanted = [0] if mapped else []
            if cut == wanted:
                continue
            located = LocatedCall(self.op, [("xs" if mapped else "args", value)])
            where = f"sharded on dim {cut[0]}" if cut else "whole"
            report(self.session, located, not_mapped(self.op, located.name(0), axis, where), axis)

    def stacked(self, lab: Laboratory, results: object) -> object:
        """Results for one slice as they are stacked for all of them."""
        return tree_map(lambda leaf: self._stack(lab, leaf) if isinstance(leaf, torch.Tensor) else leaf, results)

    def _stack(self, lab: Laboratory, leaf: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = lab.stand_in(leaf, rows=len(self.xs[0]))
        tag = tag_of(leaf)
        if tag is None:
            return made
        type = tag.current()
        if self.op != "map" or not self.axes or not (type.axes or type.ground.is_constant):
            lab.retype(made, _widened(type, None, leaf.ndim), tag.origin)
            return made
        base, known = stacked_type(self.session, self.op, leaf, type, self.axes)
        lab.retype(made, _widened(base, self.entry if known else None, leaf.ndim), tag.origin)
        return made


def stacked_type(
    session: CheckSession, op: str, leaf: object, type: TensorType, axes: Sequence[MeshAxis]
) -> tuple[TensorType, bool]:
    """The type of a stack of results ``leaf``, without its new dim, which is sharded over ``axes``: it varies there.

    True if so; False where it was reported that it cannot, and nothing is known. Errors: SW405.
    """
    changes: dict[MeshAxis, Placement] = {}
    for axis in axes:
        place = type.get(axis)
        if place in (R, V, None) or type.ground.is_constant:
            changes[axis] = V
            continue
        changes[axis] = UNKNOWN
        if not place.is_unknown:
            report(session, LocatedCall(op, [("f", leaf)]), not_stacked(op, axis, place), axis)
    known = all(place is V for place in changes.values())
    return TensorType.of(
        {**{axis: type.get(axis) for axis in type.axes}, **changes}, type.spec, scale=type.scale
    ), known


def _widened(type: TensorType, entry: PartitionSpecEntry, ndim: int) -> TensorType:
    """The type of a tensor with ``ndim`` dims, with one more dim in front that is sharded as ``entry`` says."""
    if type.spec is None and entry is None:
        return type
    rest = list(type.spec) if type.spec is not None else [None] * ndim
    return type.with_spec(spec_of([entry, *rest]))
