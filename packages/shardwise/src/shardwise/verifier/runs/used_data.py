"""What operations are given that has no gradient: data on its way to a model, which is cut somewhere.

It is recorded where the runs part, to find a cut that is the same on every rank; and replaced, to see whether the runs
agree where each rank has its own piece.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard

import torch

from shardwise.diagnostics.source import user_location
from shardwise.interop.calls.op_names import op_name
from shardwise.interop.running.recording import Key, Record, Recorder, has_values
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.torch_compat import no_torch_function
from shardwise.oracle.simulated_ranks.replay import collective_named
from shardwise.types.tensor_type import UNTYPED

from .made_tensors import is_made

CUTS = {"__getitem__", "narrow", "select", "index_select", "take_along_dim", "gather"}
"""What gives a part of its operand; the pieces of those that give several are seen where they are used."""
LARGEST = 1 << 20
"""Elements of what is looked at."""


class UsedData:
    """Records what operations are given, and puts ``pieces`` of this rank, by the key of the record, in its place."""

    def __init__(self, rank: int, pieces: Mapping[Key, Sequence[torch.Tensor]]) -> None:
        self._rank, self._pieces = rank, pieces
        self._recorder = Recorder()

    @property
    def records(self) -> list[Record]:
        """What has been recorded so far."""
        return [entry for entry in self._recorder.entries if isinstance(entry, Record)]

    def operands(self, func: Callable[..., object], args: Sequence[object]) -> Sequence[object]:
        """The operands of a call of ``func``, some of which may be replaced."""
        name = op_name(func)
        if name.prop is not None or collective_named(func) is not None or not any(map(_is_data, _flat(args))):
            return args
        written = name.in_place or name.shown == "__setitem__"
        return [
            given if written and at == 0 else self._looked_at(f"{name.shown} {at}", given)
            for at, given in enumerate(args)
        ]

    def result(self, func: Callable[..., object], result: object) -> object:
        """The result of ``func``, which is looked at where it is a part of what it was given."""
        if getattr(func, "__name__", "") not in CUTS:
            return result
        return self._looked_at(f"{op_name(func).shown} result", result)

    def _looked_at(self, name: str, given: object) -> object:
        if isinstance(given, (list, tuple)) and type(given) in (list, tuple):
            return type(given)(self._looked_at(name, one) for one in given)
        if not _is_data(given):
            return given
        with no_torch_function():
            key = self._recorder.add("data", name, given, UNTYPED, user_location()).key
            own = self._pieces.get(key)
            return given if own is None else own[self._rank].to(given.dtype).clone()


def _flat(args: Sequence[object]) -> list[object]:
    return [one for arg in args for one in (arg if isinstance(arg, (list, tuple)) else (arg,))]


def _is_data(x: object) -> TypeGuard[torch.Tensor]:
    """Not what is made of parameters: a wrapper that shards them cuts the same piece on every rank, and pads it."""
    return (
        isinstance(x, torch.Tensor)
        and not isinstance(x, torch.nn.Parameter)
        and not is_dtensor(x)
        and not x.requires_grad
        and not is_made(x)
        and x.ndim > 0
        and 0 < x.numel() <= LARGEST
        and has_values(x)
    )
