"""``shardwise zoo`` as a user meets it."""

from __future__ import annotations

import os
import shlex
from math import prod
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.cli.zoo import WIDTH, zoo
from shardwise.diagnostics.errors import SpmdValueError
from shardwise.zoo.catalogue import entry, names
from shardwise.zoo.program import type_of


def shown(*words: str) -> str:
    done = CliRunner().invoke(zoo, words, standalone_mode=False)
    assert done.exception is None, done.output
    return done.output


def test_the_list_has_every_program_with_its_title() -> None:
    lines = shown().splitlines()
    begun = [line for line in lines if not line.startswith(" ")]
    assert [line.split()[0] for line in begun] == names()
    assert all(len(line.split()) > 4 for line in begun)
    assert max(map(len, lines)) <= WIDTH


def test_a_page_has_words_numbers_and_code() -> None:
    page = shown("tensor_parallel", "--mesh", "dp=1,tp=4")
    assert "On dp=1, tp=4, in float64, a rank" in page
    assert "receives  2,304 bytes a step over tp" in page
    assert "def single(" in page
    assert "def parallel(" in page


@pytest.mark.parametrize("name", names())
def test_on_one_rank_a_page_has_the_whole_weights_and_no_traffic(name: str) -> None:
    found = entry(name)
    alone = dict.fromkeys(found.program.mesh, 1)
    whole = sum(prod(type_of(text).shape) for text in found.program.weights.values())
    page = shown(name, "--mesh", ",".join(f"{axis}=1" for axis in alone))
    assert f"holds     {whole * 8:,} bytes of weights" in page
    assert set(found.traffic(alone).values()) == {0.0}


def test_a_mesh_on_which_it_cannot_run_has_no_command_but_the_reason() -> None:
    page = shown("fsdp", "--mesh", "dp=3")
    assert "Its own sizes do not run so: up is f64[16@dp, 12], and 16 is no multiple of 3 ranks." in page
    assert "torchrun" not in page


@pytest.mark.parametrize(
    ("name", "rank", "line"),
    [
        (
            "tensor_parallel",
            0,
            'y = spmd.linear(h, w.down, out_partial_axes="tp")    # y: f64[4@dp, 12] {tp: P}, 2 times',
        ),
        ("pipeline", 1, "y = self.error(y, targets)                   # y: f64[] {pp: V}, 8 times"),
    ],
)
def test_the_types_of_every_line_are_a_command_away(name: str, rank: int, line: str) -> None:
    (command,) = (one for one in shown(name).splitlines() if one.startswith("shardwise check "))
    words = shlex.split(command)[1:]
    assert ("--rank" in words) == (rank > 0)
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert line in done.output


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("tensor_parallel", "--mesh", "dp=2,tp=4"),
            'h = spmd.convert(h, "tp", src=I, dst=R)                 # h: f64[4@dp, 12] {tp: R}, 2 times',
        ),
        (("pipeline",), "y = self.error(y, targets)                      # y: f64[] {pp: V}, 8 times"),
    ],
    ids=["of any mesh", "of the rank that has the loss"],
)
def test_the_code_is_shown_with_the_type_of_every_line(words: tuple[str, ...], line: str) -> None:
    page = shown(*words, "--types")
    assert line in page
    assert page.startswith(f"{words[0]}.py\n")
    assert "step 0" not in page


def test_a_page_says_what_is_received_as_a_formula_and_what_its_calls_are() -> None:
    page = " ".join(shown("pipeline").split())
    assert "receives 384 bytes a step over pp = recv(B * D) elements where over an axis of n ranks recv(e) is e" in page


def test_its_mesh_is_drawn_for_every_axis_with_the_reason() -> None:
    picture = shown("ulysses", "--draw")
    assert picture.startswith("ulysses on dp=2, sp=2: 4 ranks\n")
    assert all(f"fibers of {axis}, the ranks that talk" in picture for axis in ("dp", "sp"))
    assert " ".join(picture.split()).count(entry("ulysses").parts["Mesh"]) == 1


