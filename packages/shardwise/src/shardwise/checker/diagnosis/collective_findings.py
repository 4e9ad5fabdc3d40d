"""What is said of collectives and partial contractions, per code: SW2xx, SW135, SW422, and the count of a mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.calls.located_call import axis_text, placement_text
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.types.placement import Placement

from .sharding_refusals import assert_even

Lines = tuple[str, ...]


def not_a_partial_sum(op: str, name: str, axis: object, place: object, dim: int | None) -> Diagnosis:
    what = f"{name} is {placement_text(place)} there"
    if dim is not None:
        what = f"no dim that it contracts is: {name} is sharded on dim {dim}"
    return Diagnosis(
        "SW135",
        f"{op} is asked for a partial sum over {axis_text(axis)}, but {what}",
        ("only a contraction over dims that are sharded over the axis leaves a pending sum",),
    )


def wrong_source(
    op: str, name: str, want: str, along: str, place: object, facts: Lines = (), help: Lines = ()
) -> Diagnosis:
    message = f"{op} expects {name} to be {want} over {along}, but it is {placement_text(place)}"
    return Diagnosis("SW201", message, facts, help)


def sent_by_another_rank(
    name: str, axis: object, sender: int, holder: int, reduced: SourceLocation | None
) -> Diagnosis:
    place = "" if reduced is None else f" in line {reduced.line}"
    return Diagnosis(
        "SW201",
        f"broadcast sends what rank {sender} of {axis_text(axis)} has of {name}, but the sum is on rank {holder}",
        (f"reduce{place} has left the sum on rank {holder} only; the others keep an addend or nothing of use",),
        (f"broadcast from rank {holder}", f"all_reduce({name}) in place of both"),
    )


def gradient_through_extremum(op: str, name: str, axis: MeshAxis, place: Placement) -> Diagnosis:
    return Diagnosis(
        "SW118",
        f"{op} finishes {name}, a pending {place.reduction} over {axis_text(axis)} that would receive a gradient",
        (
            "each rank would send the gradient to its own largest or smallest element, and only one of them is it",
            "where the result does not depend on it, as in a stable softmax, its gradient is zero in all",
        ),
        (f"{name} = {name}.detach() before {op}", f"{op}({name}.detach(), ...) where nothing is written in place"),
    )


def no_type_on_axis(op: str, name: str, axis: object, help: str, facts: Lines = ()) -> Diagnosis:
    return Diagnosis("SW207", f"{op} runs over {axis_text(axis)}, but {name} has no type for that axis", facts, (help,))


def wrong_shard_dim(op: str, name: str, axis: object, said: int, known: int, help: str) -> Diagnosis:
    message = f"{op} reads {name} as sharded on dim {said} over {axis_text(axis)}, but it is sharded on dim {known}"
    return Diagnosis("SW212", message, help=(help,))


def unknown_collective(op: str, name: str) -> Diagnosis:
    return Diagnosis(
        "SW210",
        f"torch.distributed.{op} has no typing rule, and {name} has a type",
        help=("use shardwise.all_reduce, all_gather, reduce_scatter or all_to_all",),
    )


def collective_after_parting(op: str, axis: MeshAxis, parted: str, location: SourceLocation | None) -> Diagnosis:
    """``parted``: the branch or loop in which the ranks of ``axis`` have parted ways, at ``location``."""
    what = "predicate" if parted == "cond" else "condition"
    where = "" if location is None else f" (at {location})"
    return Diagnosis(
        "SW422",
        f"{op} runs inside a {parted} whose {what} differs between the ranks of {axis_text(axis)}",
        (f"ranks for which the {what}{where} comes out otherwise never get here, and the others wait for them",),
        (
            f"call {op} outside of {parted}, where every rank gets to",
            f"all_reduce what the {what} is made from over {axis_argument(axis)}, so that all ranks agree",
        ),
    )


def mean_by_own_counts(count: str, axis: MeshAxis) -> Diagnosis:
    return Diagnosis(
        "SW110",
        f"mean divides a pending sum over {axis_text(axis)} by {count}, which differs per rank there",
        ("addends that are divided by numbers of their own do not add up to a mean over all ranks",),
        (f"all_reduce({count}, {axis_argument(axis)}, src=V, dst=R) before mean, for the global count",),
    )


def mean_over_uneven_shards(name: str, axis: object, dim: int | None) -> Diagnosis:
    along = axis_text(axis)
    return Diagnosis(
        "SW417",
        f"mean counts the elements of every rank like its own, but shards of {name} over {along} may differ",
        ("give the global count, summed over the ranks, or promise that all have as many elements",),
        (
            f"mean({name}, ..., count=n) with n the global count, R over {along}",
            "mean(..., even=True), or " + assert_even(name, axis, dim),
        ),
    )


def mean_counts_addends(name: str, axis: MeshAxis) -> Diagnosis:
    return Diagnosis(
        "SW135",
        f"mean would count the elements of {name} once per rank of {axis_text(axis)}, where they are a pending sum",
        (f"{name} has one addend per rank and each has all elements: the mean is too small by {axis.size()}",),
        (f"mean({name}, ...) without {axis_argument(axis)}: a mean of addends is pending by itself",),
    )


def mean_counts_a_shard(name: str, axis: object, dim: int | None, named: Sequence[Any]) -> Diagnosis:
    """``named``: the axes over which the mean would be right."""
    along, arguments = axis_text(axis), list(map(axis_argument, named))
    listed = arguments[0] if len(arguments) == 1 else f"({', '.join(arguments)})"
    return Diagnosis(
        "SW403",
        f"mean counts this rank's elements of {name} (dim {dim}) over {along} only",
        (f"the dim is cut over {along}, which is not named",),
        (f"mean({name}, ..., out_partial_axes={listed})", f"mean({name}, ..., count=n)"),
    )
