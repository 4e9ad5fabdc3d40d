"""The run on one rank draws what the ranks drew: masks, noise and data seeded by rank are compared, and not guessed."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from shardwise.diagnostics.result import ExitCode
from shardwise.host.program import Program
from shardwise.interop.running.recording import Draw, Key
from shardwise.verifier.records.draws import RankDraw, pieces_of
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.subject import Script
from shardwise.verifier.run import verify_subject
from shardwise.verifier.runs.given_draws import GivenDraws

KEY = Key("drawn", "dropout", None, 1)


def of(seed: int, *shape: int) -> RankDraw:
    return RankDraw(torch.Generator().manual_seed(seed).get_state(), shape)


A, B = of(1, 4, 6), of(2, 4, 6)


@pytest.mark.parametrize(
    ("draws", "shape", "alike", "found"),
    [
        ([A, B], (8, 6), True, (0, [A, B])),
        ([A, B], (8, 6), False, (0, [A, B])),
        ([A, A, B, B], (8, 6), False, (0, [A, B])),
        ([A, B], (4, 12), False, (1, [A, B])),
        ([A, A], (8, 6), True, (0, [A, A])),
        ([A, A, A, A], (8, 6), True, (0, [A, A])),
        ([A, A], (8, 6), False, None),
        ([A, A], (4, 6), False, (0, [A])),
        ([A, B], (4, 6), True, None),
        ([A, B], (8, 12), True, None),
        ([A, B], (12, 6), True, None),
        ([A, of(2, 4)], (8, 6), True, None),
        ([A, of(2, 3, 6)], (7, 6), False, (0, [A, of(2, 3, 6)])),
    ],
)
def test_draws_that_make_the_whole_are_found(
    draws: list[RankDraw], shape: tuple[int, ...], alike: bool, found: tuple[int, list[RankDraw]] | None
) -> None:
    came = pieces_of(draws, shape, alike=alike)
    told = None if came is None else (came[0], [(one.shape, one.state.tolist()) for one in came[1]])
    assert told == (None if found is None else (found[0], [(one.shape, one.state.tolist()) for one in found[1]]))


def test_a_mask_is_that_of_the_ranks_and_the_generator_goes_on_as_it_would() -> None:
    x = torch.rand(8, 6, requires_grad=True)
    own = torch.random.default_generator
    masks = []
    for draw in (A, B):
        own.set_state(draw.state)
        masks.append(torch.dropout(torch.ones(4, 6), 0.5, True))
    torch.manual_seed(0)
    result = torch.dropout(x, 0.5, True)
    after = own.get_state()
    given = GivenDraws([{KEY: A}, {KEY: B}])
    made = given.draw(Draw(KEY, b"", (8, 6)), torch.dropout, (x, 0.5, True), {}, result, own)
    assert isinstance(made, torch.Tensor)
    assert torch.equal(made, x * torch.cat(masks))
    assert torch.equal(own.get_state(), after)
    assert given.count == 1
    made.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.cat(masks))


TRAIN = """
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.Generator().manual_seed(1)
    torch.manual_seed(100 + {seed})
    for _ in range(2):
        x = {data}
        loss = {model}(x + {noise}).square().{loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
RIGHT = {
    "seed": "rank",
    "data": "torch.randn(8, 4, generator=rows).chunk(world)[rank]",
    "noise": "0.1 * torch.randn_like(x)",
    "model": "model",
    "loss": "mean()",
}
CASES = {
    "seeded by rank": ({}, ExitCode.CLEAN, "one rank was given what all ranks drew together: 4 random draws"),
    "masks alike on all ranks": ({"seed": "0"}, ExitCode.CLEAN, "4 random draws"),
    "data seeded by rank": ({"data": "torch.randn(8 // world, 4)"}, ExitCode.CLEAN, "6 random draws"),
    "gradients that nobody averages": ({"model": "model.module"}, ExitCode.FINDINGS, "is not averaged over dp"),
    "a sum that is averaged": ({"loss": "sum()"}, ExitCode.FINDINGS, "1/2 of it, 2 being the size of dp"),
    "rows that lie otherwise than the ranks": (
        {"data": "torch.randn(8, 4, generator=rows)[rank::world]", "noise": "0.1"},
        ExitCode.INCONCLUSIVE,
        "where one rank draws what the ranks draw, one behind the other",
    ),
    "the same data on every rank": (
        {"seed": "0", "data": "torch.randn(8 // world, 4)"},
        ExitCode.INCONCLUSIVE,
        "the two runs part",
    ),
}


@pytest.mark.slow_but_one_in(2)
@pytest.mark.processes
@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", CASES)
def test_what_ranks_draw_for_themselves_is_compared(tmp_path: Path, case: str) -> None:
    changed, exit_code, said = CASES[case]
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(TRAIN).format(**RIGHT | changed))
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False)
    verdict = verify_subject(Script(Program(path=str(script))), {"dp": 2}, options)
    assert verdict.exit_code is exit_code, str(verdict)
    assert said in str(verdict)