def test_a_folded_mesh_is_drawn_with_the_axes_that_the_other_lacks() -> None:
    picture = shown("deepseek_v3", "--draw")
    seen_by_experts = [axis for axis in ("pp", "dp", "edp", "ep") if f"fibers of {axis}, as experts see" in picture]
    assert seen_by_experts == ["edp", "ep"]


@pytest.mark.parametrize("name", names())
def test_the_drawing_of_every_program_is_written_as_svg(name: str, tmp_path: Path) -> None:
    file = tmp_path / "zoo.svg"
    assert shown(name, "-o", os.fspath(file)).splitlines() == [f"{file}: {shown(name, '--draw').splitlines()[0]}"]
    words = [text.text or "" for text in ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text")]
    program = entry(name).program
    axes = {axis for sizes in program.meshes(program.mesh) for axis in sizes}
    assert {axis for axis in axes if any(word.startswith(f"fibers of {axis}") for word in words)} == axes
    assert any(word.startswith("the schedule on") for word in words) == (program.order is not None)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    done = CliRunner().invoke(zoo, ["tensor_paralel"], standalone_mode=False)
    assert isinstance(done.exception, SpmdValueError)
    assert done.exception.help[0] == "shardwise zoo tensor_parallel"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ulysses", "--mesh", "tp=2"), "the axes of ulysses are dp, sp, e.g. --mesh dp=2,sp=2"),
        (("--run",), "shardwise zoo NAME"),
        (("-o", "all.svg"), "shardwise zoo NAME"),
        (("fsdp", "-o", "mesh.bmp"), "known are .svg"),
        (("fsdp", "-o", "no/such/folder/mesh.svg"), "cannot be written"),
        (("fsdp", "--run", "-o", "mesh.svg"), "leave --draw and -o out"),
        (("fsdp", "--types", "--draw"), "leave --run, --draw and -o out"),
        (("fsdp", "--types", "--mesh", "dp=5"), "up is f64[16@dp, 12], and 16 is no multiple of 5 ranks"),
        (("fsdp", "--mesh", "dp=5", "--run"), "up is f64[16@dp, 12], and 16 is no multiple of 5 ranks"),
    ],
    ids=[
        "other axes",
        "no name",
        "a drawing of all",
        "no picture's suffix",
        "no folder",
        "a drawing of numbers",
        "a drawing of types",
        "types of pieces of several lengths",
        "pieces of several lengths",
    ],
)
def test_wrong_usage_says_what_is_right(words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(zoo, words)
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.processes
def test_a_run_prints_both_losses() -> None:
    lines = shown("data_parallel", "--mesh", "dp=2", "--run").splitlines()
    assert lines[1].split()[1] == lines[1].split()[2]
    assert lines[-6].endswith("compared with one device: all equal")
    assert lines[-5:] == [
        "rank 0 holds 3,072 bytes of weights; by the formula 3,072",
        "rank 0 keeps 3,072 bytes of gradients; by the formula 3,072",
        "rank 0 keeps 3,072 bytes of momentum; by the formula 3,072",
        "rank 0 keeps 1,408 bytes of activations; by the formula 1,408",
        "rank 0 receives 3,072 bytes a step over dp; by the formula 3,072",
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "tensor",
            "shardwise zoo tensor_parallel, shardwise zoo tensor_parallel_2d, shardwise zoo tensor_parallel_3d, ",
        ),
        ("Ulises", "shardwise zoo ulysses, "),
        ("nothere", ""),
        ("", ""),
    ],
)
def test_a_name_that_the_zoo_has_not_is_answered_with_those_that_are_near_and_where_all_are(name, said):
    with pytest.raises(SpmdValueError) as refused:
        entry(name)
    assert ", ".join(refused.value.finding.help) == f"{said}shardwise zoo lists what it has"
