"""What does ``shardwise check`` say about a program? Runs the command on each, in a process of its own."""

import contextlib
import importlib
import io
import json
import multiprocessing
import os
from dataclasses import dataclass
from pathlib import Path

from proof import DP, TP, Job

WARM = ("torch._dynamo", "shardwise.cli.run", "shardwise.collectives.partial")
TIMEOUT_S = 300
SIZES = ["--layers", "1", "--steps", "1"]
MODES = {"local": [], "global": ["--global"], "explicit": ["--global", "--partials", "explicit"]}
"""What the checker can be asked about: which values vary, which dims are sharded, and that sums are asked for."""


@dataclass(frozen=True)
class Said:
    """One finding: its code, the file and line that it names, and the text of that line."""

    code: str
    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Verdict:
    """The errors, in the order of the report, and how the command ended."""

    errors: tuple[Said, ...]
    exit_code: int
    output: str


def check(asked: list[tuple[Job, str]], mesh: str = f"dp={DP},tp={TP}") -> list[Verdict]:
    """The verdict on each job in its mode, in an imagined job on ``mesh``."""
    # Forked, so that all but the program is imported once; one task each, so that programs do not share their imports.
    for name in WARM:
        importlib.import_module(name)
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        return pool.starmap_async(_check, [(job, mode, mesh) for job, mode in asked], chunksize=1).get(
            timeout=TIMEOUT_S
        )


def _check(job: Job, mode: str, mesh: str) -> Verdict:
    import torch

    from shardwise.cli.main import main

    torch.set_num_threads(1)
    options = ["--mesh", mesh, *MODES[mode], "--format", "json"]
    command = ["check", str(job.script), *options, "--", *SIZES, *job.args]
    output, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(complaints):
        try:
            code = main(command)
        except SystemExit as stop:
            code = stop.code
    text = output.getvalue()
    try:
        report = json.loads(text)
    except json.JSONDecodeError:
        return Verdict((), int(code or 0), text + complaints.getvalue())
    errors = (_said(finding) for finding in report["findings"] if finding["severity"] == "error")
    return Verdict(tuple(errors), int(code or 0), text)


def _said(finding: dict) -> Said:
    place = finding["place"] or {"file": "", "line": 0}
    path = Path(place["file"])
    text = path.read_text().splitlines()[place["line"] - 1].strip() if path.is_file() else ""
    return Said(finding["code"], path.name, place["line"], text)
