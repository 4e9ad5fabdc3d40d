"""Do the right programs that end with a ``result`` compute on several ranks what they compute on one?

They run without the checker, all ranks in this process; that the checker finds nothing is said by ``test_programs.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from shardwise.worlds.world import InProcessWorld

from .test_programs import RIGHT, options_of

PROVEN = [path for path in RIGHT if "\n    result = " in path.read_text()]


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
