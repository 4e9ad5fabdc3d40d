"""The parameters of a program that has no modules: leaves of its backward passes, by the variables that hold them.

    loss.backward(); params["up"] -= lr * params["up"].grad        one tensor, changed in place
    params = {name: p - lr * g for ...}                            a new tensor of the same name in every step

A leaf need not be a parameter: a stage of a pipeline starts from what it has received. That is another tensor under the
same name, and nothing like the one before. Nor is it one, however like the one before, where optimizers step others: it
is what an inner step has made of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FrameType

import torch

from shardwise.interop.torch_compat import no_torch_function

from ..layouts.alignment import is_constant
from ..records.variables import program_frames, tensors_held

ONE_UPDATE = 0.5
"""By less than this part of itself an update moves a parameter."""


class PlainParameters:
    """Leaves by the names that the program has for them."""

    def __init__(self) -> None:
        self._held: dict[str, torch.Tensor] = {}
        """The tensor that each name stands for now."""
        self._known: set[int] = set()
        self._frames: dict[str, FrameType] = {}
        """The function whose variable leads to the tensor of a name; kept, for the value with which it ends."""
        self.others: set[str] = set()
        """Names of leaves that are no parameters."""
        self.renewed: set[str] = set()
        """Names under which another leaf was met later."""

    def named(self, leaves: Iterable[torch.Tensor]) -> Iterator[tuple[str, torch.Tensor, torch.Tensor | None]]:
        """Of leaves that were not met before: the name, the tensor, and the one that it takes the place of."""
        new = {id(leaf): leaf for leaf in leaves if id(leaf) not in self._known}
        for frame in program_frames() if new else ():
            for name, tensor in tensors_held(frame):
                leaf = new.pop(id(tensor), None)
                if leaf is None:
                    continue
                before = self._held.get(name)
                if before is not None:
                    self.renewed.add(name)
                    if not is_update(before, leaf):
                        self.others.add(name)
                self._held[name] = leaf  # kept, so that no other tensor gets its id
                self._known.add(id(leaf))
                self._frames[name] = frame
                yield name, leaf, before

    def frame_of(self, name: str) -> FrameType:
        """The function whose variable leads to the tensor of a name."""
        return self._frames[name]

    def at_the_end(self) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """Name, tensor, and what the program has in its place in the end, where that is another one."""
        ends: dict[FrameType, dict[str, torch.Tensor]] = {}
        for name, tensor in self._held.items():
            frame = self._frames[name]
            if frame not in ends:
                ends[frame] = dict(tensors_held(frame))
            last = ends[frame].get(name, tensor)
            if last is not tensor and is_update(tensor, last):
                yield name, tensor, last


def is_update(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Is ``after`` what a step of training makes of ``before``? A constant, as the zeros of a bias, tells nothing."""
    with no_torch_function():  # the program does not read these numbers
        one, other = before.detach(), after.detach()
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        return is_constant(one) or float((other - one).norm()) <= ONE_UPDATE * float(one.norm())
