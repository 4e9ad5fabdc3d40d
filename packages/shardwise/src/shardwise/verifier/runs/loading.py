"""DataLoaders, listened to on the mesh; where one rank is fed, they give it the batches of all ranks together.

What a loader draws at random, for its order or for augmentation, comes from a stream of its own, so that the program's
generator is in the same state in both runs.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator

import torch
from torch.utils.data import DataLoader

from shardwise.host.attribute_patch import patched
from shardwise.interop.running.recording import unheard
from shardwise.interop.torch_compat import no_torch_function, tree_leaves, tree_map

from ..records.batches import Batches
from .shared_orders import order_of

Iterate = Callable[[DataLoader[object]], Iterator[object]]
Length = Callable[[DataLoader[object]], int]


class Loading:
    """``batches`` is what was drawn, if it is to be kept; ``given``, on one rank, what is given instead."""

    def __init__(self, given: Batches | None, *, keeps: bool, kept_bytes: int = 0) -> None:
        """``kept_bytes``  how much is kept at most; 0: all."""
        self.batches = Batches()
        self._given, self._keeps = given, keeps
        self._room = kept_bytes or sys.maxsize
        self._loaders: dict[int, object] = {}
        """Kept, so that no other gets its id; in the order of first use."""
        self._epochs: Counter[int] = Counter()
        self._inside = False
        """A loader's own code runs, which may call that of its base class, or another loader."""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Every DataLoader of this process is looked after inside the block, also one whose class iterates in its
        own way, which the program may only then import.
        """
        with contextlib.ExitStack() as stack:

            def made(cls: type[DataLoader[object]], /, **options: object) -> None:
                super(DataLoader, cls).__init_subclass__(**options)
                self._listen(stack, cls)

            for cls in _with_subclasses(DataLoader):
                self._listen(stack, cls)
            stack.enter_context(patched(DataLoader, "__init_subclass__", classmethod(made)))
            yield

    def _listen(self, stack: contextlib.ExitStack, cls: type[DataLoader[object]]) -> None:
        own = vars(cls)
        if "__iter__" in own:
            stack.enter_context(patched(cls, "__iter__", self._iterating(own["__iter__"])))
        if "__len__" in own:
            stack.enter_context(patched(cls, "__len__", self._measuring(own["__len__"])))

    def _iterating(self, plain: Iterate) -> Iterate:
        @functools.wraps(plain)
        def iterate(loader: DataLoader[object]) -> Iterator[object]:
            return plain(loader) if self._inside else self._iterated(loader, plain)

        return iterate

    def _measuring(self, plain: Length) -> Length:
        @functools.wraps(plain)
        def measure(loader: DataLoader[object]) -> int:
            return plain(loader) if self._inside else self._length(loader, plain)

        return measure

    @contextlib.contextmanager
    def _of_the_loader(self) -> Iterator[None]:
        before, self._inside = self._inside, True
        try:
            yield
        finally:
            self._inside = before

    def _number(self, loader: object) -> int:
        self._loaders.setdefault(id(loader), loader)
        return list(self._loaders).index(id(loader))

    def _length(self, loader: DataLoader[object], length: Length) -> int:
        if not self._keeps:
            return length(loader)
        number = self._number(loader)
        if self._given is not None and number in self._given.lengths:
            return self._given.lengths[number]
        with self._of_the_loader():
            self.batches.lengths[number] = length(loader)
        return self.batches.lengths[number]

    def _iterated(self, loader: DataLoader[object], iterate: Iterate) -> Iterator[object]:
        self.batches.iterated = True
        if not self._keeps:
            return iterate(loader)
        number = self._number(loader)
        epoch = number, self._epochs[number]
        self._epochs[number] += 1
        order = order_of(loader)
        if order is not None:
            self.batches.orders[epoch] = order
        if self._given is not None and epoch in self._given.drawn:
            return iter([_copy(batch) for batch in self._given.drawn[epoch]])
        return self._drawn(loader, iterate, self.batches.drawn.setdefault(epoch, []))

    def _drawn(self, loader: DataLoader[object], iterate: Iterate, kept: list[object]) -> Iterator[object]:
        stream = _Stream()
        with stream.drawing(), self._of_the_loader():
            batches = iter(iterate(loader))
        while True:
            with stream.drawing(), self._of_the_loader():
                batch = next(batches, _END)
            if batch is _END:
                return
            self._keep(batch, kept)
            yield batch

    def _keep(self, batch: object, kept: list[object]) -> None:
        if self.batches.partial:
            return
        self._room -= sum(leaf.nbytes for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor))
        if self._room >= 0:
            kept.append(_copy(batch))
        else:
            self.batches.partial = True
            self.batches.drawn.clear()


_END = object()


def _with_subclasses(cls: type[DataLoader[object]]) -> Iterator[type[DataLoader[object]]]:
    yield cls
    for below in cls.__subclasses__():
        yield from _with_subclasses(below)


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
