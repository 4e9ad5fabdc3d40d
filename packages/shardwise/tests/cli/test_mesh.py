"""``shardwise mesh`` against groups that are listed rank by rank."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict

import pytest
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.diagnostics.printing.printable import cells
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.placement_on_nodes import on_nodes


def shown(*words: str):
    result = CliRunner().invoke(main, ["mesh", *words, "--format", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.mark.parametrize("sizes", [(2, 4), (4, 2, 2), (3, 2, 4)])
@pytest.mark.parametrize("per_node", [2, 4, 8])
def test_the_nodes_of_a_group_are_those_of_its_ranks(sizes, per_node):
    ranks, stride = 1, 1
    for size in sizes:
        ranks *= size
    for size in reversed(sizes):
        one = on_nodes(MeshAxis.of(size, stride), ranks, per_node)
        groups = [[one.groups(at) + one.fiber(place) for place in range(size)] for at in range(ranks // size)]
        assert sorted(itertools.chain.from_iterable(groups)) == list(range(ranks))
        counts = {len({rank // per_node for rank in group}) for group in groups}
        assert one.nodes is None or counts == {one.nodes}
        if one.nodes is None:
            assert len(counts) > 1 or size * stride % per_node
        stride *= size


def test_a_rank_its_coordinates_and_its_groups():
    said = shown("pp=2,dp=4,cp=2,tp=4", "--flatten", "dp_cp=dp,cp", "--nodes", "8", "--rank", "13")
    assert said["rank"]["coordinates"] == {"pp": 0, "dp": 1, "cp": 1, "tp": 1}
    assert said["rank"]["node"] == 1
    assert said["rank"]["groups"]["dp_cp"] == [1, 5, 9, 13, 17, 21, 25, 29]
    inside = {one["name"]: one["nodes_of_a_group"] for one in said["axes"]}
    assert inside == {"pp": 2, "dp": 4, "cp": 1, "tp": 1, "dp_cp": 4}


def test_the_busiest_axis_gets_adjacent_ranks():
    said = shown("tp=8,dp=4", "--busiest", "tp")
    assert said["launch_order"] == {"busiest_first": ["tp", "dp"], "layout": "(8, 4):(1, 8)", "is_the_meshs_own": False}
    assert shown("tp=8,dp=4", "--column-major", "--busiest", "tp")["launch_order"]["is_the_meshs_own"]


@pytest.mark.parametrize(
    ("mesh", "busiest"), [("tp=8,dp=4,pp=2", "tp,dp"), ("a=3,b=4,c=2", "b,a,c"), ("a=2,b=4", "b,a")]
)
def test_the_nodes_of_a_group_as_launched_are_those_of_its_ranks(mesh, busiest):
    said = shown(mesh, "--busiest", busiest, "--nodes", "4", "--rank", "5")
    sizes = said["mesh"]
    places = list(itertools.product(*(range(size) for size in sizes.values())))
    names = busiest.split(",") + [name for name in reversed(sizes) if name not in busiest.split(",")]
    launched = sorted(places, key=lambda place: [place[list(sizes).index(name)] for name in reversed(names)])
    ranks = {place: at for at, place in enumerate(launched)}
    assert said["rank"]["launched_as"] == ranks[places[5]]
    assert places[said["rank"]["launched_here"]] == launched[5]
    for at, one in enumerate(said["axes"]):
        groups = defaultdict(set)
        for place in places:
            groups[place[:at], place[at + 1 :]].add(ranks[place] // 4)
        counts = set(map(len, groups.values()))
        assert one["nodes_as_launched"] is None or counts == {one["nodes_as_launched"]}
        assert one["nodes_as_launched"] is not None or len(counts) > 1


def test_a_second_mesh_over_the_same_ranks_has_the_groups_of_its_own_sizes():
    said = shown("pp=2,dp=4,cp=2,tp=4", "--folded", "pp=2,edp=4,ep=8", "--rank", "13")
    assert said["rank"]["groups"]["ep"] == list(range(8, 16))
    assert [one["layout"] for one in said["axes"]] == ["2:32", "4:8", "2:4", "4:1", "4:8", "8:1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dp=4", "--folded", "ep=3"], "both meshes have the same ranks"),
        (["tp=8,dp=4", "--folded", "ep=8,tp=4"], "tp is 4:1 there and 8:4 in tp=8,dp=4"),
        (["dp=4", "--rank", "4"], "has the ranks 0 to 3"),
        (["dp=6", "--nodes", "4"], "do not fill nodes of 4; 3 would"),
        (["dp=4,tp=2", "--flatten", "x=ddp,tp"], "the mesh has no axis 'ddp'; did you mean 'dp'?"),
        (["dp=4,tp=2", "--flatten", "x=DP,tp"], "did you mean 'dp'? An axis of one rank with such a name is given"),
        (["dp=4,tensor=2", "--flatten", "x=dp,tensro"], "did you mean 'tensor'?"),
        (["dp=4,tp=2", "--flatten", "x=dp,c p"], "'c p' is no name of an axis"),
        (["dp=4", "--draw", "--format", "json"], "leave out --format json"),
        (["dp=4,tp=2", "--flatten", "dp"], "write it like dp_cp=dp,cp"),
        (["dp=4,tp=2", "--flatten", "x=dp,dp"], "dp is named twice, name each axis once"),
        (["dp=4,tp=2", "--flatten", "x=dp,"], "write it like dp_cp=dp,cp"),
        (["dp=4,tp=2", "--flatten", "x=dp,tp", "--flatten", "x=tp,dp"], "x is flattened already, choose another name"),
        (["dp=4,tp=2", "--busiest", "cp"], "is not an axis of dp=4,tp=2"),
    ],
)
def test_wrong_usage_is_told(words, said):
    result = CliRunner().invoke(main, ["mesh", *words])
    assert result.exit_code == 2
    assert said in result.output


def test_the_mesh_of_the_issue_has_an_axis_that_is_not_used():
    words = ["mesh", "pp=2,dp=4,tp=8", "--flatten", "dp_cp=dp,cp", "--nodes", "8"]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    assert "cp is no axis of the mesh, so it is of one rank, and dp_cp is dp\n" in told.stdout
    assert "n7" in told.stdout  # it is drawn too


@pytest.mark.parametrize(
    ("absent", "there"),
    [
        (["dp=4,tp=8", "--flatten", "x=dp,cp"], ["dp=4,cp=1,tp=8", "--flatten", "x=dp,cp"]),
        (["dp=4,tp=8", "--flatten", "x=cp,tp,dp"], ["cp=1,dp=4,tp=8", "--flatten", "x=cp,tp,dp"]),
        (["dp=4,tp=8", "--flatten", "x=ep,cp"], ["ep=1,cp=1,dp=4,tp=8", "--flatten", "x=ep,cp"]),
    ],
)
def test_an_axis_that_is_not_there_is_one_of_one_rank(absent, there):
    axes, others = ({one["name"]: one for one in shown(*words)["axes"]} for words in (absent, there))
    assert axes.items() <= others.items()
    assert all(axis["size"] == 1 for name, axis in others.items() if name not in axes)
    names = absent[2].partition("=")[2].split(",")
    of_one = [name for name in names if name not in axes]
    assert shown(*absent)["flattened"] == {"x": {"axes": [n for n in names if n in axes], "of_one_rank": of_one}}
    assert shown(*there)["flattened"]["x"]["of_one_rank"] == []


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("count", [10, 14, 20])
def test_of_many_axes_only_some_are_drawn(count):
    result = CliRunner().invoke(main, ["mesh", ",".join(f"a{at}=2" for at in range(count))])
    assert result.exit_code == 0, result.output
    assert f"= {2**count} ranks" in result.stdout
    told = f"along {', '.join(f'a{at}' for at in range(count - 9))} only the first place is drawn:"
    assert told in " ".join(result.stdout.split())
    assert len(result.stdout.splitlines()) < 500


DEEP = ",".join(f"a{at}=1" for at in range(65))


def test_what_is_too_deep_for_a_picture_is_told_in_words_alone():
    result = CliRunner().invoke(main, ["mesh", DEEP])
    assert result.exit_code == 0, result.output
    assert ": 1 rank\n" in result.stdout or "= 1 rank\n" in result.stdout
    assert "no picture: a picture has at most 64 dims or axes, and here are 65" in result.stderr
    refused = CliRunner().invoke(main, ["mesh", DEEP, "--draw"])
    assert refused.exit_code == 2


def test_columns_of_names_in_wide_letters_stand_below_each_other():
    lines = CliRunner().invoke(main, ["mesh", "数据=2,tp=4", "--no-draw"]).stdout.splitlines()
    head, wide, narrow = lines[2:5]
    columns = {cells(line[: line.index(word)]) for line, word in ((head, "layout"), (wide, "2:4"), (narrow, "4:1"))}
    assert columns == {6}


def test_a_mesh_is_written_as_a_drawing(tmp_path):
    file = tmp_path / "mesh.svg"
    result = CliRunner().invoke(main, ["mesh", "dp=2,tp=2", "--nodes", "2", "--busiest", "dp", "-o", str(file)])
    assert result.exit_code == 0, result.output
    assert "fibers of dp" in file.read_text("utf-8")
    assert "dp=2,tp=2: 2 x 2 = 4 ranks" in result.stdout
    assert "frame nodes of 2 ranks" not in result.stdout  # it is in the file
    printed = CliRunner().invoke(main, ["mesh", "dp=2,tp=2", "--nodes", "2"])
    assert printed.stdout.startswith("dp=2,tp=2: 2 x 2 = 4 ranks")
    assert "frame nodes of 2 ranks" in printed.stdout
    refused = CliRunner().invoke(main, ["mesh", "dp=2,tp=2", "-o", str(tmp_path / "mesh.png")])
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_coordinates_are_told_as_the_rank_that_they_make():
    words = ["mesh", "pp=2,dp=4,cp=2,tp=8", "--flatten", "dp_cp=dp,cp", "--nodes", "8"]
    said = CliRunner().invoke(main, words).stdout
    assert "their rank is 64 pp + 16 dp + 8 cp + tp: pp=1, dp=3, cp=1, tp=7 is rank 127" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dp=1"], "dp=1: 1 rank\n"),
        (["dp=2,tp=4", "--nodes", "8"], "dp=2,tp=4: 2 x 4 = 8 ranks on 1 node of 8\n"),
        (["dp=2,tp=4", "--nodes", "4"], "dp=2,tp=4: 2 x 4 = 8 ranks on 2 nodes of 4\n"),
    ],
)
def test_the_first_line_counts_ranks_and_nodes(words, said):
    assert CliRunner().invoke(main, ["mesh", *words]).output.startswith(said)


def test_of_a_group_with_many_ranks_the_first_and_the_last_are_told():
    said = CliRunner().invoke(main, ["mesh", "dp=2,tp=65536", "--rank", "65541", "--no-draw"])
    assert said.exit_code == 0, said.output
    assert "  tp with 65536 65537 65538 65539 65540 65541 65542 65543 .. 131071, 65536 ranks\n" in said.stdout
    assert "  dp with 5 65541\n" in said.stdout
