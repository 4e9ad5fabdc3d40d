"""The meshes on the report's page are those that the program makes, and the one that was asked for."""

from __future__ import annotations

import base64
import json
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest

from shardwise.diagnostics.run_record import MadeMesh, NamedLayout
from shardwise.report.mesh_figures import BOTH, GIVEN, MADE, mesh_figures

HEAD = """\
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from shardwise import MeshAxis, R, assert_type, set_current_mesh

"""
PROGRAMS = {
    "one": ('mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))', ["dp=2, tp=4"]),
    "flattened": (
        """
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
        mesh["dp", "cp"]._flatten("dp_cp")
        """,
        ["dp=2, cp=2, tp=2, and dp_cp is {0,2,4,6}"],
    ),
    "several": (
        """
        dense = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        experts = init_device_mesh("cpu", (4, 2), mesh_dim_names=("edp", "ep"))
        again = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        """,
        ["dp=2, tp=4", "edp=4, ep=2"],
    ),
    "a part that is made current": (
        """
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        with set_current_mesh(mesh["tp"]):
            assert_type(torch.ones(2), {"tp": R})
        """,
        ["dp=2, tp=4"],
    ),
    "cut": (
        """
        world = init_device_mesh("cpu", (8,), mesh_dim_names=("world",))
        mesh = world._unflatten(0, (2, 4), ("dp", "tp"))
        """,
        ["world=8", "dp=2, tp=4"],
    ),
    "of axes": (
        """
        with set_current_mesh({"tp": MeshAxis.of(4, 2)}):
            assert_type(torch.ones(2), {"tp": R})
        """,
        ["tp=4"],
    ),
    "without names": ('mesh = init_device_mesh("cpu", (8,))', []),
    "none": ("x = torch.ones(2)", []),
}


def _said(made: dict[str, list[dict[str, object]]]) -> str:
    axes = ", ".join(f"{one['name']}={_product(one['sizes'])}" for one in made["axes"])
    assert all((one["sizes"], one["strides"]) == ([4], [2]) for one in made["flattened"])
    flattened = [f"{one['name']} is {{0,2,4,6}}" for one in made["flattened"]]
    return ", and ".join([axes, *flattened])


def _product(sizes: object) -> int:
    assert isinstance(sizes, list)
    return sizes[0] if sizes else 1


@pytest.mark.parametrize(("source", "expected"), PROGRAMS.values(), ids=PROGRAMS)
def test_the_record_has_the_meshes_that_the_program_makes(project, source, expected):
    file = project.write(HEAD + textwrap.dedent(source))
    record = json.loads(project.check(file, "--world-size", "8", "--annotate", "--format", "json").stdout)["record"]
    assert [_said(one) for one in record["meshes"]] == expected


def test_they_are_drawn_on_the_page(project):
    file = project.write(HEAD + textwrap.dedent(PROGRAMS["several"][0]))
    project.check(file, "--world-size", "8", "--html", "report.html")
    page = Path("report.html").read_text("utf-8")
    assert page.count(f"<figcaption>{MADE}</figcaption>") == 2
    assert "along ep ranks are 2:1 apart" in page
    assert "No --mesh" not in page


DP_TP = MadeMesh((NamedLayout("dp", (2,), (4,)), NamedLayout("tp", (4,), (1,))))
SWAPPED = MadeMesh((NamedLayout("dp", (2,), (1,)), NamedLayout("tp", (4,), (2,))))


@pytest.mark.parametrize(
    ("given", "made", "said"),
    [
        ("", (), []),
        ("dp=2, tp=4", (), [GIVEN]),
        ("dp=2, tp=4", (DP_TP,), [BOTH]),
        ("dp=2, tp=4", (SWAPPED,), [GIVEN, MADE]),
        ("", (DP_TP, SWAPPED), [MADE, MADE]),
    ],
)
def test_a_mesh_is_drawn_once(given, made, said):
    assert [one.said for one in mesh_figures(given, made)] == said


def test_a_mesh_is_drawn_as_its_ranks_lie():
    (figure,) = mesh_figures("", [MadeMesh(SWAPPED.axes, (NamedLayout("all", (8,), (1,)),))])
    svg = base64.b64decode(figure.image.partition(",")[2]).decode()
    words = [text.text or "" for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    cells = [word for word in words if word.isdecimal()][6:]  # behind the headings of 2 rows and 4 columns
    assert cells == ["0", "2", "4", "6", "1", "3", "5", "7"]
    assert "all is several axes seen as one: 8:1, its first fiber is {0,1,2,3,4,5,6,7}" in figure.words
