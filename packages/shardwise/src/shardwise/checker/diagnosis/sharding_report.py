"""How is a refused sharding told? The words for the 4xx codes: which dim of which operand, and why it cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.interop.located_call import LocatedCall
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.propagation.call_types import AxisRefusal
from shardwise.op_rules.propagation.dim_labels import Call
from shardwise.op_rules.propagation.operand import Bound
from shardwise.op_rules.propagation.placer import whole_shape
from shardwise.op_rules.schema import OpRule
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import TensorType

from .sharding_repair import shard_repairs

SHARDING = frozenset(f"SW{number}" for number in (*range(401, 413), 417, 418))


def sharded_dim(type: Any, axis: Any) -> int | None:
    """The dim on which an operand of this type is sharded over ``axis``."""
    shard = partition_spec_get_shard(type.spec, axis) if isinstance(type, TensorType) else None
    return None if shard is None else shard.dim


def _is_uneven(operand: Bound, axis: Any) -> bool:
    """True if the operand's shards over the axis may differ in length."""
    return isinstance(operand.type, TensorType) and axis in operand.type.uneven


def assert_even(name: str, axis: Any, dim: int | None) -> str:
    """The help for shards whose lengths may differ: the claim that they do not."""
    return f"assert_type({name}, {{{axis_argument(axis)}: S({dim})}}, even=True) if every rank has as many elements"


def sharding_refused(
    op: str,
    operands: Sequence[Bound],
    located: LocatedCall,
    at: AxisRefusal,
    culprits: Sequence[int],
    others: Sequence[int],
    axis: str,
) -> tuple[str, list[str]]:
    """The message of a refusal and the facts behind it."""
    code, reason = at.refusal.code, at.refusal.reason

    def cut(position: int) -> str:
        dim = sharded_dim(operands[position].type, at.axis)
        return located.name(position) if dim is None else f"{located.name(position)} (dim {dim})"

    first = located.name(culprits[0]) if culprits else "an operand"
    listed = " and ".join(cut(position) for position in culprits)
    if code == "SW401":
        return f"{op} gets operands sharded on different dims over {axis}: {listed}", []
    if code == "SW402":
        partners = " and ".join(cut(position) for position in others)
        fact = f"{first} is not sharded over {axis}, {partners} is" if partners else reason
        return f"{op} needs {first} sharded over {axis} like the others", [fact]
    if code == "SW408":
        if operands[culprits[0]].shape is None:
            fact = "the same program on one device has no such number: state the result's type at a local_map boundary"
            return f"{op} takes {first}, a number that differs over {axis}, into a global computation", [fact]
        return f"{first} varies over {axis}, but nothing says which of its dims is sharded, in {op}", []
    if code == "SW409":
        return f"{op} cannot tell in which order mesh axes shard one dim", [reason]
    if code == "SW411":
        fact = "in a local region nobody asks: with local(): around it, and assert_type says what comes out"
        return f"what {op} does to the sharded dim of {listed} over {axis} is not said by its op rule", [fact]
    if code == "SW418":
        type, shape = operands[culprits[0]].type, operands[culprits[0]].shape or ()
        assert isinstance(type, TensorType), "only what is sharded has another shape on one rank"
        here, whole = (" x ".join(map(str, each)) for each in (shape, whole_shape(type, shape)))
        return f"{op} is given sizes of the whole {whole} of {first}, of which one rank has {here}", [reason]
    if code == "SW417":
        return f"{op} needs shards of one length, but those of {listed} over {axis} may differ", [reason]
    if code == "SW407":
        fact = 'with partials="explicit" the caller names the axes of a pending sum: out_partial_axes'
        return f"{op} contracts {listed}, which is sharded over {axis}, and leaves a pending sum", [fact]
    return f"{op} cannot work on {listed}, which is sharded over {axis}", [reason]


def sharding_advice(
    op: str, rule: OpRule, code: str, operands: Sequence[Bound], located: LocatedCall, culprit: int, axis: Any
) -> list[str]:
    """What a person would do about it, where that is something else than moving shards."""
    name, where = located.name(culprit), axis_argument(axis)
    if code == "SW417":
        return [assert_even(name, axis, sharded_dim(operands[culprit].type, axis))]
    if code == "SW418":
        return [f"-1 in place of the size of a dim that is cut, or {name}.shape[i], which is this rank's"]
    if code == "SW408" and operands[culprit].shape is not None:
        return [
            f"assert_type({name}, {{{where}: S(i)}}) where it is made, with i the dim of which each rank has a piece"
        ]
    if code == "SW403" and rule.op == "mean":
        return [f"shardwise.mean({name}, ..., out_partial_axes={where}), which counts the elements of all ranks"]
    if code == "SW403" and "reduction" in rule.parameters:
        return [f'{op}(..., reduction="sum") / n, with n the count of all ranks']
    return []


def sharding_help(
    op: str, rule: OpRule, call: Call, operands: Sequence[Bound], located: LocatedCall, axis: Any, most: int = 2
) -> list[str]:
    """The cheapest repairs as calls that can be pasted, each with what it moves."""
    lines = []
    for repair in shard_repairs(rule, call, operands, axis, partials=True)[:most]:
        calls = [
            f"{step.call}({located.name(step.position)}, {axis_argument(axis)}, src={step.src!r}, dst={step.dst!r}"
            f"{', split_sizes=[...]' * _is_uneven(operands[step.position], axis)})"
            for step in repair.steps
        ]
        moved = f"moves {repair.elements:.0f} elements per rank" if repair.elements else "no communication in forward"
        lines.append(f"{' and '.join(calls)} before {op} ({moved})")
    return lines
