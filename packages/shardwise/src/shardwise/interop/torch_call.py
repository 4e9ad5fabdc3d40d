"""Names for the parts of a torch call, as function modes and handlers get them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

TorchFunction = Callable[..., object]
"""The function that is called."""

Arguments = Sequence[object]
"""Its arguments by position."""

Keywords = Mapping[str, object]
"""Its arguments by name."""
