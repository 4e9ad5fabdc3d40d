"""How is a name of another module replaced for a while? Two context managers that put back what was there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

_MISSING = object()


@contextlib.contextmanager
def patched(owner: object, name: str, value: object) -> Iterator[None]:
    """``owner.name`` is ``value`` inside the ``with`` block."""
    before = vars(owner).get(name, _MISSING)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These environment variables are set inside the ``with`` block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
