"""``shardwise cost``: the bytes of every collective by hand."""

from __future__ import annotations

import contextlib
import json
import textwrap

import pytest
from click.testing import CliRunner

from shardwise.checker.operators import value_reads
from shardwise.cli.main import main
from shardwise.cli.runs import run
from shardwise.cli.runs.schedule import check_recorded
from shardwise.diagnostics.printing.quantities import duration
from shardwise.host.program import Program
from shardwise.mesh.names import DEFAULT_GROUP
from shardwise.mesh.shape import MeshShape
from shardwise.uniformity.calls import TracedCall

PROGRAM = textwrap.dedent(
    """
    import torch, torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from shardwise import P, R, S, V, all_gather, all_reduce, assert_type, redistribute
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    for _ in range(3):
        all_reduce(assert_type(torch.ones(64, 32), {"dp": V, "tp": P}), "tp", src=P, dst=R)
    all_gather(assert_type(torch.ones(8, 16), {"dp": S(0), "tp": R}), "dp", src=S(0), dst=R)
    dist.all_reduce(torch.ones(8), group=mesh.get_group("dp"), async_op=True).wait()
    dist.all_reduce(torch.ones(16))
    """
)


@pytest.fixture
def counted(tmp_path):
    (tmp_path / "step.py").write_text(PROGRAM)

    def run(*words: str):
        return CliRunner().invoke(main, ["cost", str(tmp_path / "step.py"), "--mesh", "dp=2,tp=4", *words])

    return run


