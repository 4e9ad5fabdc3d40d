"""The benchmarks run, and write what they say they write. Their numbers are no test: machines are shared."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .documents import ROOT


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.usefixtures("warm_python")
def test_every_benchmark_runs_and_reports_positive_numbers(tmp_path):
    command = [sys.executable, "benchmarks/run.py", "--quick", "--json", str(tmp_path / "numbers.json")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    rows = json.loads((tmp_path / "numbers.json").read_text())["rows"]
    assert len({row["group"] for row in rows}) == 13
    assert all(row["value"] > 0 for row in rows)
    assert all(f"| {row['what']} |" in run.stdout for row in rows)
