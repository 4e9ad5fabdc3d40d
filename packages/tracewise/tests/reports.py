"""Reports of logs, for tests."""

from __future__ import annotations

from pathlib import Path

from tracewise.find.answers import Answers, find_answers
from tracewise.model.runs import find_runs, load_run
from tracewise.read.source import open_sources
from tracewise.report.writer import write_report


def report_of(log: bytes | dict[str, bytes], folder: Path) -> tuple[Path, Answers]:
    """The report of one log, or of several by name; and what it is made from."""
    source = folder / "trace"
    source.mkdir(parents=True)
    for name, data in (log if isinstance(log, dict) else {"a.log": log}).items():
        (source / name).write_bytes(data)
    with open_sources([source]) as sources:
        answers = find_answers(load_run(find_runs(sources)[-1], 0, sources.health))
        write_report(answers, folder / "out")
    return folder / "out", answers


def rank_logs(variant: str) -> dict[str, bytes]:
    """Both ranks of a golden pair."""
    from .golden import golden

    return {
        f"dedicated_log_torch_trace_rank_{rank}_abcd123{rank}.log": golden(f"ranks-{variant}-{rank}") for rank in (0, 1)
    }
