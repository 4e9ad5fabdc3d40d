"""What a tensor holds, for its drawing: only the elements that are drawn are read, and nothing is recorded of it.

Torch is loaded where a tensor is read, for most pictures have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardwise.types.notation import TypedShape

from .nesting import indices
from .tensors import Index, fitting_limit


@dataclass(frozen=True)
class ReadTensor:
    """A tensor as it is drawn; ``text_at(limit)`` gives the text for every index that is drawn with that limit."""

    typed: TypedShape
    names: tuple[str | None, ...] | None
    text_at: Callable[[int], Callable[[Index], str]]
    notes: tuple[str, ...]


def readable(x: object) -> ReadTensor:
    """What there is to draw of ``x``. One without elements in memory (meta, fake) shows the indices themselves."""
    from shardwise.interop.tensors.tagging import typed_shape
    from shardwise.interop.torch_compat import no_torch_function

    typed = typed_shape(x)
    with no_torch_function():
        called = tuple(getattr(x, "names", ()))  # not in every torch of the range
        names = called if any(called) else None
        why = _unreadable(x)
    if why:
        return ReadTensor(typed, names, lambda limit: _index_text, (f"{why}: tiles show the index",))
    return ReadTensor(typed, names, lambda limit: _reader(x, limit), ())


def _unreadable(x: Any) -> str:
    import torch

    if x.is_meta or type(x).__name__ == "FakeTensor":
        return "the tensor has no elements in memory"
    if x.layout is not torch.strided or x.is_quantized or x.is_nested:
        return "the elements lie in no dense array"
    if type(x) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return f"{type(x).__name__} holds its elements in its own way"
    return ""


def _index_text(index: Index) -> str:
    return ",".join(map(str, index))


def _reader(x: Any, limit: int) -> Callable[[Index], str]:
    """Takes the drawn indices out of ``x`` at once: one copy from a device, of a few hundred elements."""
    import torch

    from shardwise.interop.torch_compat import no_torch_function

    limit = fitting_limit(x.shape, limit)
    drawn = [[part.start for part in indices(size, limit) if not part.is_left_out] for size in x.shape]
    with no_torch_function():
        part = x.detach()
        part = part.rename(None) if hasattr(part, "rename") else part
        for dim, wanted in enumerate(drawn):
            part = part.index_select(dim, torch.tensor(wanted, dtype=torch.int64, device=x.device))
        values = part.cpu().tolist()

    def text(index: Index) -> str:
        value: Any = values
        for wanted, at in zip(drawn, index, strict=True):
            value = value[wanted.index(at)]
        return number_text(value)

    return text


def number_text(value: object) -> str:
    """A number in few characters."""
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    if isinstance(value, complex):
        return f"{value.real:.3g}{value.imag:+.3g}j"
    return str(value)
