"""``--bandwidth`` and ``--latency``: what connects the ranks of each axis, and how bytes and times are printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from shardwise.mesh.axis import MeshAxis
    from shardwise.planner.links import Links

Command = Callable[..., Any]


class SpeedParam(click.ParamType):  # type: ignore[type-arg]  # no generic in click 8.1
    """Parses ``tp=450,dp=network`` to bytes per second by axis."""

    name = "speeds"

    def convert(
        self, value: str | Mapping[str, float], param: click.Parameter | None, ctx: click.Context | None
    ) -> Mapping[str, float]:
        from shardwise.planner.links import NAMED

        found = {}
        for name, text in _pairs(self, value, "tp=450,dp=50", param, ctx):
            if text in NAMED:
                found[name] = NAMED[text]
                continue
            found[name] = _number(self, name, text, f"a number of GB/s, or {' or '.join(NAMED)}", param, ctx) * 1e9
        return found


class LatencyParam(click.ParamType):  # type: ignore[type-arg]  # no generic in click 8.1
    """Parses ``tp=2,dp=10`` to seconds by axis."""

    name = "latencies"

    def convert(
        self, value: str | Mapping[str, float], param: click.Parameter | None, ctx: click.Context | None
    ) -> Mapping[str, float]:
        pairs = _pairs(self, value, "tp=2,dp=10", param, ctx)
        return {name: _number(self, name, text, "a number of microseconds", param, ctx) * 1e-6 for name, text in pairs}


def _pairs(
    kind: click.ParamType,  # type: ignore[type-arg]
    value: str | Mapping[str, float],
    example: str,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> list[tuple[str, str]]:
    if not isinstance(value, str):
        return []
    pairs = [part.partition("=") for part in value.split(",") if value]
    for name, equals, _ in pairs:
        if not equals or not name.strip():
            kind.fail(
                f"{name.strip()!r} in {value!r} is not an axis with its value: write it like {example}", param, ctx
            )
    return [(name.strip(), text.strip()) for name, _, text in pairs]


def _number(
    kind: click.ParamType,  # type: ignore[type-arg]
    name: str,
    text: str,
    expected: str,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        kind.fail(f"axis {name} has {text!r}, expected {expected}", param, ctx)
    return found


def link_options(command: Command) -> Command:
    """``bandwidth`` and ``latency``."""
    for option in (
        click.option(
            "--latency",
            type=LatencyParam(),
            default="",
            metavar="AXES",
            help="Microseconds per message over each axis, e.g. tp=2,dp=10 (default: 0).",
        ),
        click.option(
            "--bandwidth",
            type=SpeedParam(),
            default="",
            metavar="AXES",
            help="GB/s that a rank receives over each axis, e.g. tp=450,dp=50, or by name: nvlink, network (default: "
            "100 for every axis).",
        ),
    ):
        command = option(command)
    return command


def links_of(bandwidth: Mapping[str, float], latency: Mapping[str, float], axes: Mapping[str, MeshAxis]) -> Links:
    """The links by axis. A usage error for an axis that the mesh does not have, or a bandwidth of 0."""
    from shardwise.diagnostics.errors import SpmdValueError
    from shardwise.planner.links import Links

    for option, given in (("--bandwidth", bandwidth), ("--latency", latency)):
        for name in given:
            if name not in axes:
                raise click.UsageError(f"{option}: the mesh has no axis {name!r}, its axes are {', '.join(axes)}")
    try:
        return Links.of(
            {axes[name]: value for name, value in bandwidth.items()},
            {axes[name]: value for name, value in latency.items()},
        )
    except SpmdValueError as error:
        raise click.UsageError(str(error.args[0])) from None


def shown_bytes(count: int) -> str:
    """``15.88 MiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1024
    return f"{count} B"


def shown_time(seconds: float) -> str:
    """``166.5 us``."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.1f} {unit}"
    return f"{seconds * 1e9:.1f} ns"
