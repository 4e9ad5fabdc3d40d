"""``shardwise-devtools figures``: the drawings of README and docs, each made by one call of the command."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
from click.testing import CliRunner

from shardwise.cli.main import main as shardwise
from shardwise.diagnostics.result import ExitCode

FOLDER = Path(__file__).resolve().parents[4] / "docs" / "figures"
NARROW = ("--width", "360")
"""Pixels of a drawing on a phone."""
FOLDED_ON_PHONES = ("sharded", "other-order", "partial")
"""Those that are hard to read on a phone, and have parts that can stand below each other."""

FIGURES: dict[str, tuple[str, ...]] = {
    "five-types": (
        "draw",
        "types",
    ),
    "transitions": (
        "draw",
        "transitions",
    ),
    "mesh": ("draw", "--mesh", "pp=2,dp=2,tp=4", "--highlight", "dp", "--nodes", "4"),
    "all-reduce": (
        "draw",
        "all_reduce P -> R",
    ),
    "all-gather": (
        "draw",
        "all_gather S(0) -> R",
    ),
    "reduce-scatter": (
        "draw",
        "reduce_scatter P -> S(0)",
    ),
    "all-to-all": (
        "draw",
        "all_to_all S(0) -> S(1)",
    ),
    "use-apart": (
        "draw",
        "convert I -> R",
    ),
    "sharded": ("draw", "f32[8@(dp,tp), 5]", "--mesh", "dp=2,tp=2"),
    "other-order": ("draw", "f32[8@(tp,dp), 5]", "--mesh", "dp=2,tp=2"),
    "four-dims": ("draw", "f32[2, 3, 4, 5@tp] {dp: R}", "--mesh", "dp=2,tp=2"),
    "partial": ("draw", "f32[4@dp, 4] {tp: P}", "--mesh", "dp=2,tp=2"),
    "plan": ("plan", "f32[8, 4@(dp,tp)]", "f32[8@dp, 4]", "--mesh", "dp=2,tp=2"),
    "layout": (
        "draw",
        "(2,4):(8,1)",
    ),
    "row-major": (
        "draw",
        "(2,4):(4,1)",
    ),
    "column-major": (
        "draw",
        "(2,4):(1,2)",
    ),
}
"""File name to the words of the command that draws it."""


def narrow_figures() -> dict[str, str]:
    """What pages show in place of some figures on a phone, by the name of the file: ``NAME-narrow.svg``."""
    return {f"figures/{name}-narrow.svg": figure(name, *NARROW) for name in FOLDED_ON_PHONES}


def figure(name: str, *more: str) -> str:
    """The SVG of one figure; ``more`` are further words of its command."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figure.svg"
        result = CliRunner().invoke(shardwise, [*FIGURES[name], *more, "-o", str(file)])
        if result.exit_code:
            raise click.ClickException(f"shardwise {' '.join(FIGURES[name])}: {result.output}")
        return file.read_text("utf-8")


@click.command()
@click.option("--write", is_flag=True, help="Renew the files; without it, name those that are not what is drawn.")
def figures(write: bool) -> ExitCode:
    """Hold docs/figures against what the command draws.

    Exit codes: 0 all are fresh, 1 some are not.
    """
    stale = []
    for name in FIGURES:
        file, drawn = FOLDER / f"{name}.svg", figure(name)
        if not file.exists() or file.read_text("utf-8") != drawn:
            stale.append(name)
            if write:
                file.parent.mkdir(exist_ok=True)
                file.write_text(drawn, "utf-8")
    for name in stale:
        click.echo(f"docs/figures/{name}.svg {'renewed' if write else 'is not what is drawn'}")
    return ExitCode.FINDINGS if stale and not write else ExitCode.CLEAN
