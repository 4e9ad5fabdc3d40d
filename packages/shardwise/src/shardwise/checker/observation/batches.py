"""Batches of a ``DataLoader`` whose sampler deals out the data set: each rank has samples of its own, along dim 0.

``DistributedSampler(num_replicas=4, rank=2)`` says that there are four parts and that this rank reads the third. The
axis is the one of four ranks along which this rank is the third, and every other rank what the number is there, if that
is known, as of ``mesh["dp"].get_local_rank()``; where several are, or none is, nothing is claimed.
With global types it is not either of batches that are put together in the program's own way: their dims are unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sized
from typing import Protocol

import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, default_collate

from shardwise.diagnostics.finding import in_brackets
from shardwise.diagnostics.source import user_location, user_site
from shardwise.interop.tensors.tagging import Origin, Tag, set_tag, tag_of, type_of
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.axis import MeshAxis, flatten_axes
from shardwise.mesh.entry import current_entry
from shardwise.types.placement import V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import TensorType

from ..state.numbers import TYPED_NUMBERS
from ..state.session import CheckSession


def wrap_iter(find: Callable[[], CheckSession | None], plain: Callable[[DataLoader[object]], _Batches]) -> object:
    """``DataLoader.__iter__``, whose batches get a type."""

    @functools.wraps(plain)
    def __iter__(self: DataLoader[object]) -> Iterator[object]:
        batches = plain(self)
        session = find()
        if session is not None and session.untyped is not None and _shuffles_apart(self):
            place = in_brackets(user_location())
            session.untyped.losses[f"which samples a rank reads{place}: {_APART}"] = None
        axis = None if session is None or not session.observe else _axis_of(self)
        if session is None or axis is None or not (session.local or _cuts_dim_0(self)):
            return batches
        return _Typed(batches, axis, session.local, stacked=_cuts_dim_0(self))

    return __iter__


class _Batches(Iterator[object], Sized, Protocol):
    """The iterator of a ``DataLoader``."""


class _Typed:
    """The iterator of a ``DataLoader``, with a type on every tensor of a batch.

    ``stacked``  batches are new memory, of one sample each row: also of numbers and other constants of the program.
    """

    def __init__(self, batches: _Batches, axis: MeshAxis, local: bool, *, stacked: bool) -> None:
        self._batches, self._axis, self._local, self._stacked = batches, axis, local, stacked

    def __iter__(self) -> _Typed:
        return self

    def __next__(self) -> object:
        batch = next(self._batches)
        origin = Origin(user_site(), "dealt out by DistributedSampler")
        for leaf in tree_leaves(batch):
            if isinstance(leaf, torch.Tensor) and leaf.ndim and self._says_nothing(leaf):
                entries = (self._axis, *[None] * (leaf.ndim - 1))
                spec = None if self._local else PartitionSpec(*entries)
                set_tag(leaf, Tag(TensorType.of({self._axis: V}, spec), origin))
        return batch

    def _says_nothing(self, leaf: torch.Tensor) -> bool:
        return tag_of(leaf) is None or (self._stacked and type_of(leaf).ground.is_constant)

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> object:
        return getattr(self._batches, name)


def _cuts_dim_0(loader: DataLoader[object]) -> bool:
    """Samples are stacked, and as many on every rank: ``DistributedSampler`` deals out as many to each."""
    return loader.collate_fn is default_collate and type(loader.batch_sampler) is BatchSampler


_APART = (
    "each shuffles for its DistributedSampler by a seed of its own, so that some samples are read several times and "
    "others never"
)


def _sampler_of(loader: DataLoader[object]) -> DistributedSampler[object] | None:
    samplers = (loader.sampler, getattr(loader.batch_sampler, "sampler", None))
    return next((one for one in samplers if isinstance(one, DistributedSampler)), None)


def _shuffles_apart(loader: DataLoader[object]) -> bool:
    """Does the sampler shuffle by numbers that are others on each rank? The parts are then of several orders."""
    sampler = _sampler_of(loader)
    if sampler is None or not sampler.shuffle:
        return False
    return any(one.__class__ in TYPED_NUMBERS and type_of(one).varying_axes for one in (sampler.seed, sampler.epoch))


def _axis_of(loader: DataLoader[object]) -> MeshAxis | None:
    """The axis over which the loader's sampler deals out the data set, if exactly one fits."""
    sampler = _sampler_of(loader)
    if sampler is None or sampler.num_replicas == 1 or not dist.is_initialized():
        return None
    mesh = current_entry()
    axes = set() if mesh is None else set(mesh.axes)
    axes.add(MeshAxis.of(dist.group.WORLD))
    rank = dist.get_rank()
    parts = {rank: sampler.rank}
    if sampler.rank.__class__ in TYPED_NUMBERS:
        own = type_of(sampler.rank).varying_axes
        axes |= {flatten_axes(tuple(sorted(own, key=lambda axis: axis.sort_key)))} if own else set()
        parts = dict(enumerate(getattr(sampler.rank, "by_rank", None) or ())) or parts
    fitting = [
        axis
        for axis in axes
        if axis.size() == sampler.num_replicas and all(axis.layout.place(at) == part for at, part in parts.items())
    ]
    return fitting[0] if len(fitting) == 1 else None
