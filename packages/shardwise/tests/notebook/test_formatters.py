"""What a cell ends with is a picture in a notebook, and short text in a terminal."""

from __future__ import annotations

import pytest
import torch
from IPython.core.formatters import HTMLFormatter
from torch.distributed.device_mesh import init_device_mesh

from shardwise import MeshAxis, P, PartitionSpec, R, S, SpmdType, assert_type, set_current_mesh, typeof
from shardwise.collectives.queries import get_partition_spec
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.result import RunResult
from shardwise.mesh.entry import current_entry
from shardwise.mesh.layout import Layout
from shardwise.notebook.coloured_text import COLOURS
from shardwise.op_rules.transitions import TRANSITIONS
from shardwise.planner.route import plan
from shardwise.types.notation import parse
from shardwise.verifier.distance.numbers import Numbers
from shardwise.verifier.text import Verdict
from shardwise.worlds.fake import fake_world

DP, TP = MeshAxis.of(2, 4), MeshAxis.of(4, 1)
MESH = {"dp": DP, "tp": TP}


def typed(text):
    return parse(text, MESH)


def move():
    before, after = typed("f32[8, 16@tp] {dp: R}"), typed("f32[8@tp, 16] {dp: R}")
    return plan(before.shape, before.dtype, before.type, after.type)


VALUES = {
    "type": (lambda: typed("f32[8@dp, 16@tp]"), "f32[16@dp, 64@tp] on dp=2, tp=4"),
    "type that is equal everywhere": (lambda: typed("f32[8] {dp: R, tp: R}"), "what each rank holds"),
    "type without axes": (lambda: typeof(torch.ones(2, 3)), "<code>f32[2, 3]"),
    "equal along an axis": (lambda: R, "has a gradient of type P"),
    "shard along an axis": (lambda: S(1), "S(1)"),
    "pending average": (lambda: P("avg"), "their average, pending"),
    "pending maximum": (lambda: P("max"), "has no gradient"),
    "placements of a tensor": (lambda: typed("f32[8@dp, 16] {tp: P}").type, "{dp: V, tp: P} PartitionSpec(dp, None)"),
    "placements without dims": (lambda: typed("f32[8] {dp: R, tp: P}").type, "{dp: R, tp: P} on dp=2, tp=4"),
    "claim": (lambda: SpmdType({"dp": S(1), "tp": R}), "of a tensor of shape [1, 2]"),
    "claim with a spec": (lambda: SpmdType({}, PartitionSpec(("dp", "tp"))), "of a tensor of shape [8]"),
    "spec": (lambda: PartitionSpec(("dp", "tp"), None), "None) on dp=2, tp=4, of a tensor of shape [8, 1]"),
    "axis": (lambda: MeshAxis.of(4, 2), "4:2"),
    "layout": (lambda: Layout((2, 4), (8, 1)), "layout (2, 4):(8, 1)"),
    "mesh": (current_entry, "mesh dp=2, tp=4: 8 ranks"),
    "plan": (move, "all_to_all"),
    "transition": (lambda: next(iter(TRANSITIONS.values())), "<svg"),
    "finding": (
        lambda: Finding("SW112", "relu needs <b>complete</b> values"),
        "relu needs &lt;b&gt;complete&lt;/b&gt;",
    ),
    "run": (lambda: RunResult(checked_ops=3, script="<b>.py"), "clean; 3 operations checked"),
    "verdict": (lambda: Verdict(RunResult(checked_ops=3), Numbers()), "nothing was compared"),
}


@pytest.mark.parametrize(("make", "part"), VALUES.values(), ids=VALUES)
def test_a_value_has_a_page(shell, make, part):
    with set_current_mesh(MESH):
        page = shell.display_formatter.format(make())[0]["text/html"]
    assert part in page
    assert "<b>" not in page


OF_A_SHELL_THAT_WAS_TOLD = {"finding", "run", "verdict"}


@pytest.mark.parametrize(
    ("make", "part"),
    [value for name, value in VALUES.items() if name not in OF_A_SHELL_THAT_WAS_TOLD],
    ids=[name for name in VALUES if name not in OF_A_SHELL_THAT_WAS_TOLD],
)
def test_what_has_a_picture_says_so_itself(make, part):
    with set_current_mesh(MESH):
        assert part in HTMLFormatter()(make())


def test_a_device_mesh_is_drawn(shell):
    with fake_world(0, 8):
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        assert "mesh dp=2, tp=4: 8 ranks" in shell.display_formatter.format(mesh)[0]["text/html"]


@pytest.mark.parametrize(
    "make", [lambda: PartitionSpec("nobody"), lambda: PartitionSpec(None), lambda: PartitionSpec()]
)
def test_what_has_no_picture_is_shown_as_text(shell, make):
    found = shell.display_formatter.format(make())[0]
    assert "text/html" not in found
    assert found["text/plain"].startswith("PartitionSpec(")


def test_a_terminal_shows_types_and_findings_as_the_command_does(shell):
    with set_current_mesh(MESH):
        x = assert_type(torch.ones(4, 8), {"dp": S(0), "tp": P})
        assert shell.display_formatter.format(typeof(x))[0]["text/plain"] == str(typeof(x))
    assert "SW112 partial-sum" in shell.display_formatter.format(Finding("SW112", "so"))[0]["text/plain"]


def test_a_spec_of_a_tensor_is_drawn_without_a_mesh(shell):
    with set_current_mesh(MESH):
        spec = get_partition_spec(assert_type(torch.ones(4, 8), {"dp": R}, PartitionSpec(None, "tp")))
    assert "[1, 4]" in shell.display_formatter.format(spec)[0]["text/html"]


def _luminance(colour: str) -> float:
    """As WCAG 2 defines it, of ``#rrggbb``."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
@pytest.mark.parametrize("style", COLOURS)
def test_colours_are_read_on_light_and_dark_pages(style, page):
    darker, lighter = sorted([_luminance(COLOURS[style]), _luminance(page)])
    assert (lighter + 0.05) / (darker + 0.05) > 4
