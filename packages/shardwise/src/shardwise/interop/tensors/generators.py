"""Whose random numbers agree? What a generator that the library has seeded promises, where the checker can read it.

Seeding is done to the right of the checker (``train/streams.py``); the promise is kept here, where both can look.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Agreement:
    """Along the axes ``synchronised`` all ranks draw equal numbers, along ``distinct`` each draws its own."""

    synchronised: frozenset[Any]
    distinct: frozenset[Any]


class _Local(threading.local):
    agreement: Agreement | None = None


_local = _Local()
_of_generator: weakref.WeakKeyDictionary[torch.Generator, Agreement] = weakref.WeakKeyDictionary()


def promise(generator: torch.Generator, agreement: Agreement) -> None:
    """``generator`` was seeded so that ``agreement`` holds."""
    _of_generator[generator] = agreement


def promised(generator: Any) -> Agreement | None:
    """What is promised of ``generator``, or of the default ones if it is None; None if nothing is."""
    if generator is None:
        return _local.agreement
    # Not asked before there is a promise: generators of torch before 2.13 take no weak references.
    return _of_generator.get(generator) if _of_generator else None


@contextlib.contextmanager
def default_promise(agreement: Agreement) -> Iterator[None]:
    """Inside the ``with`` block ``agreement`` holds of this thread's default generators."""
    before, _local.agreement = _local.agreement, agreement
    try:
        yield
    finally:
        _local.agreement = before
