"""Every collective with every reduction and every type of operand: is what the checker admits of it so?

All ranks run on threads of this process. A result that is said to be replicate must be equal on all of them, one that
denotes a value must denote that of the operand, times the power of the axis's size that its type says, and the gradient
that comes back must be that of the operand's value, computed on one device from what the collective is there for.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as differentiable
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise.op_rules.raw_collectives import RAW, REDUCERS
from shardwise.types import SpmdTypeError
from shardwise.types.placement import PerMeshAxisSpmdType
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import TensorType
from shardwise.worlds.world import CollectiveMismatch, Deadlock, InProcessWorld

from .every_collective import BITWISE, FORMS, MOVES, REDUCE_OPS, Form, reduced

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
]

RANKS = 3  # a power of 3 is told from any other factor
ROWS = 12
OPERANDS: dict[str, PerMeshAxisSpmdType] = {
    "R": R,
    "I": I,
    "V": V,
    "P": P,
    "P(avg)": P,
    "P(max)": P("max"),
    "P(min)": P("min"),
    "S(0)": S(0),
}
EXPONENTS = {"R": (0,), "I": (0,), "P": (-1, 0), "P(avg)": (0, 1), "P(max)": (0,), "P(min)": (0,)}
"""The powers of the axis's size by which a result may be off and be admitted, which its type then says."""
SYNONYMS = {
    "all_gather_single": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
}
OTHERS = {"send", "recv", "isend", "irecv", "batch_isend_irecv", "barrier", "monitored_barrier", "set_timeout"}
"""Messages, which have no axis, and what moves no tensor."""
OF_NO_FAKE_BACKEND = {"gather_single", "gather_into_tensor"}
"""Since torch 2.14, whose own fake back end does not have them (docs/limits.md)."""
FOR_COMPILED_CODE = ("isend_inplace", "irecv_inplace", "reduce_scatter_inplace")
"""What a compiler puts in place of the functions that programs call, which are among the forms."""
_refusals: list[str] = []
"""What ranks of the running world were refused: they share this process."""


@dataclass(frozen=True)
class Outcome:
    """What one rank has got of one call: its result with its type, and the gradient of its operand."""

    value: Tensor
    type: TensorType
    gradient: Tensor | None


def dealt(kind: str, op: str) -> Tensor:
    """The operand on every rank, one row each."""
    rows = torch.randint(1, 6, (RANKS, ROWS), generator=torch.Generator().manual_seed(7))
    if kind in ("R", "I"):
        rows = rows[:1].expand(RANKS, ROWS).clone()
    return rows if op in BITWISE else rows.double()


def denoted(kind: str, rows: Tensor, *, local: bool) -> Tensor | None:
    """The value that the ranks' operands mean; None for a list of whatever they are."""
    values = {"P": rows.sum(0), "P(avg)": rows.sum(0), "P(max)": rows.amax(0), "P(min)": rows.amin(0)}
    if kind in ("R", "I"):
        return rows[0]
    if kind == "S(0)" and not local:
        return rows.flatten()
    return values.get(kind)


