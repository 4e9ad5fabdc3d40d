"""Is docs/mutants.md what its file of figures says, of the programs as they are, with nothing left unexplained?"""

from __future__ import annotations

import pytest
import torch
from click.testing import CliRunner

from shardwise.zoo.program import Tensors
from shardwise.zoo.programs import expert_parallel, vocabulary_parallel_loss
from shardwise_devtools.main import main
from shardwise_devtools.mutate.corpus import corpus
from shardwise_devtools.mutate.explained import read_explained
from shardwise_devtools.mutate.figures import PAGE, Figures, Shown, page, read_figures, unmeasured, written
from shardwise_devtools.mutate.judge import Fate
from shardwise_devtools.mutate.measure import Bench, judge_all
from shardwise_devtools.mutate.mutants import mutants_in
from shardwise_devtools.mutate.mutants_command import EXPLAINED

# Programs are read for their mutants once in a process.
pytestmark = pytest.mark.xdist_group("mutants")

FIGURES = read_figures()
STALE = "run: shardwise-devtools mutants --write"


@pytest.mark.slow
def test_the_page_is_that_of_the_figures() -> None:
    assert PAGE.read_text() == page(FIGURES, unmeasured(FIGURES, corpus())), STALE


def test_figures_are_of_the_mutants_that_programs_have() -> None:
    known = {one.name: len(one.mutants) for one in corpus()}
    assert {name: one.mutants for name, one in FIGURES.items()} == {name: known[name] for name in FIGURES}, STALE


def test_no_mutant_survives_and_no_alarm_is_false_without_a_reason() -> None:
    assert {name: one.unexplained for name, one in FIGURES.items() if one.unexplained} == {}
    counts = [one.counts for one in FIGURES.values()]
    assert sum(one["killed"] for one in counts) >= 50
    assert sum(one["survived"] for one in counts) == 0


def test_figures_are_read_as_they_were_written(tmp_path_factory: pytest.TempPathFactory) -> None:
    shown = Shown("train.py:1", "drop", "a | b", "b", "")
    figures = {"one": Figures({fate.value: 1 for fate in Fate}, (shown,), (shown,))}
    path = tmp_path_factory.mktemp("figures") / "mutants.json"
    path.write_text(written(figures))
    assert read_figures(path) == figures
    assert "| one, `train.py:1` | drop: `a \\| b` becomes `b` | **not explained** |" in page(figures)
    assert "1 of them survive, which is\n14.3% of all mutants and 33.3% of the silent ones." in page(figures)


def test_what_is_not_measured_is_named() -> None:
    subjects = [one for one in corpus() if one.name in ("fsdp", "ulysses")]
    figures = {one.name: Figures({fate.value: 0 for fate in Fate} | {"killed": len(one.mutants)}) for one in subjects}
    assert unmeasured(figures, subjects) == []
    figures["fsdp"] = Figures({fate.value: 1 for fate in Fate})
    assert unmeasured(figures, subjects) == ["fsdp"]
    assert unmeasured({}, subjects) == ["fsdp", "ulysses"]
    assert "Not measured since they were written or changed: fsdp." in page(figures, ["fsdp"])


def test_an_unknown_program_is_answered_with_those_that_are_known() -> None:
    done = CliRunner().invoke(main, ["mutants", "tensor_paralel"])
    assert done.exit_code == 2
    assert "there is no program tensor_paralel; there are context_parallel, " in done.output


def test_a_softmax_is_the_same_whatever_is_taken_from_all_scores() -> None:
    """The reason that explained.toml gives: not only the largest score may be taken, but any number."""
    assert reasons("vocabulary_parallel_loss.py:*") == {
        "a softmax is the same whatever number is taken from all scores, and no type knows that; a test computes it"
    }
    generator = torch.Generator().manual_seed(0)
    shape = vocabulary_parallel_loss.B, vocabulary_parallel_loss.WORDS
    scores = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    largest = scores.detach().amax(-1, keepdim=True)
    found = []
    for taken in (largest, 2 * largest, largest / 2, largest - 3):
        loss = (scores - taken).exp().sum(-1).log() - (scores - taken)[:, 0]
        found.append((loss.detach(), *torch.autograd.grad(loss.sum(), scores)))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-12, atol=1e-12)


def test_the_loss_of_experts_does_not_ask_which_token_is_where() -> None:
    (reason,) = reasons("expert_parallel.py:*")
    assert reason.startswith("the loss does not ask which token is where")
    generator = torch.Generator().manual_seed(0)
    d, experts = expert_parallel.D, expert_parallel.EXPERTS
    weights = Tensors(
        router=torch.randn(d, experts, generator=generator, dtype=torch.float64),
        experts=torch.randn(experts, d, d, generator=generator, dtype=torch.float64),
    )
    tokens = torch.randn(expert_parallel.N, d, generator=generator, dtype=torch.float64)
    turned = tokens.reshape(2, 2, -1, d).transpose(0, 1).reshape(tokens.shape)
    one, other = (expert_parallel.single(weights, Tensors(tokens=given)) for given in (tokens, turned))
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def reasons(place: str) -> set[str]:
    return {one.reason for one in read_explained(EXPLAINED) if one.place == place}


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.xdist_group("mutate")
def test_a_fresh_run_of_a_program_agrees_with_its_figures() -> None:
    """The mistakes of one kind that no run ends with an exception; `make nightly` measures the whole page."""
    subject = next(one for one in corpus() if one.name == "tensor_parallel")
    mutants = mutants_in(subject.path, tuple(subject.mesh), ("bias", "late"))
    judged = list(judge_all(Bench.of(subject.program, subject.mesh), mutants, 1, read_explained(EXPLAINED)))
    assert [one.fate for one in judged] == [Fate.KILLED] * len(mutants)
    assert judged
