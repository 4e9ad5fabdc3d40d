"""What do local tensors along one axis mean? Both directions, as docs/semantics.md section 2 defines them.

A placement is written R, I, P, P(max), P(min), ``("V", d)`` (the pieces stacked along a new dim d) or ``("S", d)``
(concatenated along dim d), with the ranks' sizes in ``sizes`` if they are uneven.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

DUAL = {"R": "P", "P": "R", "I": "I"}


def dual(placement: Any) -> Any:
    """The placement of a gradient."""
    return DUAL.get(placement, placement) if isinstance(placement, str) else placement


def represent(placement: Any, value: Tensor, count: int, seed: int, sizes: Sequence[int] | None = None) -> list[Tensor]:
    """Local tensors that denote ``value``; a random split of the sum for P."""
    if placement in ("R", "I"):
        return [value] * count
    if placement == "P":
        generator = torch.Generator().manual_seed(seed)
        addends = [torch.randn(value.shape, generator=generator, dtype=value.dtype) for _ in range(count - 1)]
        return [*addends, value - sum(addends)]
    if placement in ("P(max)", "P(min)"):
        generator = torch.Generator().manual_seed(seed)
        owner = torch.randint(count, value.shape, generator=generator)
        worse = -1.0 if placement == "P(max)" else 1.0
        return [torch.where(owner == rank, value, value + worse * (1 + rank)) for rank in range(count)]
    kind, dim = placement
    if kind == "V":
        return list(value.unbind(dim))
    return list(value.split(list(sizes), dim) if sizes is not None else value.chunk(count, dim))


def denote(placement: Any, pieces: Sequence[Tensor]) -> Tensor:
    """The value that the local tensors denote. Asserts that R and I pieces are equal."""
    if placement in ("R", "I"):
        for rank, piece in enumerate(pieces):
            torch.testing.assert_close(piece, pieces[0], rtol=0, atol=0, msg=lambda m, r=rank: f"rank {r}: {m}")
        return pieces[0]
    if placement == "P":
        return torch.stack(list(pieces)).sum(0)
    kind, dim = placement
    return torch.stack(list(pieces), dim) if kind == "V" else torch.cat(list(pieces), dim)
