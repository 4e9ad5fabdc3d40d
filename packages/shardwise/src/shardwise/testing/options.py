"""How a test is checked: what ``@pytest.mark.spmd(...)`` and ``spmd(...)`` say, read and refused in one place."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from shardwise.configuration.policy import Policy
from shardwise.configuration.reading import find_settings
from shardwise.configuration.settings import Settings
from shardwise.diagnostics.codes import CODES
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown
from shardwise.diagnostics.result import RunResult
from shardwise.mesh.shape import MeshShape, corners

Ranks = int | str | Iterable[int]
Partials = Literal["infer", "explicit"]


@dataclass(frozen=True)
class TestOptions:
    """The options of one checked test.

    ``ranks``     the ranks that are run, each alone in an imagined job; None: all of them, together in this process.
    ``expect``    codes of the errors that the test is about; with others, or without one of these, it fails.
    ``settings``  what the project has decided besides, of which what is reported is of interest.
    """

    __test__ = False  # for pytest: no class of tests

    mesh: MeshShape
    global_types: bool = False
    strict: bool = False
    ranks: tuple[int, ...] | None = (0,)
    partials: Partials = "infer"
    expect: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings, compare=False)

    def reported(self, result: RunResult, *, judges_comments: bool = False) -> RunResult:
        """What is told of a result: without what comments and the project hold back, and one finding for each cause.

        That a comment is not needed is for a run of the whole program to say, as a notebook's cell is one: what one
        test does not need another may.
        """
        policy = Policy(replace(self.settings, baseline=None))
        local = not self.global_types
        return policy.applied(result, strict=self.strict, local=local, judges_comments=judges_comments)

    @property
    def is_alone(self) -> bool:
        """One rank is run, and the others are imagined."""
        return self.ranks is not None and len(self.ranks) == 1


def options_of(
    mesh: str | Mapping[str, int] | MeshShape,
    *,
    global_types: bool = False,
    strict: bool = False,
    ranks: Ranks = 0,
    partials: Partials = "infer",
    expect: str | Iterable[str] = (),
) -> TestOptions:
    """The options, read. Errors: SW903 for no mesh or ranks outside it, SW905 for any other value that is none."""
    for name, flag in (("global_types", global_types), ("strict", strict)):
        if not isinstance(flag, bool):
            raise SpmdArgumentError(f"{name} is True or False, got {shown(flag)}", code="SW905")
    if partials not in ("infer", "explicit"):
        raise SpmdValueError(f"partials is 'infer' or 'explicit', got {shown(partials)}", code="SW905")
    shape = MeshShape.of(mesh)
    return TestOptions(shape, global_types, strict, _ranks(ranks, shape), partials, _codes(expect))


def options_in(folder: Path, said: Mapping[str, object]) -> TestOptions | None:
    """The options that are ``said``, and where they say nothing those of the project that ``folder`` is in, in
    ``[tool.shardwise]``. None if nobody says on which mesh.

    Errors: as of ``options_of`` and ``find_settings``.
    """
    settings = find_settings(folder)
    decided: dict[str, Any] = {
        "mesh": settings.mesh,
        "strict": settings.strict,
        "global_types": None if settings.local is None else not settings.local,
        "partials": settings.partials,
    }
    given = {name: value for name, value in decided.items() if value is not None} | dict(said)
    return replace(options_of(**given), settings=settings) if "mesh" in given else None


def _ranks(ranks: Ranks, mesh: MeshShape) -> tuple[int, ...] | None:
    if ranks == "all":
        return None
    if ranks == "corners":
        return corners(mesh.ranks, mesh.sizes)
    if isinstance(ranks, int) and not isinstance(ranks, bool):
        ranks = (ranks,)
    if isinstance(ranks, str) or not isinstance(ranks, Iterable):
        raise SpmdArgumentError(
            f"ranks is a rank, a list of ranks, 'corners' or 'all', got {shown(ranks)}", code="SW905"
        )
    listed = tuple(ranks)
    for rank in listed:
        if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < mesh.ranks:
            said = f"rank {shown(rank)} is not on the mesh {mesh}: ranks go from 0 to {mesh.ranks - 1}"
            raise SpmdValueError(said, code="SW903")
    if not listed:
        raise SpmdValueError(f"ranks is empty: name some of 0 to {mesh.ranks - 1}, or 'all'", code="SW903")
    return listed


def _codes(expect: str | Iterable[str]) -> tuple[str, ...]:
    if not isinstance(expect, str | Iterable):
        raise SpmdArgumentError(f"expect is a code or a list of codes, got {shown(expect)}", code="SW905")
    codes = (expect,) if isinstance(expect, str) else tuple(expect)
    for code in codes:
        if code not in CODES:
            near = difflib.get_close_matches(str(code), CODES, n=1)
            meant = f": did you mean {near[0]}?" if near else ", like SW112; shardwise explain lists them"
            raise SpmdValueError(f"expect={shown(code)} is no code of a finding{meant}", code="SW905")
    return codes


def coordinates(rank: int, mesh: MeshShape) -> str:
    """``rank 3 (dp=1, tp=1)``."""
    strides = [math.prod(mesh.sizes[axis + 1 :]) for axis in range(len(mesh.sizes))]
    at = (f"{name}={rank // s % size}" for (name, size), s in zip(mesh.axes, strides, strict=True))
    return f"rank {rank} ({', '.join(at)})"
