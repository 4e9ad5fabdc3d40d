"""Which random numbers does a rank start with? Those that a process of its own would, except that a run repeats.

torch gives every fresh process the same seed, so all ranks go on from the caller's generator. Python and NumPy ask the
system, so ranks differ: here by seeds that are made of the caller's state and the rank's number.
"""

from __future__ import annotations

import random
import sys
import zlib


def origin() -> int:
    """A number that stands for the state of Python's generator, which is left as it is."""
    return zlib.crc32(repr(random.getstate()).encode())


def seed_rank(start: int, rank: int) -> None:
    """Seed Python's generator, and NumPy's if it is loaded, for ``rank``. ``start`` is the caller's ``origin()``."""
    seed = zlib.crc32(f"{start} {rank}".encode())
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
