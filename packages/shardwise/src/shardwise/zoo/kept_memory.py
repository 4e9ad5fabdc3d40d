"""What does a step of training keep on a rank beyond what is there before it? Storages are followed as they are made.

Each counts once, however many tensors look at it. Numbers (a loss) are left out, and so is what has been sent.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from shardwise.host.attribute_patch import patched
from shardwise.interop.torch_call import TorchFunction
from shardwise.interop.torch_compat import DispatchMode, tree_leaves

BEGINS_FROM = {"backward": (1, "grad_tensors"), "grad": (2, "grad_outputs")}
"""What starts a backward pass, and where each is given the gradient that it begins from."""

LOOKS_EVERY_S, ALIKE = 0.002, 5
"""A collective is over a moment before its thread gives up its tensors: so many looks have to agree."""


class KeptMemory:
    """The most that steps have kept.

    ``activations``  bytes made outside of backward that are there when a backward pass begins and are no gradient.
    ``gradients``    bytes that backward has made and that are there when it ends, or when the optimizer steps.
    """

    def __init__(self) -> None:
        self.activations = self.gradients = 0

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Around forward and backward; what is there at the end are the gradients that the optimizer takes."""
        followed = _Followed()
        with contextlib.ExitStack() as stack:
            for name in BEGINS_FROM:
                stack.enter_context(patched(torch.autograd, name, followed.around(name)))
            stack.enter_context(followed)
            yield
        taken = followed.alive()
        activations = [sum(kept[at] for at in kept.keys() - taken.keys()) for kept in followed.before]
        gradients = [sum((kept | taken).values()) for kept in followed.after]
        self.activations = max(self.activations, *activations)
        self.gradients = max(self.gradients, *gradients)


class _Followed(DispatchMode):  # type: ignore[no-untyped-call]
    """Storages that are made while it is on, as long as they live: bytes by a number of each.

    ``before``, ``after``  what there is of forward where a backward pass begins, and of backward where it ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: list[dict[int, int]] = []
        self.after: list[dict[int, int]] = []
        self._storages: list[weakref.ref[Any]] = []
        self._at: dict[int, int] = {}
        self._of_backward: set[int] = set()
        self._sent: set[int] = set()
        self._in_backward = False

    def __torch_dispatch__(
        self,
        func: TorchFunction,
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        known = {id(x.untyped_storage()) for x in _tensors((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.c10d.send.default:
            self._sent |= {at for x in _tensors(args) if (at := self._number(x)) is not None}
        for x in _tensors(result):
            if x.dim() and id(x.untyped_storage()) not in known and self._number(x) is None:
                self._follow(x)
        return result

    def alive(self) -> dict[int, int]:
        """Bytes of the storages that are there, once the threads of gloo have let go of what they have sent."""
        found, alike = self._found(), 0
        while dist.is_initialized() and dist.get_backend() == "gloo" and alike < ALIKE:
            time.sleep(LOOKS_EVERY_S)
            before, found = found, self._found()
            alike = alike + 1 if found == before else 0
        return found

    def _found(self) -> dict[int, int]:
        return {at: storage.nbytes() for at, held in enumerate(self._storages) if (storage := held()) is not None}

    def around(self, name: str) -> Callable[..., object]:
        """The function of ``torch.autograd`` of this name, which notes what there is when it begins and ends."""
        function, (position, keyword) = getattr(torch.autograd, name), BEGINS_FROM[name]

        def backward(*args: object, **kwargs: object) -> object:
            given = args[position] if len(args) > position else kwargs.get(keyword)
            beginning = {self._number(x) for x in _tensors(given)}
            alive = self.alive()
            self.before.append({at: alive[at] for at in alive.keys() - self._of_backward - beginning})
            self._in_backward = True
            try:
                return function(*args, **kwargs)
            finally:
                self._in_backward = False
                alive = self.alive()
                self.after.append({at: alive[at] for at in (alive.keys() & self._of_backward) - self._sent})

        return backward

    def _follow(self, x: Tensor) -> None:
        at, storage = len(self._storages), x.untyped_storage()
        self._storages.append(weakref.ref(storage))
        self._at[id(storage)] = at
        if self._in_backward:
            self._of_backward.add(at)

    def _number(self, x: Tensor) -> int | None:
        """None if the storage was there before, or is another one at the place of one that is gone."""
        storage = x.untyped_storage()
        at = self._at.get(id(storage))
        return at if at is not None and self._storages[at]() is storage else None


def _tensors(values: object) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]
