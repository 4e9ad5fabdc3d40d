"""Does the first line of verify's text tell an expert what is wrong, and does the first span show where?"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.source_location import Operand, SourceLocation
from shardwise.host.program import Program
from shardwise.interop.running.recording import Key
from shardwise.verifier.distance.numbers import Against, FirstInBackward, Numbers, ValueDisagreement
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.subject import Script
from shardwise.verifier.run import verify_subject
from shardwise.verifier.text import Verdict

TRAIN = """
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.{between}, nn.Linear(8, 2)).to(torch.{dtype})
    wrapped = DistributedDataParallel(model)
    wrapped.require_backward_grad_sync = {sync}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * {rate})
    for _ in range(2):
        x = torch.randn(8, 4).to(torch.{dtype})
        loss = {model}({share}).square().{loss}
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
RIGHT = {
    "sync": "True",
    "between": "Tanh()",
    "dtype": "float32",
    "rate": "1",
    "model": "wrapped",
    "share": "x.chunk(world)[rank]",
    "loss": "mean()",
}
CASES = {
    "gradients that nobody averages": (
        {"model": "model"},
        "gradient of 0.weight in step 1 is not averaged over dp: the mean of those of the ranks is that of one rank",
        "optimizer.step()",
    ),
    "nobody averages them in half precision": (
        {"model": "model", "dtype": "bfloat16"},
        "gradient of 0.weight in step 1 is not averaged over dp: the mean of those of the ranks is that of one rank",
        "optimizer.step()",
    ),
    "gradients that nobody sums": (
        {"model": "model", "loss": "sum()"},
        "gradient of 0.weight in step 1 is not summed over dp: those of the ranks, added up, are that of one rank",
        "optimizer.step()",
    ),
    "a term that is averaged": (
        {"loss": "sum() / 16"},
        "gradient of 0.weight in step 1 differs from the run on one rank: 1/2 of it, 2 being the size of dp",
        "optimizer.step()",
    ),
    "another learning rate": (
        {"rate": "world"},
        "step 1 is taken with lr 0.2, and on one rank with lr 0.1; ",
        "optimizer.step()",
    ),
    "statistics of each rank's own rows": (
        {"between": "BatchNorm1d(8)"},
        "output of 1 (BatchNorm1d) is not that of the run on one rank, in any layout",
        "wrapped(x.chunk(world)[rank])",
    ),
    "one piece for all ranks": (
        {"share": "x.chunk(world)[0]"},
        "input 0 of Sequential is piece 0 of 2 of the run on one rank on rank 1 as on rank 0, and no rank",
        "wrapped(x.chunk(world)[0])",
    ),
}

HELPS = {
    "no wrapper is called": ({"model": "model"}, "wrap the model in DistributedDataParallel"),
    "its wrapper is told not to": ({"sync": "False"}, "let the wrapper average it"),
}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.processes
@pytest.mark.parametrize("case", CASES)
def test_the_first_line_says_what_is_wrong_and_the_first_mark_is_there(tmp_path: Path, case: str) -> None:
    changed, said, marked = CASES[case]
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(TRAIN).format(**RIGHT | changed))
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow="between" in changed)
    text = str(verify_subject(Script(Program(path=str(script))), {"dp": 2}, options))
    first, _, _, source, marks, *_ = text.splitlines()
    assert first.startswith(f"wrong numbers: {said}"), text
    assert source[marks.index("^") : marks.rindex("^") + 1] == marked, text


@pytest.mark.processes
@pytest.mark.parametrize(("changed", "help"), HELPS.values(), ids=HELPS)
def test_who_has_wrapped_the_model_is_not_told_to_wrap_it(tmp_path: Path, changed: dict[str, str], help: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(TRAIN).format(**RIGHT | changed))
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False)
    text = str(verify_subject(Script(Program(path=str(script))), {"dp": 2}, options))
    (line,) = (line for line in text.splitlines() if "= help:" in line)
    assert line.startswith(f"   = help: {help} over dp "), text


def test_what_global_types_see_leads_only_where_the_line_names_an_operand() -> None:
    line = SourceLocation("a.py", 3, 3, 0, 4)
    for location, lines in ((line, ("the cause", "wrong numbers")), (None, ("wrong numbers", "what global types see"))):
        cause = Finding("SW405", "as_strided cannot work on it", line, operands=(Operand("input", "f32[2]", location),))
        numbers = Numbers(disagreements=(wrong("loss", ""),), cause=cause)
        text = str(Verdict("a.py", "dp=2", numbers=numbers))
        assert text.index(lines[0]) == 0, text
        assert text.index(lines[0]) < text.index(lines[1]), text


LINE = SourceLocation("a.py", 3, 3, 0, 4)


def wrong(kind: str, name: str, use: SourceLocation | None = None) -> ValueDisagreement:
    key = Key(kind, name, None)
    return ValueDisagreement(key, "f32[]", Against.ALONE, 0, (0,), (), (), None, "differs", use=use)


def test_a_module_leads_where_what_comes_first_follows_from_it() -> None:
    module, loss, value = wrong("module", "1", LINE), wrong("loss", ""), wrong("value", "before")
    assert Numbers(disagreements=(loss,), module=module).lead is module
    assert Numbers(disagreements=(value, loss), module=module).lead is value
    assert Numbers(disagreements=(loss,), module=wrong("module", "1")).lead is loss, "it has no place to show"


def test_backward_leads_where_gradients_are_known_to_be_right_before_it() -> None:
    first, later = wrong("gradient", "0.weight"), wrong("gradient", "1.weight")
    backward = FirstInBackward(later, LINE, ("2.weight",))
    assert Numbers(disagreements=(first, later), backward=backward).lead is later
    assert Numbers(disagreements=(first, later), backward=backward).others == (first,)
    unknown = FirstInBackward(later, LINE, ())
    assert Numbers(disagreements=(first, later), backward=unknown).lead is first
    assert Numbers(disagreements=(wrong("loss", ""), later), backward=backward).lead is not later
