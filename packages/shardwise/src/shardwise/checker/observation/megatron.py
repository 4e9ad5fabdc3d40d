"""What Megatron's marks say of parameters: which are cut over tensor or expert parallel ranks, and who sums gradients.

``tensor_model_parallel`` is true of a parameter that is cut; ``sequence_parallel`` of one
that every rank holds and whose gradients the step sums over tensor parallel ranks, so R. One without either must get
the same gradient on each of them, so I. ``allreduce`` is false of what belongs to one expert parallel rank. Over data
and context parallel ranks all are kept equal and their gradients are averaged, so R. A stage of a pipeline has
parameters of its own, so V, but for the embedding that two of them share (``shared_embedding``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch
import torch.distributed as dist

from shardwise.diagnostics.source import user_site
from shardwise.interop.running.recording import placed_alike
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.tagging import Origin, Tag, set_tag, tag_of, type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.regions import cut_along
from shardwise.types.placement import I, PerMeshAxisLocalSpmdType, R, V
from shardwise.types.tensor_type import Ground, TensorType

from ..state.session import CheckSession
from .inputs import CONSTANT_OF_MEGATRON, OF_MEGATRON, is_assumed, is_constant, is_data, is_made, put_type
from .wrappers import averaged

STATE = "megatron.core.parallel_state"
"""The module that knows the groups that a program of Megatron's has made."""
_NORMS_OF_HEADS = ("q_layernorm", "k_layernorm")
"""Norms of heads, which are cut: the step sums their gradients without a mark."""


class _State(Protocol):
    def model_parallel_is_initialized(self) -> bool: ...
    def get_tensor_model_parallel_group(self) -> dist.ProcessGroup: ...
    def get_data_parallel_group(self) -> dist.ProcessGroup: ...
    def get_context_parallel_group(self) -> dist.ProcessGroup: ...
    def get_pipeline_model_parallel_group(self) -> dist.ProcessGroup: ...
    def get_expert_tensor_parallel_group(self) -> dist.ProcessGroup: ...
    def get_expert_model_parallel_group(self) -> dist.ProcessGroup: ...
    def get_expert_data_parallel_group(self) -> dist.ProcessGroup: ...


def type_parameters(session: CheckSession, module: torch.nn.Module) -> None:
    """Type the parameters of ``module`` that nobody has typed, if the program has Megatron's groups."""
    state = _state()
    if state is None:
        return
    data = tuple(_axes(state.get_data_parallel_group(), state.get_context_parallel_group()))
    averaged(session, data)
    # Ids less the first of a rank's part of the vocabulary count as equal here, and each rank has its own.
    session.equal_by_marks |= frozenset((*data, *_axes(*_model_parallel(state))))
    # Its seed of whatever draws outside of its own streams is one for all tensor parallel ranks.
    session.synchronised |= frozenset(_axes(state.get_tensor_model_parallel_group()))
    stages = tuple(_axes(state.get_pipeline_model_parallel_group()))
    origin = Origin(user_site(), "said by Megatron's marks")
    for owner, name, parameter in _owned(module):
        if not _is_untyped(parameter):
            continue
        expert = not getattr(parameter, "allreduce", True)
        places: dict[MeshAxis, PerMeshAxisLocalSpmdType] = {}
        if not expert:
            places |= dict.fromkeys(data, R)
        elif not any(_axes(state.get_expert_data_parallel_group())):
            # With copies of an expert, ranks are cut in two ways, and a forward pass has one mesh.
            places |= dict.fromkeys(_axes(state.get_expert_model_parallel_group()), V)
        group = getattr(owner, "tp_group", None)
        if not isinstance(group, dist.ProcessGroup):
            group = state.get_expert_tensor_parallel_group() if expert else state.get_tensor_model_parallel_group()
        places |= dict.fromkeys(_axes(group), _over_tensor_parallel(parameter, name))
        if not getattr(parameter, "shared_embedding", False):  # the one weight that two stages have
            places |= dict.fromkeys(stages, V)
        put_type(parameter, TensorType.of(places), origin)


def type_shards(parameters: Iterable[torch.Tensor], group: dist.ProcessGroup) -> None:
    """Type the parts of parameters that each rank of ``group`` updates for all; whoever has the whole gets it back."""
    origin = Origin(user_site(), "this rank's part, by Megatron's distributed optimizer")
    for part in parameters:
        type = type_of(part)
        for axis in _axes(group):
            type = cut_along(type, axis)
        inside = {one: V for axis in _axes(group) for one in type.axes if one <= axis}
        if inside:
            set_tag(part, Tag(type.with_placements(inside), origin))


def type_inputs(session: CheckSession, inputs: Iterable[object]) -> None:
    """Type what a model gets and nobody has typed: equal on tensor parallel ranks, each data parallel rank's own.

    Where something says of other axes alone what it is, as a cut by the rank's number does, it is equal there as well.
    """
    state = _state()
    data = [x for x in inputs if isinstance(x, torch.Tensor) and not is_made(x)]
    if state is not None and data:
        own = dict.fromkeys(_axes(state.get_data_parallel_group(), state.get_context_parallel_group()), V)
        equal = dict.fromkeys(_axes(state.get_tensor_model_parallel_group()), I)
        site = user_site()
        for x in data:
            known, tag = type_of(x), tag_of(x)
            placed_alike(x, [axis for axis in equal if not known.is_varying(axis)], "a model of Megatron")
            if is_data(x):
                origin = Origin(site, CONSTANT_OF_MEGATRON if is_constant(x) else OF_MEGATRON)
                put_type(x, TensorType.of(own | equal), origin)
            elif tag is not None and known.local:
                unsaid = {axis: I for axis in equal if all(axis.isorthogonal(one) for one in known.axes)}
                after, said = known.with_placements(unsaid), Origin(site, OF_MEGATRON)
                if unsaid:
                    origins = tuple(said if axis in unsaid else tag.origin_of(axis) for axis in after.axes)
                    put_type(x, after, tag.origin if is_assumed(x) else origins)


def _model_parallel(state: _State) -> tuple[dist.ProcessGroup, ...]:
    return (
        state.get_tensor_model_parallel_group(),
        state.get_expert_tensor_parallel_group(),
        state.get_expert_model_parallel_group(),
    )


def _is_untyped(parameter: torch.Tensor) -> bool:
    """True also of zeros to which a parameter has been moved, to be filled with what it was."""
    type = type_of(parameter)
    return not is_dtensor(parameter) and not type.axes and type.ground is not Ground.UNKNOWN


def _state() -> _State | None:
    state: Any = sys.modules.get(STATE)
    ready = state is not None and dist.is_initialized() and state.model_parallel_is_initialized()
    return state if ready else None


def _over_tensor_parallel(parameter: torch.Tensor, name: str) -> PerMeshAxisLocalSpmdType:
    if getattr(parameter, "tensor_model_parallel", False):
        return V
    summed = getattr(parameter, "sequence_parallel", False) or any(norm in name for norm in _NORMS_OF_HEADS)
    return R if summed else I


def _axes(*groups: dist.ProcessGroup) -> Iterator[MeshAxis]:
    for group in groups:
        axis = MeshAxis.of(group)
        if axis.size() > 1:
            yield axis


def _owned(module: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str, torch.Tensor]]:
    """The parameters of ``module``, each once, with the modules that hold them, and their names in it."""
    seen = set[int]()
    for prefix, owner in module.named_modules():
        for name, parameter in owner.named_parameters(prefix=prefix, recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield owner, name, parameter
