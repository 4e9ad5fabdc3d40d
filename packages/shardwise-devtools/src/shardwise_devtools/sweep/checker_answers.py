"""What does the checker say about a call? Asks it as a program would, for the sweep to compare with the numbers."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from shardwise.checker.diagnosis import reporter
from shardwise.checker.diagnosis.refused_call import RefusedCall
from shardwise.checker.patching.installation import installed
from shardwise.checker.scopes.activation import typecheck
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.finding import Diagnosis
from shardwise.host.attribute_patch import patched
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.tagging import set_type, told_type
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.op_rules.propagation import placer as globally_module
from shardwise.op_rules.propagation.dim_labels import Labelling
from shardwise.op_rules.propagation.local import Refusal
from shardwise.op_rules.propagation.sharded import Placed, Sharded, sharded_rule
from shardwise.oracle.local_types import leaf_of
from shardwise.oracle.sharded_types import FAILURES, Answer, Placements
from shardwise.types.placement import UNKNOWN, P, PerMeshAxisSpmdType, Shard, V, to_local_type
from shardwise.types.spec import PartitionSpec, partition_spec_get_shard
from shardwise.types.tensor_type import TensorType

from .dtensor_rules import dtensor_book
from .tallies import Rulesets

Function = Callable[..., Any]


@contextlib.contextmanager
def rulesets(size: int = 2, *, dtensor: bool = True) -> Iterator[Rulesets]:
    """Our rules, asked through the checker, and DTensor's, along an axis of ``size`` ranks."""
    axis = MeshAxis.of(size, 1)

    def globally(fn: Function, tensors: Sequence[torch.Tensor], placements: Placements) -> Answer:
        return _ask(axis, False, fn, [tensor.detach().clone() for tensor in tensors], placements)

    def locally(fn: Function, tensors: Sequence[torch.Tensor], placements: Placements) -> Answer:
        return _ask(axis, True, fn, [leaf_of(tensor) for tensor in tensors], placements)

    # Axes of one size and other strides are all alike, and no cached verdict answers over a fresh one.
    fresh = (MeshAxis.of(size, stride) for stride in itertools.count(2))

    def needs_even(fn: Function, tensors: Sequence[torch.Tensor], placements: Placements) -> bool:
        even: list[bool] = []

        def spy(labelling: Labelling, operands: Sequence[Sharded], *, partials: bool) -> Placed | Refusal:
            cut = [dims[one.dim] for dims, one in zip(labelling.operands, operands, strict=True) if one.dim is not None]
            even.append(any(label in labelling.even | labelling.grouped for label in cut))
            return sharded_rule(labelling, operands, partials=partials)

        with patched(globally_module, "sharded_rule", spy):
            _ask(next(fresh), False, fn, [tensor.detach().clone() for tensor in tensors], placements)
        return any(even)

    with contextlib.ExitStack() as stack:
        stack.enter_context(installed())
        stack.enter_context(patched(reporter, "diagnosis", _code_alone))
        other = stack.enter_context(dtensor_book(size)) if dtensor else None
        yield Rulesets(globally, locally, needs_even, None if other is None else other.ask)


def _code_alone(refused: RefusedCall) -> Diagnosis:
    """The sweep counts codes, and the search for repairs was a quarter of its time; ``crashes`` makes them all."""
    return Diagnosis(refused.at.refusal.code, refused.at.refusal.code)


def _ask(axis: MeshAxis, local: bool, fn: Function, operands: Sequence[torch.Tensor], placements: Placements) -> Answer:
    with set_current_mesh({"tp": axis}):
        for tensor, placement in zip(operands, placements, strict=True):
            set_type(tensor, _typed(axis, placement, tensor.ndim))
        try:
            with typecheck(local=local):
                results = tensors_in(fn(*operands))
        except SpmdTypeError as error:
            return f"{error.code}: {error.finding.headline if error.finding is not None else error}"
        except FAILURES as error:
            return _blame(fn, operands, error)
        return tuple(_placement(axis, result, local) for result in results)


def _blame(fn: Function, operands: Sequence[torch.Tensor], error: BaseException) -> str:
    """Whether it is the call that fails, or the checker."""
    try:
        fn(*[operand.detach().clone() for operand in operands])
    except FAILURES:
        return f"the call itself fails: {type(error).__name__}"
    return f"the checker fails: {type(error).__name__}: {error}"


def _typed(axis: MeshAxis, placement: PerMeshAxisSpmdType, ndim: int) -> TensorType:
    spec = None
    if isinstance(placement, Shard):
        spec = PartitionSpec(*[axis if dim == placement.dim else None for dim in range(ndim)])
    return TensorType.of({axis: to_local_type(placement)}, spec)


def _placement(axis: MeshAxis, result: torch.Tensor, local: bool) -> PerMeshAxisSpmdType | None:
    """The result's placement; None if it has none, or with global types is varying without a dim that is sharded."""
    type = told_type(result)
    shard = partition_spec_get_shard(type.spec, axis)
    place = type.get(axis) if shard is None else shard
    if place is P and type.exponent(axis) == 1:
        average: PerMeshAxisSpmdType = P("avg")
        return average
    return None if place is UNKNOWN or (place is V and not local) else place
