"""The claim of a call that its result is partial, which a contraction carries from the caller to the checker.

``linear(x, w, out_partial_axes="tp")`` makes one claim per axis; the longer spelling with src and dst says in addition
what the operands are along the axis. Erased, a claim does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PartialClaim:
    """The result is P along ``axis``.

    ``axis``  as the caller wrote it: a name, a ``MeshAxis`` or a process group.
    ``src``   what the operands are along it: one placement (every sharded operand's contracted dim, or the only
              operand's), or a tuple with one placement per operand; None if the caller did not say.
    """

    axis: Any
    src: Any = None
