"""``--bandwidth`` and ``--latency``: what connects the ranks of each axis, as said here or in the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pathlib import Path

    from shardwise.configuration.settings import Settings
    from shardwise.mesh.axis import MeshAxis
    from shardwise.planner.links import Links, NamedLinks

Command = Callable[..., Any]


class SpeedParam(click.ParamType):  # type: ignore[type-arg]  # no generic in click 8.1
    """Parses ``tp=450,dp=network`` with the function of ``configuration.link_speeds`` that has its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(
        self, value: str | Mapping[str, float], param: click.Parameter | None, ctx: click.Context | None
    ) -> Mapping[str, float]:
        from shardwise.configuration import link_speeds

        if not isinstance(value, str):
            return value
        try:
            found: Mapping[str, float] = getattr(link_speeds, self.name)(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return found


def link_options(command: Command) -> Command:
    """``bandwidth`` and ``latency``: None where nothing is said."""
    for option in (
        click.option(
            "--latency",
            type=SpeedParam("latencies"),
            metavar="AXES",
            help="Microseconds a message over each axis, e.g. tp=2,dp=10 (default: what [tool.shardwise] says, or 0).",
        ),
        click.option(
            "--bandwidth",
            type=SpeedParam("bandwidths"),
            metavar="AXES",
            help="GB/s that a rank receives over each axis, e.g. tp=450,dp=50, or by name: nvlink, network (default: "
            "what [tool.shardwise] says, or 100 for every axis).",
        ),
    ):
        command = option(command)
    return command


def configured_links(settings: Settings) -> NamedLinks:
    """What the configuration says of links, for the run of a program."""
    from shardwise.planner.links import NamedLinks

    return NamedLinks(dict(settings.bandwidth), dict(settings.latency))


def links_of(
    bandwidth: Mapping[str, float] | None,
    latency: Mapping[str, float] | None,
    axes: Mapping[str, MeshAxis],
    project: Path,
) -> Links:
    """The links by axis; what is left out says the configuration of ``project``, a file or folder in it. A usage error
    for an axis that the mesh does not have, or a bandwidth of 0."""
    from shardwise.configuration.reading import find_settings
    from shardwise.diagnostics.errors import SpmdValueError
    from shardwise.planner.links import Links

    for option, given in (("--bandwidth", bandwidth), ("--latency", latency)):
        for name in given or ():
            if name not in axes:
                raise click.UsageError(f"{option}: the mesh has no axis {name!r}, its axes are {', '.join(axes)}")
    try:
        settings = find_settings(project)
        return Links.by_name(
            settings.bandwidth if bandwidth is None else bandwidth,
            settings.latency if latency is None else latency,
            axes,
        )
    except SpmdValueError as error:
        raise click.UsageError(str(error.args[0])) from None
