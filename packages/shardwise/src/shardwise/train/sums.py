"""How are the sums made that the step owes? Gradients side by side in a few buffers, in an order all ranks share.

What is in a buffer follows from the parameters: one that has no gradient on this rank takes part with zeros, because
it may have one elsewhere. Beside the numbers travels, for each parameter, how many ranks had a gradient, so that one
that has none anywhere stays without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shardwise.interop.communication import backend
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.mesh.axis import MeshAxis

from .pieces import group_along, local_gradient, outermost_first


@dataclass(frozen=True, slots=True)
class Owing:
    """A parameter whose gradient is to be summed over ``axes``, in the process groups ``groups`` if it knows them."""

    parameter: Tensor
    axes: frozenset[MeshAxis]
    groups: Mapping[MeshAxis, Any]


def make_sums(owing: Iterable[Owing], bucket_bytes: int) -> None:
    """Sum the gradients in place. Communicates one buffer of at most ``bucket_bytes`` at a time, axis by axis."""
    for bucket in _buckets(owing, bucket_bytes):
        _sum(bucket)


def _buckets(owing: Iterable[Owing], bucket_bytes: int) -> Iterator[list[Owing]]:
    kinds: dict[Any, list[Owing]] = {}
    for one in owing:
        key = (tuple(outermost_first(one.axes)), one.parameter.dtype, one.parameter.device)
        kinds.setdefault(key, []).append(one)
    for kind in kinds.values():
        bucket: list[Owing] = []
        held_bytes = 0
        for one in kind:
            bytes_here = _local(one.parameter).numel() * one.parameter.element_size()
            if bucket and held_bytes + bytes_here > bucket_bytes:
                yield bucket
                bucket, held_bytes = [], 0
            bucket.append(one)
            held_bytes += bytes_here
        if bucket:
            yield bucket


def _sum(bucket: Sequence[Owing]) -> None:
    parameters = [one.parameter for one in bucket]
    first = _local(parameters[0])
    gradients = [_dense(parameter) for parameter in parameters]
    numbers = [
        torch.zeros_like(_local(parameter)) if gradient is None else gradient
        for parameter, gradient in zip(parameters, gradients, strict=True)
    ]
    present = first.new_tensor([float(gradient is not None) for gradient in gradients])
    buffer = torch.cat([present, *(one.reshape(-1).to(first.dtype) for one in numbers)])
    for axis in outermost_first(bucket[0].axes):
        backend.current.all_reduce(buffer, group=group_along(axis, bucket[0].groups))
    counts, *sums = torch.split(buffer, [len(bucket), *(one.numel() for one in numbers)])
    elsewhere = [] if all(one is not None for one in gradients) else counts.tolist()
    for position, (parameter, gradient, total) in enumerate(zip(parameters, gradients, sums, strict=True)):
        if gradient is not None:
            gradient.copy_(total.view_as(gradient))
        elif elsewhere[position]:
            _give(parameter, total.view_as(_local(parameter)).clone())


def _local(parameter: Tensor) -> Tensor:
    """This rank's part of a parameter."""
    return parameter.to_local() if is_dtensor(parameter) else parameter.detach()  # type: ignore[attr-defined]


def _dense(parameter: Tensor) -> Tensor | None:
    """The gradient to write into; a sparse one becomes dense, as the ranks' entries differ."""
    if parameter.grad is not None and parameter.grad.layout is torch.sparse_coo:
        parameter.grad = parameter.grad.to_dense()
    return local_gradient(parameter)


def _give(parameter: Tensor, gradient: Tensor) -> None:
    if is_dtensor(parameter):
        made = type(parameter).from_local(  # type: ignore[attr-defined]
            gradient,
            parameter.device_mesh,  # type: ignore[attr-defined]
            parameter.placements,  # type: ignore[attr-defined]
            run_check=False,
            shape=parameter.shape,
            stride=parameter.stride(),
        )
        gradient = made
    parameter.grad = gradient
