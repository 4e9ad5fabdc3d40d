"""DataLoaders under ``--feed``: listened to on the mesh; on one rank they give the batches of all ranks together.

What a loader draws at random, for its order or for augmentation, comes from a stream of its own, so that the program's
generator is in the same state in both runs.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from shardwise.host.attribute_patch import patched
from shardwise.interop.running.recording import unheard
from shardwise.interop.torch_compat import no_torch_function, tree_map

from ..records.batches import Batches


class Loading:
    """``batches`` is what was drawn; ``given``, on one rank, what is given instead."""

    def __init__(self, given: Batches | None) -> None:
        self.batches = Batches()
        self._given = given
        self._loaders: dict[int, object] = {}
        """Kept, so that no other gets its id; in the order of first use."""
        self._epochs: Counter[int] = Counter()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Every DataLoader of this process is looked after inside the block."""
        iterate: Any = DataLoader.__iter__
        length: Any = DataLoader.__len__
        with (
            patched(DataLoader, "__iter__", lambda loader: self._iterated(loader, iterate)),
            patched(DataLoader, "__len__", lambda loader: self._length(loader, length)),
        ):
            yield

    def _number(self, loader: object) -> int:
        self._loaders.setdefault(id(loader), loader)
        return list(self._loaders).index(id(loader))

    def _length(self, loader: DataLoader[object], length: Callable[[DataLoader[object]], int]) -> int:
        number = self._number(loader)
        if self._given is not None and number in self._given.lengths:
            return self._given.lengths[number]
        self.batches.lengths[number] = length(loader)
        return self.batches.lengths[number]

    def _iterated(
        self, loader: DataLoader[object], iterate: Callable[[DataLoader[object]], Iterator[object]]
    ) -> Iterator[object]:
        number = self._number(loader)
        epoch = number, self._epochs[number]
        self._epochs[number] += 1
        if self._given is not None and epoch in self._given.drawn:
            return iter([_copy(batch) for batch in self._given.drawn[epoch]])
        return self._drawn(loader, iterate, self.batches.drawn.setdefault(epoch, []))

    def _drawn(
        self, loader: DataLoader[object], iterate: Callable[[DataLoader[object]], Iterator[object]], kept: list[object]
    ) -> Iterator[object]:
        stream = _Stream()
        with stream.drawing():
            batches = iterate(loader)
        while True:
            with stream.drawing():
                batch = next(batches, _END)
            if batch is _END:
                return
            kept.append(_copy(batch))
            yield batch


_END = object()


class _Stream:
    """A stream of random numbers that starts as the program's generator does, and leaves that alone."""

    def __init__(self) -> None:
        with no_torch_function():
            self._state = torch.get_rng_state()

    @contextlib.contextmanager
    def drawing(self) -> Iterator[None]:
        with no_torch_function():
            before = torch.get_rng_state()
            torch.set_rng_state(self._state)
        try:
            with unheard():
                yield
        finally:
            with no_torch_function():
                self._state = torch.get_rng_state()
                torch.set_rng_state(before)


def _copy(batch: object) -> object:
    with no_torch_function():
        return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, batch)
