"""What ``[tool.shardwise]`` says, as one frozen value for whoever reads it: a command, a test run, an editor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from shardwise.diagnostics.codes import Severity
from shardwise.mesh.shape import MeshShape

from .selection import Selection


@dataclass(frozen=True)
class DeclaredRule:
    """How an operator types: the arguments of ``shardwise.rules.register_rule``."""

    op: str
    params: str
    linear: str = ""


@dataclass(frozen=True)
class Settings:
    """What a project has decided. What it leaves open is None or empty: the command line and its defaults decide.

    ``file``        where it stands; None if there is no such file.
    ``script``      what is checked and verified where nobody says what, with its arguments.
    ``mesh``, ``world_size``, ``ranks``, ``strict``, ``local``, ``partials``, ``observe``
                    the options of the same names; ``ranks`` as it is written.
    ``select``      the codes that are reported; empty: all.
    ``ignore``      those that are not.
    ``per_file_ignores``  by pattern of paths relative to the file's folder, those that are not reported there.
    ``severity``    by code, if it is another than the code's own.
    ``trusted``     functions inside which nothing is checked, as ``package.module:function``.
    ``rules``       op rules that are declared.
    ``contracts``   what is loaded, and called if it can be, before the program runs: ``package.module:attribute``.
    ``baseline``    the file of known findings.
    ``bandwidth``   bytes per second by the names of axes; ``latency`` seconds per message.
    ``docs``        where the project has these docs: the address below which machine forms name the page of a code.

    Example:
        >>> from shardwise.configuration.reading import settings_of
        >>> settings_of("[tool.shardwise]\\nmesh = 'dp=2,tp=4'\\nignore = ['SW3']", Path("pyproject.toml")).mesh.ranks
        8
    """

    file: Path | None = None
    script: tuple[str, ...] = ()
    mesh: MeshShape | None = None
    world_size: int | None = None
    ranks: str | None = None
    strict: bool | None = None
    local: bool | None = None
    partials: str | None = None
    observe: bool | None = None
    select: Selection = field(default_factory=Selection)
    ignore: Selection = field(default_factory=Selection)
    per_file_ignores: tuple[tuple[str, Selection], ...] = ()
    severity: Mapping[str, Severity] = field(default_factory=lambda: MappingProxyType({}))
    trusted: tuple[str, ...] = ()
    rules: tuple[DeclaredRule, ...] = ()
    contracts: tuple[str, ...] = ()
    baseline: Path | None = None
    bandwidth: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    latency: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    docs: str = ""

    @property
    def folder(self) -> Path:
        """What paths in it are relative to."""
        return Path.cwd() if self.file is None else self.file.resolve().parent
