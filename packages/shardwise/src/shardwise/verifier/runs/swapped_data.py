"""Parameters whose data is a part of the whole while a step is taken, put in its place for that time.

Optimizers that share out their work by hand do so:

    begins with         [8, 5]  on every rank
    enters the step     [4, 5]  rank 1 of 2 has rows 4 to 8, and their gradient
    after it            [8, 5]  gathered

Which part it is, the values say when it is seen for the first time; later it is where it was.
"""

from __future__ import annotations

import torch

from shardwise.interop.running.recording import HeldElements

UNPLACED = "is of another shape as it enters the step than it began with, and of no part of it that is known"


class SwappedData:
    """Where the parts lie that parameters had when they entered a step."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, torch.Size], HeldElements | None] = {}

    def held(self, name: str, now: torch.Tensor, before: torch.Tensor) -> HeldElements | None:
        """Which elements of ``before``, what the parameter ``name`` began with, it has now; None where none fit."""
        key = name, now.shape
        if key not in self._known:
            self._known[key] = part_of(now.detach().cpu(), before)
        return self._known[key]


def part_of(part: torch.Tensor, whole: torch.Tensor) -> HeldElements | None:
    """Where ``part`` lies in ``whole``: along one dim, or in a row of all elements; None if it is nowhere."""
    places = torch.arange(whole.numel())
    for dim in (dim for dim in range(whole.ndim) if whole.ndim == part.ndim):
        if part.shape[:dim] == whole.shape[:dim] and part.shape[dim + 1 :] == whole.shape[dim + 1 :]:
            found = _slice(part, whole, dim)
            if found is not None:
                return _ranges(places.view(whole.shape).narrow(dim, found, part.shape[dim]), whole)
    found = _slice(part, whole.reshape(-1), 0) if part.ndim == 1 else None
    return None if found is None else _ranges(places.narrow(0, found, len(part)), whole)


def _slice(part: torch.Tensor, whole: torch.Tensor, dim: int) -> int | None:
    """From where on along ``dim`` the part is the whole."""
    count = part.shape[dim]
    if not 0 < count <= whole.shape[dim]:
        return None
    first = part.narrow(dim, 0, 1)
    others = [at for at in range(whole.ndim) if at != dim]
    same = whole == first
    fits = same.all(others) if others else same
    starts = fits.nonzero().flatten().tolist()
    return next((at for at in starts if torch.equal(whole[_from(at, count, dim)], part)), None)


def _from(at: int, count: int, dim: int) -> tuple[slice, ...]:
    return (*(slice(None),) * dim, slice(at, at + count))


def _ranges(places: torch.Tensor, whole: torch.Tensor) -> HeldElements:
    flat = places.flatten()
    ends = (flat[1:] != flat[:-1] + 1).nonzero().flatten().tolist()
    bounds = zip([0, *(end + 1 for end in ends)], [*ends, len(flat) - 1], strict=True)
    return HeldElements(tuple(whole.shape), tuple((int(flat[first]), int(flat[last]) + 1) for first, last in bounds))
