"""What does ``shardwise check`` say about a program? Runs the command on each, in a process of its own."""

import contextlib
import importlib
import io
import json
import multiprocessing
import os
from dataclasses import dataclass
from pathlib import Path

from proof import Job

from shardwise.verifier.runs.warming import warm_up

TIMEOUT_S = 300
MODES = {
    "local": [],
    "global": ["--global"],
    "explicit": ["--global", "--partials", "explicit"],
    "ranks": ["--ranks", "all"],
}
"""What the checker can be asked about: which values vary, which dims are sharded, that sums are asked for, and that all
ranks issue the same collectives."""


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


def check(asked: list[tuple[Job, str]], mesh: dict[str, int] | None = None) -> list[Verdict]:
    """The verdict on each job in its mode, in an imagined job on ``mesh``; left out, on the mesh of its program."""
    # Forked, so that all but the program is imported once; one task each, so that programs do not share their imports.
    warm_up()
    importlib.import_module("shardwise.cli.runs.run")
    alone = [(job, mode, mesh) for job, mode in asked if mode != "ranks"]
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        said = iter(pool.starmap_async(_check, alone, chunksize=1).get(timeout=TIMEOUT_S))
    return [_check_ranks(job, mesh) if mode == "ranks" else next(said) for job, mode in asked]


def _check_ranks(job: Job, mesh: dict[str, int] | None) -> Verdict:
    """The verdict on all ranks: processes of its own, which a worker of a pool may not start."""
    context = multiprocessing.get_context("fork")
    answer, told = context.Pipe(duplex=False)
    process = context.Process(target=lambda: told.send(_check(job, "ranks", mesh)))
    process.start()
    told.close()
    try:
        if not answer.poll(TIMEOUT_S):
            raise TimeoutError(f"{job.script} is not checked after {TIMEOUT_S} s")
        return answer.recv()
    finally:
        process.kill()
        process.join()


def _arguments(job: Job, mode: str, mesh: dict[str, int] | None) -> list[str]:
    mesh = mesh or job.program.mesh
    shown = ",".join(f"{axis}={size}" for axis, size in mesh.items())
    options = [*job.program.axis_options(mesh), *job.program.types, *job.args]
    return ["check", str(job.script), "--strict", "--mesh", shown, *MODES[mode], "--format", "json", "--", *options]


def _check(job: Job, mode: str, mesh: dict[str, int] | None) -> Verdict:
    import torch

    from shardwise.cli.main import main

    torch.set_num_threads(1)
    output, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(complaints):
        try:
            code = main(_arguments(job, mode, mesh))
        except SystemExit as stop:
            code = stop.code
    return _verdict(output.getvalue(), complaints.getvalue(), int(code or 0))


def _verdict(output: str, complaints: str, exit_code: int) -> Verdict:
    try:
        report = json.loads(output)
    except json.JSONDecodeError:
        return Verdict((), exit_code, output + complaints)
    places = (place for finding in report["findings"] for place in (finding, *finding["alike"]))
    errors = (_said(place) for place in places if place["severity"] == "error")
    return Verdict(tuple(errors), exit_code, output)


def _said(finding: dict) -> Said:
    place = finding["place"] or {"file": "", "line": 0}
    path = Path(place["file"])
    text = path.read_text().splitlines()[place["line"] - 1].strip() if path.is_file() else ""
    return Said(finding["code"], path.name, place["line"], text)
