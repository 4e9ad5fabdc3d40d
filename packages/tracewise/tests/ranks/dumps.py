"""Flight-recorder dumps as torch 2.13 writes them on gloo, for tests."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

START_NS = 1_795_000_000_000_000_000
# What a small training program calls in a step: operation, line, whether over the group of even ranks.
STEP = (("all_reduce", 21, False), ("broadcast", 31, False), ("all_reduce", 33, True), ("all_gather", 35, False))
BUGS = ("none", "skip", "op", "late")


def calls(rank: int, bug: str, steps: int = 3) -> list[tuple[str, int, bool, float]]:
    """What a rank calls, and how many seconds late. With a bug in it rank 1 stops there, and so do the others."""
    found = []
    for step in range(steps):
        for op, line, is_sub in STEP:
            if is_sub and rank % 2:
                continue
            is_bug = rank == 1 and op == "broadcast" and step == 1
            if bug == "skip" and is_bug:
                return [*found, ("all_gather", 35, False, 0.0)]
            if bug == "op" and is_bug:
                return [*found, ("all_reduce", 29, False, 0.0)]
            found.append((op, line, is_sub, 0.5 if bug == "late" and rank == 1 and op == "broadcast" else 0.0))
            if bug in ("skip", "op") and op == "broadcast" and step == 1:
                return found
    return found


def dump(rank: int, bug: str, world: int = 4) -> dict[str, Any]:
    """One rank's dump, with stacks."""
    entries, seqs = [], {"0": 0, "1": 0}
    for number, (op, line, is_sub, late) in enumerate(calls(rank, bug)):
        group = ("1", "undefined") if is_sub else ("0", "default_pg")
        seqs[group[0]] += 1
        frames = [
            {
                "name": op,
                "filename": "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
                "line": 9,
            },
            {"name": "worker", "filename": "/home/me/train.py", "line": line},
            {"name": "<module>", "filename": "<string>", "line": 1},
        ]
        entries.append(
            {
                "record_id": number, "pg_id": int(group[0]), "process_group": group, "op_id": number,
                "collective_seq_id": seqs[group[0]], "p2p_seq_id": 0, "profiling_name": f"gloo:{op}",
                "time_created_ns": START_NS + number * 10_000_000 + int(late * 1e9), "input_sizes": [[8]],
                "input_dtypes": ["Float"], "output_sizes": [[world, 8] if op == "all_gather" else [8]],
                "output_dtypes": ["Float"], "state": "scheduled", "time_discovered_started_ns": None,
                "time_discovered_completed_ns": None, "retired": True, "timeout_ms": 5000, "is_p2p": False,
                "thread_id": "1", "thread_name": "python", "frames": frames,
            }
        )  # fmt: skip
    members = str(list(range(world))) if rank % 2 else "[]"
    return {
        "version": "2.10",
        "pg_config": {"": {"name": "", "desc": "", "ranks": members}},
        "pg_status": {},
        "comm_lib_version": "",
        "entries": entries,
    }


def write_dumps(folder: Path, bug: str, *, as_json: bool = False, world: int = 4) -> Path:
    """A dump a rank, as pickles with stacks or as JSON without."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(world):
        value = dump(rank, bug, world)
        if as_json:
            for entry in value["entries"]:
                del entry["frames"]
            (folder / f"fr_{rank}.json").write_text(json.dumps(value))
        else:
            (folder / f"fr_{rank}").write_bytes(pickle.dumps(value, protocol=2))
    return folder


def plan_lines(world: int = 4) -> str:
    """The schedule that the program without bugs is expected to follow."""
    lines = []
    for rank in range(world):
        seqs = {False: 0, True: 0}
        for op, line, is_sub, _ in calls(rank, "none"):
            seqs[is_sub] += 1
            ranks = [r for r in range(world) if not is_sub or r % 2 == 0]
            step = {"v": 1, "kind": "collective", "rank": rank, "group": "even" if is_sub else "", "ranks": ranks}
            step |= {"seq": seqs[is_sub], "op": op, "reduce": "sum" if op == "all_reduce" else None, "dtype": "float32"}
            lines.append(json.dumps(step | {"shape": [8], "file": "/home/me/train.py", "line": line, "type": None}))
    return "\n".join(lines) + "\n"
