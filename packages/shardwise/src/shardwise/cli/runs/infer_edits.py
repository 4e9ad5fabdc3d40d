"""``shardwise infer --diff`` and ``--write``: what is said of the annotations, and the files that get them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardwise.diagnostics.printing.limits import counted

if TYPE_CHECKING:
    from shardwise.rewriting.file_edit import FileEdit
    from shardwise.verifier.annotating.annotations import AnnotationPlan
    from shardwise.verifier.annotating.inference import InferredType
    from shardwise.verifier.records.annotation_sites import AnnotationSites


@dataclass(frozen=True)
class Edits:
    """What would be written, and what there is to say about it."""

    files: Sequence[FileEdit]
    plan: AnnotationPlan
    missed: Sequence[str]

    def lines(self, written: bool) -> Iterator[str]:
        """The diff and what is left open, as text."""
        for edit in self.files:
            yield ""
            yield edit.diff.rstrip("\n")
        yield ""
        if self.plan.choices:
            yield "written as R, and the values would allow I as well:"
            for axis in dict.fromkeys(axis for _, axis in self.plan.choices):
                names = [name for name, over in self.plan.choices if over == axis]
                yield f"  over {axis}: {', '.join(names)}"
            yield "  R may meet operands of any type, and its gradient, if it gets one, is to be summed over the axis;"
            yield "  write I where every rank computes the whole gradient"
            yield ""
        if self.plan.unnamed:
            yield f"the program has no name for {', '.join(self.plan.unnamed)}: check it with the same --mesh, or let"
            yield "  its code run under set_current_mesh({name: process group, ...})"
            yield ""
        left = [*(f"{name}: {why}" for name, why in self.plan.left), *(f"{name}: no place" for name in self.missed)]
        if left:
            yield "left as they are:"
            yield from (f"  {line}" for line in left)
            yield ""
        count = counted(len(self.plan.annotations) - len(self.missed), "annotation")
        where = counted(len(self.files), "file")
        if not self.files:
            yield "nothing to write: what can be written is in the source"
        else:
            yield f"{count} written into {where}" if written else f"{count} for {where}; --write puts them there"

    def as_dict(self, written: bool) -> dict[str, object]:
        """The same for JSON."""
        return {
            "edits": [{"file": str(edit.path), "diff": edit.diff} for edit in self.files],
            "written": written and bool(self.files),
            "r_or_i": [{"name": name, "axis": axis} for name, axis in self.plan.choices],
            "left": [{"name": name, "reason": why} for name, why in self.plan.left],
        }


def edits_of(types: Sequence[InferredType], sites: Sequence[AnnotationSites]) -> Edits:
    """The changes that write ``types`` into the source; ``sites`` is what the ranks tell of it."""
    from shardwise.verifier.annotating.annotations import plan_annotations
    from shardwise.verifier.annotating.source_edits import file_edits

    plan = plan_annotations(types, sites)
    files, missed = file_edits(plan.annotations)
    return Edits(files, plan, [", ".join(one.expressions) or f"an argument in line {one.line}" for one in missed])
