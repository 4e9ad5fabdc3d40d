"""How far a value is off the scale, and what would mend it, in words: for every finding about a scale."""

from __future__ import annotations

from shardwise.interop.calls.located_call import axis_text
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.types.notation import times_off
from shardwise.types.tensor_type import Power


def scale_text(axis: MeshAxis, exponent: Power) -> str:
    """``is 2 times too large``, for an axis of two ranks and the exponent 1."""
    if exponent == 0:
        return "has the scale of one device"
    return f"is {times_off(axis.size(), exponent)} times too {'large' if exponent > 0 else 'small'}"


def scale_repair(axis: MeshAxis, exponent: Power) -> str:
    """What brings a value of this exponent, which is not 0, back to the scale of one device."""
    size = f"the size of {axis_text(axis)}, mesh.size({axis_argument(axis)})"
    if not isinstance(exponent, int):
        return f"a root was taken of what was off the scale by {size}: mend the scale of what stands under it"
    once = "" if abs(exponent) == 1 else f" {abs(exponent)} times"
    if exponent > 0:
        return f"divide by {size}{once}, or average where it is summed"
    return f"multiply by {size}{once}, or leave out the division by it"
