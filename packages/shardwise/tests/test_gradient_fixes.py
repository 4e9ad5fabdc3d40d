"""What is to be done about gradients: a norm of what is split, a sum that is missing, a scale that is not one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwise.cli.runs.fix_search import edits_of
from shardwise.configuration.policy import Policy
from shardwise.diagnostics.fix import Insert
from shardwise.diagnostics.result import ExitCode

from .fix_trials import START, STEP, SUM, Judge

SPLIT = (
    "    w = nn.Parameter(torch.randn(4))\n    v = nn.Parameter(torch.randn(2, 4))\n"
    "    spmd.assert_type(w, {'dp': I, 'tp': I})\n    spmd.assert_type(v, {'dp': I, 'tp': S(0)})\n"
    "    held = [w, v]\n    h = spmd.convert(w, 'tp', src=I, dst=R)\n"
    "    spmd.all_reduce((v * h).square().sum(), 'tp', src=V, dst=I).backward()\n"
)
CLIP = "    for p in held:\n        p.grad.mul_((1.0 / norm).clamp(max=1.0))\n"
SQUARES = "    total = 0.0\n    for p in held:\n        total += p.grad.{}\n"


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(
    "norm",
    [
        "    norm = torch.stack([p.grad.norm() for p in held]).norm()\n",
        "    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm(2) for p in held]))\n",
        "    norm = torch.norm(torch.stack([torch.norm(p.grad, 2) for p in held]), 2.0)\n",
        "    norm = torch.sqrt(sum(p.grad.square().sum() for p in held))\n",
        SQUARES.format("norm() ** 2") + "    norm = total ** 0.5\n",
        SQUARES.format("square().sum()") + "    norm = total.sqrt()\n",
    ],
)
def test_a_norm_by_hand_of_what_is_split_is_that_of_ours(norm: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(START + SPLIT + norm + CLIP)
    judge = Judge(path)
    (finding,) = judge.check({}).errors
    assert finding.code == "SW609"
    (fix,) = finding.fixes
    assert fix.choice
    (edit,) = edits_of([fix]) or ()
    assert "    norm = spmd.train.grad_norm(held)\n" in edit.after
    assert judge.check({str(path): edit.after}).exit_code == ExitCode.CLEAN


@pytest.mark.parametrize(
    "norm",
    [
        "    norm = torch.stack([p.grad.norm(1) for p in held]).norm(1)\n",
        "    norm = torch.stack([p.grad.abs().max() for p in held]).max()\n",
        "    norm = torch.stack([(p.grad * q.detach()).norm() for p in held for q in held]).norm()\n",
        SQUARES.format("norm() ** 3") + "    norm = total ** (1 / 3)\n",
        SQUARES.format("norm() ** 2") + "    total += w.grad.norm() ** 2\n    norm = total ** 0.5\n",
    ],
)
def test_what_is_not_seen_to_be_the_norm_of_some_gradients_stays(norm: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(START + SPLIT + norm + CLIP)
    (finding,) = Judge(path).check({}).errors
    assert (finding.code, finding.fixes) == ("SW609", ())


def test_gradients_that_are_each_ranks_own_mean_are_summed_and_divided(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        START + "    spmd.assert_type(x, {'dp': S(0), 'tp': I})\n    model(x).square().mean().backward()\n"
        "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" + STEP
    )
    finding = next(one for one in Judge(path, local=False).check({}).errors if one.code == "SW112")
    group = 'group=mesh.get_group("dp")'
    assert finding.help == (f"dist.all_reduce(p.grad, {group}) and p.grad /= dist.get_world_size({group}) before norm",)
    (fix,) = finding.fixes
    (edit,) = fix.edits
    assert isinstance(edit, Insert)
    assert edit.lines[-1].strip() == f"parameter.grad /= dist.get_world_size({group})"


CLIPPED = "    {}\n    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" + STEP


def test_a_sum_that_a_norm_and_a_step_miss_is_made_once_and_before_both(tmp_path: Path) -> None:
    """One after the other would sum twice; leaving out one of the two is clean and wrong."""
    path = tmp_path / "program.py"
    path.write_text(START + CLIPPED.format("backward()"))
    (finding,) = Policy().applied(Judge(path).check({})).errors
    assert [place.code for place in finding.places] == ["SW112", "SW608"]
    assert {edit.location.line for fix in finding.fixes for edit in fix.edits} == {len(START.splitlines()) + 2}


def test_gradients_of_unknown_scale_leave_the_choice_of_the_sum_and_the_mean(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(START + CLIPPED.format("backward()"))
    for code in ("SW112", "SW608"):
        finding = next(one for one in Judge(path).check({}).errors if one.code == code)
        total, mean = finding.fixes
        assert total.choice
        assert mean.choice
        assert mean.help.endswith("if the loss is the mean of each rank's own samples")


@pytest.mark.parametrize(
    ("loss", "helps"),
    [
        ("mean()", ["op=dist.ReduceOp.AVG in line {sum}", "(loss / {ranks}).backward() in line {}"]),
        ("sum() / mesh['dp'].size()", ["(model(x).square().sum()) in place of {loss} in line {loss_line}"]),
    ],
    ids=["too large", "too small"],
)
def test_each_help_about_the_scale_of_gradients_is_one_edit(loss: str, helps: list[str], tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    made = f"model(x).square().{loss}"
    path.write_text(START + f"    loss = {made}\n    loss.backward()\n{SUM}{STEP}")
    finding = next(one for one in Judge(path, local=False).check({}).errors if one.code == "SW616")
    first = len(START.splitlines()) + 1
    ranks = 'dist.get_world_size(group=mesh.get_group("dp"))'
    wanted = [help.format(first + 1, ranks=ranks, sum=first + 3, loss=made, loss_line=first) for help in helps]
    assert list(finding.help) == wanted
    assert [len(fix.edits) for fix in finding.fixes] == [1] * len(wanted)


LOGGED = """\
    shown = loss.detach().clone()
    dist.all_reduce(shown)
    print(shown.item() / mesh['dp'].size())
"""


@pytest.mark.parametrize("summed", ["AVG", "SUM"])
def test_a_division_of_what_is_logged_is_no_help_for_a_gradient(summed: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    divided = "" if summed == "AVG" else "        p.grad /= mesh['dp'].size()\n"
    made = SUM.replace("group=dp", f"op=dist.ReduceOp.{summed}, group=dp") + divided
    path.write_text(f"{START}    loss = model(x).square().sum()\n    loss.backward()\n{made}{LOGGED}{STEP}")
    finding = next(one for one in Judge(path, local=False).check({}).errors if one.code == "SW616")
    line = len(START.splitlines()) + 4
    wanted = (
        f"op=dist.ReduceOp.SUM in line {line}" if summed == "AVG" else f"p.grad /= mesh['dp'].size() in line {line + 1}"
    )
    assert finding.help[0].endswith(wanted)
    assert all("shown" not in one for one in finding.help), finding.help
