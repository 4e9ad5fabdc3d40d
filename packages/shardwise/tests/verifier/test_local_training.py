"""Ranks that train on their own between averages are no replicas that have lost a sum, and verify can tell."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from shardwise import verify
from shardwise.diagnostics.result import ExitCode
from shardwise.interop.running.recording import Key, Record
from shardwise.oracle.observed_layout import ObservedLayout
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.layouts.alignment import AlignedParameter
from shardwise.verifier.layouts.local_training import AVERAGED, REMEDY, averaged_steps, trained_apart

pytestmark = pytest.mark.processes


def local_training(mesh: Any, *, averaged: str = "both", every: int = 2) -> None:
    """Each rank takes ``every`` steps of its own, then parameters are averaged."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2 * every):
        data = torch.randn(4, 4, generator=torch.Generator().manual_seed(10 * step + rank))
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
        if step % every == every - 1:
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if averaged in ("both", name):
                        dist.all_reduce(parameter)
                        parameter /= size


def two_steps() -> Iterator[nn.Module]:
    """The model after each of two steps that every rank takes on its own share of one batch."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.arange(32.0).view(8, 4).sin().chunk(dist.get_world_size())[dist.get_rank()]
    for _ in range(2):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        yield model


@pytest.mark.slow
def test_it_is_no_finding_and_the_report_says_what_to_do():
    verdict = verify(local_training, {"worker": 2}, strict=False)
    assert verdict.exit_code is ExitCode.INCONCLUSIVE, str(verdict)
    assert verdict.numbers.disagreements == ()


def test_where_the_data_are_alike_it_parts_the_runs_and_has_a_remedy():
    def program(mesh: Any) -> None:
        *_, model = two_steps()
        for parameter in model.parameters():
            dist.all_reduce(parameter.data, op=dist.ReduceOp.AVG)

    verdict = verify(program, {"worker": 2}, strict=False)
    assert verdict.exit_code is ExitCode.INCONCLUSIVE, str(verdict)
    assert verdict.numbers.parting is not None
    assert "train weight on their own" in verdict.numbers.parting.reason
    assert verdict.numbers.parting.remedy == REMEDY


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("averaged", ["none", "weight"])
def test_a_parameter_that_stays_apart_has_lost_its_average(averaged):
    verdict = verify(lambda mesh: local_training(mesh, averaged=averaged), {"worker": 2}, strict=False)
    assert verdict.exit_code is ExitCode.FINDINGS, str(verdict)
    first = verdict.numbers.disagreements[0].key
    assert (first.kind, first.name) == ("gradient", "weight" if averaged == "none" else "bias")


def test_gradients_that_differ_before_every_rank_takes_one_ranks_update_are_wrong():
    def program(mesh: Any) -> None:
        for model in two_steps():
            for parameter in model.parameters():
                dist.broadcast(parameter.data, 0)

    verdict = verify(program, {"dp": 2}, strict=False)
    assert verdict.exit_code is ExitCode.FINDINGS, str(verdict)


def averaged_after_every_step(mesh: Any, *, sent: str = "mean") -> None:
    """What every rank's step of SGD has moved goes to all, as the outer step of DiLoCo has it."""
    for number, model in enumerate(two_steps()):
        with torch.no_grad():
            for parameter in model.parameters() if number == 0 or sent != "mean of the first step" else ():
                dist.all_reduce(parameter)
                parameter /= 1 if sent == "sum" else dist.get_world_size()


@pytest.mark.slow
def test_where_every_step_comes_to_that_of_one_rank_gradients_may_be_each_ranks_own():
    verdict = verify(averaged_after_every_step, {"dp": 2}, strict=False)
    assert verdict.numbers.disagreements == (), str(verdict)
    assert {one.reason for one in verdict.numbers.not_compared if one.key.kind == "gradient"} == {AVERAGED}
    for sent in ("sum", "mean of the first step"):
        wrong = verify(lambda mesh, sent=sent: averaged_after_every_step(mesh, sent=sent), {"dp": 2}, strict=False)
        assert wrong.exit_code is ExitCode.FINDINGS, str(wrong)


@pytest.mark.parametrize(
    ("ends", "apart"), [((0.8, 0.8), True), ((0.8, 0.7), False), ((0.9, 0.9), False), ((1.0, 1.0), False)], ids=str
)
def test_steps_of_their_own_are_right_if_they_come_to_what_one_rank_has(ends, apart):
    def run(gradient: float, end: float) -> dict[Key, Record]:
        values = {"parameter": 1.0, "gradient": gradient, "trained": end}
        found = {kind: Key(kind, "weight", None) for kind in values}
        return {key: Record(key, UNTYPED, "", torch.tensor([values[kind]]), digest=b"") for kind, key in found.items()}

    runs = [run(gradient, end) for gradient, end in zip((1.0, 3.0), ends, strict=True)]
    runs = [{k: replace(v, digest=str(v.value).encode()) for k, v in one.items()} for one in runs]
    copies = AlignedParameter((0, 1), "weight", (ObservedLayout(()),))
    alignment: Any = SimpleNamespace(of=lambda name: [copies])
    assert averaged_steps(runs, run(2.0, 0.8), alignment, talking=False) == ({"weight"} if apart else set())
    assert averaged_steps(runs, run(2.0, 0.8), alignment, talking=True) == set()


@pytest.mark.parametrize(
    ("entering", "apart"), [(("00", "01"), True), (("01", "01"), False), (("00", "00"), False)], ids=str
)
def test_pieces_that_differ_before_the_first_step_are_no_copies_that_drift(entering, apart):
    """A digit a rank for each step: ZeRO 3 steps with pieces of what is whole before the first step and at the end."""
    runs = [
        {
            **{Key("gradient", "weight", None, nth): _with(step[rank]) for nth, step in enumerate(entering)},
            Key("trained", "weight", None): _with("9"),
        }
        for rank in range(2)
    ]
    copies = AlignedParameter((0, 1), "weight", (ObservedLayout(()),))
    alignment: Any = SimpleNamespace(of=lambda name: [copies])
    assert trained_apart(runs, alignment) == ({"weight"} if apart else set())


def _with(digest: str) -> Record:
    return Record(Key("gradient", "weight", None), UNTYPED, "", None, digest=digest.encode())


WORKERS = 4


def workers(mesh: Any, *, counted: int = WORKERS) -> None:
    """Workers that train copies of a model are dealt out to the ranks, and an outer step takes their mean."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    outer = torch.optim.SGD(model.parameters(), lr=0.7)
    copies = [(worker, copy.deepcopy(model)) for worker in range(rank, WORKERS, size)]
    optimizers = [torch.optim.SGD(own.parameters(), lr=0.1) for _, own in copies]
    for round_ in range(2):
        for (worker, own), inner in zip(copies, optimizers, strict=True):
            own.load_state_dict(model.state_dict())
            for step in range(2):
                seed = 100 * worker + 10 * round_ + step
                inner.zero_grad()
                own(torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))).square().mean().backward()
                inner.step()
        for name, parameter in model.named_parameters():
            moved = sum(parameter.detach() - own.get_parameter(name).detach() for _, own in copies)
            dist.all_reduce(moved)
            parameter.grad = moved / counted
        outer.step()


@pytest.mark.slow
def test_copies_of_a_model_that_ranks_share_out_are_no_replicas():
    verdict = verify(workers, {"dp": 2}, strict=False)
    assert verdict.exit_code is ExitCode.INCONCLUSIVE, str(verdict)
    assert verdict.numbers.disagreements == ()
