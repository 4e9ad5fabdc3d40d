"""The declaration that random numbers are equal along mesh axes, which the random rules read.

Dropout on a replicate activation is right only if every rank along the axis draws the same mask. No checker can see how
generators were seeded, so the program says it, and the run's report lists it among what is trusted.
Source: docs/semantics.md section 3.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from shardwise.diagnostics.source import user_site
from shardwise.interop.calls.boundary import boundary
from shardwise.interop.running.session import current
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import normalize_axis
from shardwise.types.aliases import DeviceMeshAxis


def synchronised_rng(*axes: DeviceMeshAxis) -> contextlib.AbstractContextManager[None]:
    """Declare that inside the block random numbers are equal on all ranks along ``axes`` (names, axes or groups).

    Seeding the generators alike is the program's business; nothing is seeded here. Blocks add up when nested.
    Errors: SW902 for an unknown axis.
    Example:
        >>> with synchronised_rng("tp", "dp"):
        ...     print(typeof(torch.randn(4)))
        f32[4] {dp: R, tp: R}
    """
    return _declared(frozenset(_normalized(axes)))


@boundary
def _normalized(axes: Iterable[DeviceMeshAxis]) -> list[MeshAxis]:
    return [normalize_axis(axis) for axis in axes]


@contextlib.contextmanager
def _declared(axes: frozenset[MeshAxis]) -> Iterator[None]:
    session = current()
    if session is None:
        yield
        return
    site = user_site(2)
    session.trust("synchronised_rng", None if site is None else site.location())
    before = session.synchronised
    session.synchronised = before | axes
    try:
        yield
    finally:
        session.synchronised = before
