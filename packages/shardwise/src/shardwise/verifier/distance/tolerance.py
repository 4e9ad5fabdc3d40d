"""How far may a record be from the run on one rank? By its dtype and its size; a gradient has that of its step.

A gradient that is zero in theory is rounding in practice, and has no size of its own. An adaptive optimizer divides by
that, and makes of it a step like any other. So it is with single elements, as of a key's bias in a merged one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import torch

from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.running.recording import Key, Record

from ..records.record import RankRun
from ..records.rounded import Moved, Spread
from .difference import left_over, rms_of, scale_of, tolerance_of
from .numbers import GRADIENTS
from .spread import is_low

_FLOOR = 1e-2
"""A gradient is at least this part of the largest of its step, for what its tolerance is relative to."""
TRAINED = 100.0
"""How much an adaptive optimizer may magnify rounding."""
_FARTHEST = 2.0
"""The farthest element of a mesh may have moved so much farther than that of the runs moved by roundings, which move
every result: right programs of 96 layers are at 0.3 to 1.0."""
_FARTHEST_ELSEWHERE = 4.0
"""Likewise where the ranks may be on another device than the one rank was: its kernels sum in another order, and in
another precision. On a GPU one element of a gradient of 6 layers in bf16 was farther off than twice."""
_ALL = 1.5
"""Likewise for the root mean square of all elements, which varies less."""
_ROUNDINGS = 2.0
"""Roundings of a tensor itself: where its addends are summed, and where it is sent."""


class Tolerance:
    """What is allowed, seeing the run on one rank.

    ``dtypes``  what gradients were computed with, in any run.
    ``rtol``    relative to the largest element; None takes it from the dtypes.
    ``spread``  how far rounding moves the records of the run on one rank; None takes what that run has kept of it, for
              ranks on any device.
    ``noise``   by name of a parameter, which elements of its gradients are nothing but rounding in every step.
    """

    def __init__(
        self, alone: RankRun, dtypes: Iterable[torch.dtype], rtol: float | None, spread: Spread | None = None
    ) -> None:
        self.rtol = rtol
        self.dtypes = tuple(dtypes)
        self._spread = None if rtol is not None else alone.spread if spread is None else spread
        self._farthest = _FARTHEST_ELSEWHERE if spread is None else _FARTHEST
        self._largest: defaultdict[int, float] = defaultdict(float)
        for key, gradient in _gradients(alone):
            step = _step_of(key)
            self._largest[step] = max(self._largest[step], scale_of(gradient))
        initial = (entry for entry in alone.entries if isinstance(entry, Record) and entry.key.kind == "parameter")
        self._initial = scale_of(*(entry.value for entry in initial if entry.value is not None))
        """The largest number of all initial values."""
        self._read: defaultdict[SourceLocation | None, float] = defaultdict(float)
        """The largest number that is read at a line."""
        for entry in alone.entries:
            if isinstance(entry, Record) and entry.key.kind == "read" and entry.value is not None:
                self._read[entry.key.location] = max(self._read[entry.key.location], scale_of(entry.value))
        self._stepped = any(key.kind == "gradient" for key, _ in _gradients(alone))
        """There is an optimizer, which may be adaptive."""
        self._graded = {key.name for key, _ in _gradients(alone)}
        self.noise = self._noise(alone)

    def apart(self, key: Key, tensors: Iterable[torch.Tensor], size: float) -> float:
        """How far two values of ``tensors`` may be apart, at a size of at least ``size``."""
        tensors = list(tensors)
        size = max(scale_of(*tensors), size)
        if key.kind in GRADIENTS:
            size = max(size, _FLOOR * self._largest[_step_of(key)])
        dtypes = {tensor.dtype for tensor in tensors}
        rtol = self._relative(dtypes)
        moved = self._moved(key, dtypes)
        left = self._left_over(key, dtypes)
        if moved is not None:
            measured = max(self._farthest * moved.largest + _ROUNDINGS * self._eps * size, left)
            return measured if any(map(is_low, self.dtypes)) else max(measured, rtol * size)
        if key.kind == "trained" and self.rtol is None and self._stepped:
            rtol = min(rtol * TRAINED, 1.0)
        return max(rtol * size, left)

    def _left_over(self, key: Key, dtypes: Iterable[torch.dtype]) -> float:
        """What may be left where numbers cancel: of an initial value that the first batch has set, and of a residual
        that a loop reads until it is small.
        """
        if self.rtol is not None or key.kind not in ("parameter", "read"):
            return 0.0
        largest = self._initial if key.kind == "parameter" else self._read.get(key.location, 0.0)
        return max((left_over(dtype, largest) for dtype in dtypes), default=0.0)

    def typical(self, key: Key, expected: torch.Tensor) -> float | None:
        """How far all elements may be from ``expected``, by root mean square; None where nobody has measured it."""
        moved = self._moved(key, {expected.dtype})
        if moved is None or not any(map(is_low, self.dtypes)) or expected.numel() == 1:
            return None
        floor = _FLOOR * self._largest[_step_of(key)] if key.kind in GRADIENTS else 0.0
        return _ALL * moved.rms + _ROUNDINGS / 4 * self._eps * max(rms_of(expected), floor)

    @property
    def _eps(self) -> float:
        return max((torch.finfo(dtype).eps for dtype in self.dtypes if dtype.is_floating_point), default=0.0)

    def _moved(self, key: Key, own: Iterable[torch.dtype]) -> Moved | None:
        """How far rounding moves the record ``key``; None for what no rounding moves, and where nobody has measured."""
        if self._spread is None or key.kind == "parameter" or not any(dtype.is_floating_point for dtype in own):
            return None
        return self._spread.get(key)

    def _relative(self, own: Iterable[torch.dtype]) -> float:
        if self.rtol is not None:
            return self.rtol
        exact = tolerance_of(own)
        return max(exact, tolerance_of(self.dtypes)) if exact else 0.0

    def is_noise(self, name: str) -> bool:
        """Are all gradients of the parameter ``name`` nothing but rounding?"""
        noise = self._noise_of(name)
        return noise is not None and bool(noise.all())

    def settled(self, key: Key, name: str, actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        """``actual``, a value of the parameter ``name`` after the last step, as expected where it is made of noise."""
        noise = self._noise_of(name) if key.kind == "trained" else None
        if noise is None or noise.shape != actual.shape or actual.shape != expected.shape:
            return actual
        return torch.where(noise, expected.to(actual.dtype), actual)

    def _noise_of(self, name: str) -> torch.Tensor | None:
        """That of a parameter; of one without gradients, as of a teacher that follows, that of its namesake."""
        namesake = name if name in self._graded else name.rpartition(" (")[0] or name
        return self.noise.get(namesake)

    def _noise(self, alone: RankRun) -> dict[str, torch.Tensor]:
        quiet: dict[str, torch.Tensor] = {}
        moved: dict[str, torch.Tensor] = {}
        for key, gradient in _gradients(alone):
            if key.kind == "gradient" and gradient.is_floating_point():
                size = gradient.abs()
                small = size <= self._relative([gradient.dtype]) * self._largest[key.nth]
                quiet[key.name] = quiet.get(key.name, torch.ones_like(small)) & small
                moved[key.name] = moved.get(key.name, torch.zeros_like(small)) | (size > 0)
        # What gets no gradient at all is not moved, and is no noise.
        return {name: small & moved[name] for name, small in quiet.items() if bool((small & moved[name]).any())}


def _gradients(run: RankRun) -> Iterator[tuple[Key, torch.Tensor]]:
    for entry in run.entries:
        if isinstance(entry, Record) and entry.key.kind in GRADIENTS and entry.value is not None:
            yield entry.key, entry.value


def _step_of(key: Key) -> int:
    """The optimizer step that a gradient enters; 0 for those that are left at the end."""
    return key.nth if key.kind == "gradient" else 0