def test_the_bytes_of_every_axis_are_those_of_its_rings(counted):
    result = counted("--format", "json", "--bandwidth", "tp=400,dp=50")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    tp = 3 * 2 * 3 * (64 * 32 * 4 // 4)
    dp = 8 * 16 * 4 + 2 * (8 * 4 // 2)
    assert said["axes"]["tp"] == {"calls": 3, "bytes": tp, "time_s": pytest.approx(tp / 400e9), "blocking": 3}
    assert (said["axes"]["dp"]["calls"], said["axes"]["dp"]["bytes"], said["axes"]["dp"]["blocking"]) == (2, dp, 1)
    whole = 2 * 7 * (16 * 4 // 8)
    assert [(one["bytes"], one["time_s"]) for over, one in said["axes"].items() if over not in ("tp", "dp")] == [
        (whole, pytest.approx(whole / 50e9))
    ]


OPTIONS = textwrap.dedent(
    """
    import argparse, torch, torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    parser = argparse.ArgumentParser()
    parser.add_argument("--dp", type=int, default=1)
    mesh = init_device_mesh("cpu", (parser.parse_args().dp,), mesh_dim_names=("dp",))
    dist.all_reduce(torch.ones(8), group=mesh.get_group("dp"))
    """
)


def test_a_program_that_is_not_told_its_mesh_is_said_to_run_on_one_rank_and_how_to_give_it_more(tmp_path):
    (tmp_path / "step.py").write_text(OPTIONS)
    asked = ["cost", str(tmp_path / "step.py"), "--mesh", "dp=4"]
    alone = CliRunner().invoke(main, asked)
    assert alone.exit_code == 0, alone.output
    assert "every axis of its mesh dp=1 has one rank, along which nothing can differ" in alone.stdout
    assert f"shardwise {' '.join(asked)} -- --help may list them" in alone.stdout
    assert "usage: " in CliRunner().invoke(main, [*asked, "--", "--help"]).output
    assert "dp=1" not in CliRunner().invoke(main, [*asked, "--", "--dp", "4"]).stdout


def test_a_program_without_collectives_is_no_program_on_one_rank(tmp_path):
    (tmp_path / "step.py").write_text("import torch\ntorch.ones(2)\n")
    said = CliRunner().invoke(main, ["cost", str(tmp_path / "step.py"), "--mesh", "dp=4"]).stdout
    assert said == "no collective over more than one rank: rank 0 issues none on mesh dp=4\n"


STEPS = textwrap.dedent(
    """
    import torch, torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    weight = torch.nn.Parameter(torch.ones(8))
    seldom, often = (torch.optim.SGD([weight], lr=0.1) for _ in range(2))
    dist.broadcast(torch.ones(1000), 0)
    for step in range(4):
        weight.grad = torch.ones(8)
        dist.all_reduce(weight.grad)
        if step == 2:
            dist.all_reduce(torch.ones(4))
        often.step()
    seldom.step()
    dist.all_reduce(torch.ones(1000))
    """
)


def test_what_a_step_sends_is_counted_from_the_end_of_the_first_to_that_of_the_last(tmp_path):
    (tmp_path / "steps.py").write_text(STEPS)
    asked = ["cost", str(tmp_path / "steps.py"), "--mesh", "dp=4"]
    said = json.loads(CliRunner().invoke(main, [*asked, "--format", "json"]).stdout)
    gradients, other = (2 * 3 * (length // 4) * 4 for length in (8, 4))
    assert said["step"]["counted"] == 3
    assert said["step"]["axes"]["dp"]["calls"] == pytest.approx(4 / 3)
    assert said["step"]["axes"]["dp"]["bytes"] == pytest.approx(gradients + other / 3)
    text = CliRunner().invoke(main, asked).stdout
    assert "a step after the first, the mean of the 3\nover  calls  bytes  time\ndp    1.333  56 B" in text


def test_a_program_of_one_step_has_no_other_figures(counted):
    assert json.loads(counted("--format", "json").stdout)["step"] is None
    assert "a step" not in counted().stdout


def test_a_long_run_says_how_many_collectives_it_has_counted(counted, monkeypatch):
    told = []

    def telling(status, **_):
        told.append(status)
        return contextlib.nullcontext()

    monkeypatch.setattr(run, "progress", telling)
    assert counted().exit_code == 0
    assert [status() for status in told] == ["6 collectives counted"]


def test_a_run_that_still_makes_its_groups_says_how_many(tmp_path, monkeypatch):
    told = []

    def telling(status, **_):
        told.append(status)
        return contextlib.nullcontext()

    monkeypatch.setattr(run, "progress", telling)
    source = "from torch.distributed.device_mesh import init_device_mesh\n"
    (tmp_path / "made.py").write_text(f"{source}init_device_mesh('cpu', (2, 4), mesh_dim_names=('dp', 'tp'))\n")
    assert CliRunner().invoke(main, ["cost", str(tmp_path / "made.py"), "--mesh", "dp=2,tp=4"]).exit_code == 0
    assert [status() for status in told] == ["6 groups of ranks made"]


def test_the_dearest_have_a_cheaper_type_where_there_is_one(counted):
    result = counted()
    assert "3 x all_reduce P->R of float32[64, 32] over tp: 36 KiB" in result.output
    assert "cheaper: P -> S(0) over tp is reduce_scatter with 0.50 of the bytes" in result.output
    assert "step.py:7" in result.output


@pytest.mark.parametrize("program", ["raise SystemExit(3)", "1 / 0"])
def test_a_program_that_stops_is_not_counted(tmp_path, program):
    (tmp_path / "stops.py").write_text(program)
    result = CliRunner().invoke(main, ["cost", str(tmp_path / "stops.py"), "--mesh", "dp=2"])
    assert result.exit_code == 2
    assert "no collective" not in result.output


def test_a_program_that_stops_by_an_error_of_ours_is_answered_with_it(tmp_path):
    (tmp_path / "step.py").write_text(PROGRAM)
    result = CliRunner().invoke(main, ["cost", str(tmp_path / "step.py"), "--mesh", "dp=4"])
    assert result.exit_code == 2
    assert "step.py:5, so nothing is counted: SW903 bad-mesh: a mesh of 2 x 4 = 8 ranks does not fit" in result.stderr


def test_a_program_is_needed_and_axes_must_be_the_meshs():
    assert "say what to run" in CliRunner().invoke(main, ["cost", "--mesh", "dp=2"]).output
    result = CliRunner().invoke(main, ["cost", "x.py", "--mesh", "dp=2", "--bandwidth", "tp=4"])
    assert "the mesh has no axis 'tp'" in result.output


LATE = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
work = dist.all_reduce(torch.ones(1000), group=mesh.get_group("dp"), async_op=True)
dist.all_reduce(torch.ones(4000), group=mesh.get_group("{between}"))
work.wait()
"""


@pytest.mark.parametrize("between", ["tp", "dp"])
def test_what_is_not_waited_for_overlaps_over_another_axis_and_not_over_the_same(tmp_path, between):
    (tmp_path / "late.py").write_text(LATE.format(between=between))
    words = ["cost", str(tmp_path / "late.py"), "--mesh", "dp=2,tp=4"]
    said = json.loads(CliRunner().invoke(main, [*words, "--format", "json"]).stdout)
    alone = [one["time_s"] for one in said["collectives"]]
    assert said["time_as_issued_s"] == pytest.approx(max(alone) if between == "tp" else sum(alone))
    text = CliRunner().invoke(main, words).stdout
    assert ("overlap: waited for at once" in text) == (between == "tp")


MESSAGES = """
import torch, torch.distributed as dist
x = torch.ones(1000)
rank = dist.get_rank()
row, at = divmod(rank, 4)
right, left = 4 * row + (at + 1) % 4, 4 * row + (at - 1) % 4
begun = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, torch.empty(1000), left)]
for work in dist.batch_isend_irecv(begun):
    work.wait()
if row == 0:
    dist.recv(x, rank + 4)
else:
    dist.send(x, rank - 4)
dist.isend(x, (rank + 4) % 8)
"""


def test_messages_without_a_group_are_counted_over_the_axis_that_joins_their_ranks(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.shardwise]\nbandwidth = "tp=nvlink,dp=50"\nlatency = "dp=1"\n')
    (tmp_path / "ring.py").write_text(MESSAGES)
    monkeypatch.chdir(tmp_path)
    words = ["ring.py", "--mesh", "dp=2,tp=4"]
    said = json.loads(CliRunner().invoke(main, ["cost", *words, "--format", "json"]).stdout)
    fast, slow = 4000 / 450e9, 1e-6 + 4000 / 50e9
    assert said["axes"] == {
        "dp": {"calls": 2, "bytes": 4000, "time_s": pytest.approx(slow + 1e-6), "blocking": 1},
        "tp": {"calls": 2, "bytes": 4000, "time_s": pytest.approx(fast), "blocking": 0},
    }
    assert said["collectives"][0]["overlap"].startswith("waited for at once; started early (irecv), ")
    CliRunner().invoke(main, ["check", *words, "--html", "x.html"])
    page = (tmp_path / "x.html").read_text()
    assert "dp: 50 GB/s, 1 us a message." in page
    assert DEFAULT_GROUP not in page


def test_plan_cost_and_report_ask_one_model_of_the_links(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.shardwise]\nbandwidth = "tp=400,dp=network"\nlatency = "tp=2"\n')
    (tmp_path / "step.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke
    words = ["f32[64, 32] {tp: P}", "f32[64, 32]", "--mesh", "dp=2,tp=4", "--format", "json"]
    planned = json.loads(run(main, ["plan", *words]).stdout)["time_s"]
    assert planned == pytest.approx(6 * 2e-6 + 2 * 3 * (64 * 32 * 4 // 4) / 400e9)
    said = json.loads(run(main, ["cost", "step.py", "--mesh", "dp=2,tp=4", "--format", "json"]).stdout)
    assert said["axes"]["tp"]["time_s"] == pytest.approx(3 * planned)
    assert run(main, ["check", "step.py", "--mesh", "dp=2,tp=4", "--html", "x.html"]).exit_code in (0, 1)
    page = (tmp_path / "x.html").read_text()
    assert f'class="number">{duration(3 * planned)}</td>' in page
    assert "tp: 400 GB/s, 2 us a message." in page
    assert "dp: 50 GB/s." in page


def test_what_the_configuration_says_of_links_is_understood_or_refused(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.shardwise]\nbandwidth = "tp=fast"\n')
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["plan", "f32[8@tp]", "f32[8]", "--mesh", "tp=4"])
    assert result.exit_code == 2
    assert (
        "pyproject.toml:2: bandwidth: axis tp has 'fast', expected a number of GB/s above 0, or nvlink" in result.output
    )


REFUSED = textwrap.dedent(
    """
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from shardwise import R, S, assert_type
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    x = assert_type(torch.ones(2, 8), {"dp": R, "tp": S(0)})
    w = assert_type(torch.ones(8, 2), {"dp": R, "tp": S(1)})
    x @ w
    """
)


@pytest.mark.parametrize(
    ("latency", "first"),
    [("dp=1000", "all_to_all(x, "), ("tp=1000", "all_gather(x, ")],
    ids=["of another axis", "of the axis"],
)
def test_repairs_in_findings_are_ordered_by_the_configured_links(tmp_path, latency, first):
    (tmp_path / "step.py").write_text(REFUSED)
    (tmp_path / "pyproject.toml").write_text(f'[tool.shardwise]\nlatency = "{latency}"\n')
    result = CliRunner().invoke(main, ["check", "--global", str(tmp_path / "step.py"), "--mesh", "dp=2,tp=4"])
    helps = [line.partition("= help: ")[2] for line in result.output.splitlines() if "= help: " in line]
    assert helps[0].startswith(first), result.output


IN_A_ROW = textwrap.dedent(
    """
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from shardwise import I, P, R, S, all_gather, all_reduce, assert_type, convert
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    x = assert_type(torch.ones(64, 32), {"dp": R, "tp": P})
    """
)


def test_the_planner_is_asked_for_what_moves_do_one_after_another(tmp_path):
    for moves, said in (
        (
            'convert(all_reduce(x, "tp", src=P, dst=R), "tp", src=R, dst=S(0))',
            "P -> S(0) over tp is reduce_scatter with 0.50 of the bytes, if nothing else takes what is between",
        ),
        (
            'y = assert_type(torch.ones(8, 16), {"dp": S(0), "tp": R})\n'
            'convert(all_gather(y, "dp", src=S(0), dst=R), "dp", src=R, dst=S(1))',
            "S(0) -> S(1) over dp is all_to_all with 0.50 of the bytes, if nothing else takes what is between",
        ),
        (
            'y = assert_type(torch.ones(8, 8), {"dp": P, "tp": P})\n'
            'all_reduce(all_reduce(y, "tp", src=P, dst=R), "dp", src=P, dst=R)',
            "P -> R over tp and P -> R over dp is all_reduce with 0.70 of the bytes",
        ),
        ('all_reduce(x, "tp", src=P, dst=R) * 2', "P -> S(0) over tp is reduce_scatter with 0.50 of the bytes, where"),
        (
            'all_gather(assert_type(torch.ones(8, 16), {"dp": S(1), "tp": R}), "dp", src=S(1), dst=R)',
            "S(1) -> S(0) over dp is all_to_all with 0.50 of the bytes, where",
        ),
    ):
        (tmp_path / "step.py").write_text(IN_A_ROW + moves)
        result = CliRunner().invoke(main, ["cost", str(tmp_path / "step.py"), "--mesh", "dp=2,tp=4"])
        assert said in result.output, result.output


def test_moves_that_are_already_the_cheapest_way_are_not_advised(tmp_path):
    (tmp_path / "step.py").write_text(
        IN_A_ROW + 'convert(all_reduce(x, "tp", src=P, dst=I), "tp", src=I, dst=R)\n'
        'all_reduce(x, "tp", src=P, dst=R); convert(torch.ones(64, 32), "tp", src=R, dst=S(0))'
    )
    result = CliRunner().invoke(main, ["cost", str(tmp_path / "step.py"), "--mesh", "dp=2,tp=4"])
    assert result.exit_code == 0, result.output
    assert "what is between" not in result.output


def test_the_groups_of_a_large_mesh_are_recorded_without_a_list_of_all_ranks_for_each(tmp_path):
    script = tmp_path / "mesh.py"
    script.write_text(
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "init_device_mesh('cpu', (256, 4), mesh_dim_names=('dp', 'tp'))\n"
    )
    options = run.CheckOptions(1024, mesh=MeshShape.parse("dp=256,tp=4"), strict=False)
    _, [trace] = check_recorded(Program(str(script)), options)
    made = [one.group.ranks for one in trace.events if isinstance(one, TracedCall) and one.kind == "new_group"]
    assert len(made) > 200
    assert made[0] == tuple(range(1024))
    assert all(ranks is made[0] for ranks in made)


def test_the_ranks_of_a_large_mesh_are_plain_numbers(tmp_path, monkeypatch):
    script = tmp_path / "mesh.py"
    script.write_text(
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "init_device_mesh('cpu', (256, 4), mesh_dim_names=('dp', 'tp'))\n"
    )
    made = []
    of = value_reads.typed
    monkeypatch.setattr(value_reads, "typed", lambda value, type: made.append(value) or of(value, type))
    check_recorded(Program(str(script)), run.CheckOptions(1024, mesh=MeshShape.parse("dp=256,tp=4"), strict=False))
    assert not made
