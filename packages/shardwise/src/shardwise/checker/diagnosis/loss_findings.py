"""What is said of where a derivative begins, per code: SW601 to SW603 of losses, SW606 of seeds, SW630 of tangents."""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.calls.located_call import axis_text, placement_text
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.types.placement import Placement


def replicated_loss(name: str, axis: MeshAxis) -> Diagnosis:
    size = axis.size()
    return Diagnosis(
        "SW601",
        f"backward starts from {name}, which is replicate over {axis_text(axis)}",
        (f"each of the {size} ranks seeds a gradient of 1, and they are summed: {size} times too much",),
        (
            f"dst=I in the collective over {axis_argument(axis)} that makes {name} replicate, so that it is invariant",
            f"backward on the partial loss, before its all_reduce over {axis_text(axis)}",
            f"convert({name}, {axis_argument(axis)}, src=R, dst=P), which one rank starts from, if no collective does",
        ),
    )


def varying_loss(name: str, axis: MeshAxis) -> Diagnosis:
    step = f"{axis_argument(axis)}, src=V, dst=P)"
    return Diagnosis(
        "SW602",
        f"backward starts from {name}, which varies over {axis_text(axis)}",
        ("a list of different losses has no gradient; their sum has one",),
        (
            f"reinterpret({name} / {axis.size()}, {step} if their mean over the {axis.size()} ranks is the loss",
            f"reinterpret({name}, {step} if the ranks' losses are to be added",
        ),
    )


def untyped_loss(name: str, axes: Sequence[MeshAxis]) -> Diagnosis:
    types = ", ".join(f"{axis_argument(axis)}: I" for axis in axes) or "...: I"
    way = f"assert_type({name}, {{{types}}}), or P over axes whose ranks' losses are to be added"
    return Diagnosis("SW603", f"backward starts from {name}, which has no type", help=(way,))


def seed_not_dual(
    name: str, seed: str, axis: MeshAxis, own: Placement, wanted: Placement, found: Placement
) -> Diagnosis:
    """SW606 of a gradient that is given to ``backward``."""
    fact = "each rank would go on with its own addend of the gradient"
    if wanted.is_partial:
        fact = f"{axis.size()} equal gradients would be summed: {axis.size()} times too much"
    return Diagnosis(
        "SW606",
        f"backward gets {seed}, {placement_text(found)} over {axis_text(axis)}, as the gradient of {name}, which is "
        f"{placement_text(own)} there; its gradient is {placement_text(wanted)}",
        (fact,),
    )


def tangent_not_alike(name: str, tangent: str, axis: MeshAxis, own: Placement, found: Placement) -> Diagnosis:
    """SW630."""
    size = axis.size()
    if own.is_partial:
        fact = f"{name} is a sum over {size} ranks: with {tangent} on each of them it changes by {size} times {tangent}"
    else:
        fact = f"{name} is equal on the {size} ranks, and cannot change by something else on each of them"
    return Diagnosis(
        "SW630",
        f"{tangent} is {placement_text(found)} over {axis_text(axis)}, and the tensor whose tangent it is, {name}, "
        f"is {placement_text(own)} there",
        (fact,),
    )


def elements_apart(name: str, axis: MeshAxis) -> Diagnosis:
    """SW405 of a jacobian with a row or column for each element of a shard."""
    return Diagnosis(
        "SW405",
        f"a jacobian has a row or a column for each element of {name}, which is sharded over {axis_text(axis)}",
        (f"each of the {axis.size()} ranks lists its own elements, and all ranks move one of theirs at once",),
        (
            "jacrev lists the elements of the result, jacfwd those of the argument: take the one that is whole",
            f"all_gather({name}, {axis_argument(axis)}, src=S(i), dst=R) before it",
        ),
    )
