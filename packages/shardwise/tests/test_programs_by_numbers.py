"""Do the right programs with a ``result`` compute on several ranks what they do on one, and is a mistake in them found?

They run without the checker, all ranks in this process; that the checker finds nothing is said by ``test_programs.py``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.distributed as dist

from shardwise.cli.runs.run import check_program
from shardwise.host.program import Program
from shardwise.worlds.world import InProcessWorld

from .test_programs import FOLDER, RIGHT, options_of

INIT = dist.init_process_group
PROVEN = [path for path in RIGHT if "\n    spmd.assert_type(result, " in path.read_text()]


def results(source: str, ranks: int) -> list[torch.Tensor]:
    """What the program of this source leaves in ``result``, rank by rank."""

    def run() -> torch.Tensor:
        names: dict[str, torch.Tensor] = {}
        exec(compile(source, "program", "exec"), names)
        return names["result"].detach().clone()

    return InProcessWorld(ranks).run(run)


def parts(source: str, sizes: tuple[int, ...]) -> bool:
    """True if some rank's result on one of these numbers of ranks is not that of one."""
    (whole,) = results(source, 1)
    found = [result for size in sizes for result in results(source, size)]
    return not all(result.shape == whole.shape and torch.allclose(result, whole, 1e-4, 2e-5) for result in found)


@pytest.fixture(autouse=True)
def _world_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "init_process_group", lambda *_: None)


@pytest.mark.parametrize("path", PROVEN, ids=lambda path: path.stem)
def test_a_right_program_computes_what_one_rank_computes(path: Path) -> None:
    assert not parts(path.read_text(), (2, 4) if options_of(path).world_size == 4 else (2,))


def test_another_result_is_seen() -> None:
    (path,) = [path for path in PROVEN if path.stem == "token_weights"]
    right = path.read_text()
    wrong = right.replace("    dist.all_reduce(weight.grad)\n", "")
    assert wrong != right
    assert parts(wrong, (2,))


def test_there_are_programs_to_prove() -> None:
    assert len(PROVEN) >= 20


class Mistake(NamedTuple):
    """One change of a right program, and the codes that it gets with local and with global types."""

    program: str
    right: str
    wrong: str
    local: frozenset[str]
    whole: frozenset[str]

    def source(self) -> str:
        """The program with the mistake in it."""
        text = (FOLDER / "right" / f"{self.program}.py").read_text()
        assert self.right in text, "the program has been changed"
        return text.replace(self.right, self.wrong, 1)


def mistakes() -> list[Mistake]:
    """Those of ``programs/one_change.txt``."""
    found = []
    for entry in (FOLDER / "one_change.txt").read_text().rstrip().split("\n\n")[1:]:
        head, *lines = entry.split("\n")
        program, codes = head.split(": ")
        local, whole = (frozenset(told.split()) - {"-"} for told in codes.split(" | "))
        right, wrong = ("\n".join(line[2:] for line in lines if line.startswith(sign)) for sign in "-+")
        found.append(Mistake(program, right, wrong, local, whole))
    return found


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(4)
@pytest.mark.parametrize("mistake", mistakes(), ids=lambda one: f"{one.program}: {one.wrong.strip()[:40]}")
def test_a_mistake_of_one_change_is_found(mistake: Mistake, tmp_path: Path) -> None:
    options = options_of(FOLDER / "right" / f"{mistake.program}.py")
    assert parts(mistake.source(), (2, 4) if options.world_size == 4 else (2,)), "it is right by its numbers"
    assert mistake.local | mistake.whole
    script = tmp_path / "wrong.py"
    script.write_text(mistake.source())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "init_process_group", INIT)
        results = [check_program(Program(path=str(script)), replace(options, local=local)) for local in (True, False)]
    assert [result.ending for result in results] == [None, None]
    told = [{finding.code for finding in result.findings} for result in results]
    assert told == [set(mistake.local), set(mistake.whole)]
