"""How long does the command take? Starting it, and checking a GPT with the widths of a 405-billion-parameter Llama."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from rows import Row, side_by_side

CHECK = "`shardwise check examples/gpt`, widths of Llama 405B, dp=2 tp=8, one step"
SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "gpt" / "train.py"


def measure(quick: bool = False) -> list[Row]:
    """Start-up in milliseconds, checks in seconds and gigabytes."""
    rows = []
    starts = {
        "`import shardwise`": ["-c", "import shardwise"],
        "`shardwise explain SW112`": ["-m", "shardwise", "explain", "SW112"],
        "`import torch`": ["-c", "import torch"],
    }
    functions = [
        lambda arguments=arguments: run(arguments)[0] * 1e3 for arguments in (["-c", "pass"], *starts.values())
    ]
    medians, ratios = side_by_side(functions, 1 if quick else 7)
    for what, median, ratio in zip(starts, medians[1:], ratios[1:], strict=True):
        rows.append(Row("Starting, over an empty Python", what, "ms", medians[0], median, ratio))
    for layers in (1,) if quick else (4, 126):
        taken_s, peak_gb = run(check(layers))
        goals = ("60 s", "4 GB") if layers == 126 else ("", "")
        rows.append(Row(CHECK, f"{layers} layers, time", "s", None, taken_s, target=goals[0]))
        rows.append(Row(CHECK, f"{layers} layers, peak memory", "GB", None, peak_gb, target=goals[1]))
    return rows


def check(layers: int) -> list[str]:
    command = ["-m", "shardwise", "check", str(SCRIPT), "--mesh", "dp=2,tp=8", "--"]
    return [*command, "--preset", "llama-405b", "--layers", str(layers), "--device", "meta", "--steps", "1"]


def run(arguments: list[str]) -> tuple[float, float]:
    """Seconds and peak gigabytes of one Python process, which must succeed."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"python {' '.join(arguments)} exits with {process.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss / (1 << 20)