def cotangents(form: Form, like: Tensor) -> Tensor:
    """What every rank sends back; nothing where a rank has no result."""
    made = torch.randn(RANKS, *like.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    if form.moves in ("reduce", "gather"):
        made[1:] = 0
    return made


def on_a_rank(form: Form, op: str, kind: str, local: bool, with_gradient: bool) -> Outcome | str:
    """The outcome, or the code of what the checker refuses."""
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    group = mesh.get_group("tp")
    with spmd.set_current_mesh(mesh), spmd.typecheck(local=local):
        leaf = dealt(kind, op)[rank].clone()
        leaf.requires_grad_(with_gradient and op not in BITWISE and OPERANDS[kind] not in (P("max"), P("min")))
        spmd.assert_type(leaf, {"tp": OPERANDS[kind]})
        try:
            x = leaf * dist.get_world_size(group) / 1 if kind == "P(avg)" else leaf
            result = form.call(x, op, RANKS, group) * 1
            type = spmd.typeof(result).type
            if result.requires_grad:
                axis = spmd.normalize_axis("tp")
                place: Any = type.get(axis)
                sent = cotangents(form, result)[0 if place.dual.is_equal else rank].clone()
                result.backward(spmd.assert_type(sent, {"tp": partition_spec_get_shard(type.spec, axis) or place.dual}))
        except SpmdTypeError as error:
            _refusals.append(error.code)
            return error.code
        except RuntimeError as error:
            # Functional collectives refuse to derive what is no sum.
            if "backward only supports" not in str(error):
                raise
    return Outcome(result.detach(), type, None if leaf.grad is None else leaf.grad.detach())


def outcomes(form: Form, op: str, kind: str, local: bool, with_gradient: bool) -> list[Outcome] | str:
    """Of every rank; the code if they are refused."""
    _refusals.clear()
    try:
        found = InProcessWorld(RANKS).run(on_a_rank, form, op, kind, local, with_gradient)
    except (Deadlock, CollectiveMismatch):
        # A refused call has not happened, and a rank that has nothing to send there is not refused: it waits.
        assert _refusals, f"{form} {op} of {kind} does not end"
        return _refusals[0]
    if _refusals:
        rooted = form.moves in ("gather", "scatter")
        assert rooted or len(_refusals) == RANKS, f"ranks disagree about {form} {op} of {kind}: {found}"
        return _refusals[0]
    return found


def misjudged(form: Form, op: str, kind: str, local: bool, found: list[Outcome]) -> str:
    """What the types say that is not so; empty if all is."""
    rows = dealt(kind, op)
    x = rows * RANKS if kind == "P(avg)" else rows
    expected = MOVES[form.moves](list(x), op)
    for own, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(own.value.double(), wanted.double())
    (axis,) = found[0].type.axes
    place = found[0].type.get(axis)
    if place.is_equal and any(not torch.equal(one.value, found[0].value) for one in found):
        return f"{found[0].type}, and the ranks differ"
    reason = _denotes_else(form, kind, local, found, denoted(kind, rows, local=local))
    return reason or (_derives_else(form, op, kind, found, x) if found[0].gradient is not None else "")


def _denotes_else(form: Form, kind: str, local: bool, found: list[Outcome], meant: Tensor | None) -> str:
    type, values = found[0].type, [one.value for one in found]
    (axis,) = type.axes
    shard, exponent = partition_spec_get_shard(type.spec, axis), type.exponent(axis)
    if type.is_equal(axis):
        whole = values[0]
    elif type.is_partial(axis):
        whole = torch.stack(values).sum(0)
    elif shard is not None:
        whole = torch.cat(values, shard.dim)
    else:
        return ""
    if meant is None or exponent is None or (form.moves == "all_gather" and kind in ("R", "I")):
        return ""  # a gather of equal values is a list of them
    if whole.shape != meant.shape:
        return f"{type} has shape {tuple(whole.shape)}, and what is meant {tuple(meant.shape)}"
    agrees = torch.allclose(whole.double(), meant.double() * float(RANKS) ** exponent)
    return "" if agrees else f"{type} denotes another value"


def _derives_else(form: Form, op: str, kind: str, found: list[Outcome], x: Tensor) -> str:
    (axis,) = found[0].type.axes
    if kind in ("R", "I"):
        leaves = [x[0].clone().requires_grad_()]
        parts = leaves * RANKS
    elif kind in ("P", "P(avg)"):
        leaves = [x.sum(0).requires_grad_()]
        parts = [*x[:-1], leaves[0] - x[:-1].sum(0)]
    else:
        leaves = [row.clone().requires_grad_() for row in x]
        parts = leaves
    results = MOVES[form.moves](parts, op)
    sent = cotangents(form, results[0])
    place: Any = found[0].type.get(axis)
    if place.is_equal:
        objective = ((sent[0] if place.dual.is_equal else sent.sum(0)) * results[0]).sum()
    else:
        objective = torch.stack([(one * own).sum() for one, own in zip(sent, results, strict=True)]).sum()
    true = torch.autograd.grad(objective, leaves, allow_unused=True, materialize_grads=True)
    true = tuple(one * RANKS for one in true) if kind == "P(avg)" else true
    gradients = [one.gradient for one in found if one.gradient is not None]
    if kind == "R":
        gradients = [torch.stack(gradients).sum(0)]
    true = true if len(true) == len(gradients) else true * len(gradients)
    if all(torch.allclose(own, one) for own, one in zip(gradients, true, strict=True)):
        return ""
    return f"the gradient of {kind} through {form} {op} is not its derivative"


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(9)
@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_what_is_admitted_of_a_collective_is_so(form: Form, local: bool) -> None:
    lies, seen = [], 0
    for op in form.reductions:
        for kind in OPERANDS:
            found = outcomes(form, op, kind, local, with_gradient=True)
            if not isinstance(found, str):
                seen += 1
                reason = misjudged(form, op, kind, local, found)
                lies += [f"{op} of {kind}: {reason}"] if reason else []
    assert not lies, "\n".join(lies)
    assert seen or not local, "lists of pieces have no spec, and with global types no result"


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(6)
@pytest.mark.parametrize("form", [form for form in FORMS if form.moves in ("all_reduce", "reduce_scatter")], ids=str)
def test_a_reduction_is_admitted_where_it_is_one_of_the_operand_s_value(form: Form) -> None:
    for op in form.reductions:
        for kind, exponents in EXPONENTS.items():
            right = any(all(_is_off_by(op, kind, exponent, ranks) for ranks in (2, RANKS)) for exponent in exponents)
            found = outcomes(form, op, kind, True, with_gradient=False)
            assert isinstance(found, str) != right, f"{form} by {op} of {kind} is {found}, and right: {right}"


def _is_off_by(op: str, kind: str, exponent: int, ranks: int) -> bool:
    rows = dealt(kind, op)[:ranks]
    meant = denoted(kind, rows, local=True)
    assert meant is not None
    found = reduced(op, list(rows * ranks if kind == "P(avg)" else rows))
    return torch.allclose(found.double(), meant.double() * float(ranks) ** exponent)


def test_the_judge_objects_to_what_is_not_so() -> None:
    form = next(form for form in FORMS if form.name == "all_reduce")
    found = outcomes(form, "SUM", "P", True, with_gradient=False)
    assert not isinstance(found, str)
    assert misjudged(form, "SUM", "P", True, found) == ""
    (axis,) = found[0].type.axes
    scaled = [Outcome(one.value, one.type.with_scale({axis: 1}), None) for one in found]
    assert "another value" in misjudged(form, "SUM", "P", True, scaled)
    halved = [Outcome(one.value, one.type, torch.ones(ROWS, dtype=torch.float64)) for one in found]
    assert "not its derivative" in misjudged(form, "SUM", "P", True, halved)
    varying = outcomes(next(form for form in FORMS if form.name == "reduce"), "SUM", "P", True, with_gradient=False)
    assert not isinstance(varying, str)
    equal = [Outcome(one.value, one.type.with_placements({axis: R}), None) for one in varying]
    reduce = next(form for form in FORMS if form.name == "reduce")
    assert "ranks differ" in misjudged(reduce, "SUM", "P", True, equal)


def test_every_collective_of_torch_is_among_the_forms() -> None:
    """A function of torch that takes tensors and a group is a form here, or moves no tensor."""
    covered = {form.function.__name__ for form in FORMS}
    for module in (dist, funcol, differentiable):
        for name, function in vars(module).items():
            if name.startswith("_") or not inspect.isfunction(function) or name in OTHERS | OF_NO_FAKE_BACKEND:
                continue
            if "object" in name or "group" in name:
                continue
            if module is not dist and function.__module__ != module.__name__:
                continue
            parameters = list(inspect.signature(function).parameters)
            if "group" not in parameters or parameters[0] in ("group", "device"):
                continue
            usual = name.replace(
                "single_coalesced", "into_tensor_coalesced" if "gather" in name else "tensor_coalesced"
            )
            usual = usual.replace("single", "tensor") if module is funcol and "all_to_all" not in name else usual
            known = {name, SYNONYMS.get(name, name), usual}
            assert covered & known or name.endswith(FOR_COMPILED_CODE), f"{module.__name__}.{name}"
    assert {"all_reduce", "reduce", "reduce_scatter"} <= covered & set(RAW)


def test_every_reduction_has_its_row_and_none_falls_back_to_the_sum() -> None:
    names = {name.lower() for name in dist.ReduceOp.RedOpType.__members__} - {"unused"}
    assert names <= set(REDUCERS)
    assert {name.lower() for name in REDUCE_OPS} == names - {"premul_sum"}
