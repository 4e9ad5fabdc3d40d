"""Which meshes does a program make, and which does it make current? Told while somebody listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .entry import CurrentMesh

Told = Callable[[CurrentMesh], object]


class _Listening:
    told: Told | None = None


@contextmanager
def made_meshes() -> Iterator[list[CurrentMesh]]:
    """The meshes with names of what runs inside the block, in the order in which they came, each once.

    One that is a part of another, as ``mesh["tp"]`` of ``mesh``, is left out.
    """
    found: list[CurrentMesh] = []

    def told(mesh: CurrentMesh) -> None:
        axes = mesh.all_names.items()
        if axes and not any(axes <= other.all_names.items() for other in found):
            found[:] = [*(other for other in found if not other.all_names.items() <= axes), mesh]
        if before is not None:
            before(mesh)

    before, _Listening.told = _Listening.told, told
    try:
        yield found
    finally:
        _Listening.told = before


def listener() -> Told | None:
    """What is to be told of a mesh that has just been made, or made current; None while nobody listens."""
    return _Listening.told
