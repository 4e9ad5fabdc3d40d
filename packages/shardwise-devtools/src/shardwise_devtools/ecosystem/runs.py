"""One run of shardwise on one case, and what is kept of its report: enough to compare two versions."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shardwise.diagnostics.result import ExitCode

from .environment import HERE, Environment
from .frameworks import VERIFY, Case, Framework

TIMEOUT_S = 1200.0


@dataclass(frozen=True)
class Found:
    """A finding or a disagreement: ``code`` (``numbers`` for a disagreement), where, and what it says."""

    code: str
    place: str
    text: str


@dataclass(frozen=True)
class Run:
    """What one command said of one case.

    ``exit_code``  its exit code; -1 if it had to be stopped. ``stopped``: what ended the program before its time.
    ``counts``     operations checked and not; for verify also tensors compared and not.
    ``open``       why it is inconclusive, where it is.
    """

    framework: str
    case: str
    command: str
    exit_code: int
    stopped: str
    counts: Mapping[str, int]
    found: tuple[Found, ...]
    duration_s: float
    open: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """The same in every version of shardwise."""
        return self.framework, self.case, self.command


def run_case(
    environment: Environment, framework: Framework, case: Case, command: str, shardwise: Path, first: Path | None = None
) -> Run:
    """Run one case through one command. ``first`` is where packages are looked for first."""
    words = command_line(case, command)
    started_s = time.monotonic()
    process = subprocess.Popen(
        [environment.python, "-m", "shardwise", *words],
        cwd=environment.work,
        env=environment.variables(framework, shardwise, first),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.terminate()
        output, code = process.communicate()[0], -1
    told = _read(output)
    numbers = told.get("numbers") or {}
    types = told.get("types", told) or {}
    counts = {name: types[name] for name in ("checked_ops", "unchecked_ops") if name in types}
    counts |= {name: numbers[name] for name in ("equal", "replicas") if name in numbers}
    if numbers:
        counts["not_compared"] = len(numbers.get("not_compared", ()))
    seconds = round(time.monotonic() - started_s, 1)
    without = f"it was stopped after {TIMEOUT_S:.0f} s" if code == -1 else f"no report, exit code {code}"
    stopped = _stopped(told, types) if told else without
    found = tuple(_found(types, numbers))
    asked = tuple(map(shortened, (numbers or types).get("open", ()) if code == ExitCode.INCONCLUSIVE else ()))
    return Run(framework.name, case.name, command, code, stopped, counts, found, seconds, asked)


def command_line(case: Case, command: str) -> list[str]:
    """The arguments of ``shardwise``."""
    mesh = ",".join(f"{name}={size}" for name, size in case.mesh.items())
    # verify fills the sizes in itself, for they are 1 in its run on one rank.
    verifying, sizes = command == VERIFY, {**case.mesh, "world_size": math.prod(case.mesh.values())}
    arguments = f"{case.arguments} {case.verified}" if verifying else case.arguments.format(**sizes)
    program = case.program.split() if case.program.startswith("-m ") else [str(HERE / "programs" / case.program)]
    limit = ["--timeout", str(TIMEOUT_S / 2)] if verifying else []
    return [*command.split(), *program, "--mesh", mesh, "--format", "json", *limit, "--", *arguments.split()]


def save(runs: list[Run], file: Path) -> None:
    """Write what was found, to be compared later."""
    file.write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n")


def load(file: Path) -> list[Run]:
    """What ``save`` has written."""
    return [
        Run(
            **{
                **entry,
                "found": tuple(Found(**one) for one in entry["found"]),
                "open": tuple(entry.get("open", ())),
            }
        )
        for entry in json.loads(file.read_text())
    ]


def _read(output: str) -> dict[str, Any]:
    try:
        told = json.loads(output)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _stopped(told: Mapping[str, Any], types: Mapping[str, Any]) -> str:
    ended = told.get("failure") or types.get("stopped")
    return "" if ended is None else shortened(ended["text"] or ended["reason"])


def _found(types: Mapping[str, Any], numbers: Mapping[str, Any]) -> Iterator[Found]:
    for finding in types.get("findings", ()):
        yield Found(finding["code"], place(finding["place"]), shortened(finding["message"]))
    module = numbers.get("module")
    for one in (*([module] if module else []), *numbers.get("disagreements", ())):
        where = one["place"] or one.get("used")  # a module has no line of its own, but one that calls it
        yield Found("numbers", place(where), shortened(f"{one['kind']} {one['name']} {one['said']}"))


def place(location: Mapping[str, Any] | None) -> str:
    """File, line and function, with the file as seen from the folder of the packages."""
    if not location:
        return ""
    file = re.sub(r"^.*/(?:site-packages|[a-z0-9-]+-[0-9]+(?:\.[0-9]+)+)/", "", str(location["file"]))
    return f"{file if not file.startswith(os.sep) else Path(file).name}:{location['line']}"


def shortened(text: str) -> str:
    """One line of at most 200 characters, without the folders of this machine."""
    line = re.sub(r"/\S*/", "", " ".join(text.split()))
    return line if len(line) <= 200 else line[:197] + "..."
