"""In which order, and of which data, does a DistributedSampler share out samples? It has to be the same on all ranks.

Each rank draws the whole order for itself and takes its own places of it. Where the orders differ (``set_epoch`` of
some ranks, a seed by rank), or the data sets do (``random_split`` by a rank's own seed), samples are read twice, and
others never.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch.utils.data import ConcatDataset, DataLoader, DistributedSampler, Subset, TensorDataset

from shardwise.diagnostics.source import user_location
from shardwise.interop.tensors.bits import digest_of
from shardwise.interop.torch_compat import no_torch_function

from ..records.batches import SharedOrder

SETTINGS = ("num_replicas", "shuffle", "seed", "epoch", "drop_last", "total_size")
LARGEST_BYTES = 1 << 28
"""Data sets that are larger are not looked into."""


def order_of(loader: DataLoader[object]) -> SharedOrder | None:
    """That in which ``loader`` is about to be iterated; None if no sampler of torch's own shares its samples out."""
    sampler = getattr(loader, "sampler", None)
    if not isinstance(sampler, DistributedSampler) or type(sampler).__iter__ is not DistributedSampler.__iter__:
        return None
    settings = tuple((name, getattr(sampler, name, None)) for name in SETTINGS)
    with no_torch_function():
        return SharedOrder(int(sampler.rank), settings, _digest(sampler.dataset), user_location())


def _digest(data: object) -> bytes:
    """The same for the same data; nothing where they are computed as they are asked for, or too many."""
    digest = hashlib.blake2b(digest_size=16)
    room = LARGEST_BYTES
    for tensor in _tensors(data):
        if tensor is None or (room := room - tensor.nbytes) < 0:
            return b""
        digest.update(digest_of(tensor))
    return digest.digest()


def _tensors(data: object) -> Iterable[torch.Tensor | None]:
    """What a data set of tensors consists of; None among them for what is not known."""
    if type(data) is TensorDataset:
        return data.tensors
    if type(data) is Subset:
        return [torch.tensor(list(data.indices)), *_tensors(data.dataset)]
    if type(data) is ConcatDataset:
        return [tensor for part in data.datasets for tensor in _tensors(part)]
    if isinstance(data, torch.Tensor) and data.layout is torch.strided:
        return [data]
    if isinstance(data, (list, tuple)) and all(
        isinstance(one, (torch.Tensor, list, tuple, int, float)) for one in data
    ):
        return [tensor for one in data for tensor in _tensors(one)]
    return [torch.tensor(data) if isinstance(data, (int, float)) else None]
