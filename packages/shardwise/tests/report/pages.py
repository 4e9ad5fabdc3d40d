"""Runs for reports: some whose every text would do harm if it were written raw, and large ones."""

from __future__ import annotations

import linecache
from dataclasses import dataclass

from shardwise.diagnostics.coverage import Coverage, OwnData, UnjudgedGradients
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.result import Noted, RunResult, Stop, StopReason
from shardwise.diagnostics.run_record import (
    AssumedLink,
    CostedCall,
    MadeMesh,
    ModuleTypes,
    NamedLayout,
    NamedTypes,
    RunRecord,
)
from shardwise.diagnostics.source_location import SourceLocation

ATTACKS = (
    "<script>window.hurt=1</script>",
    "</script><script>window.hurt=1</script>",
    "</style></title></textarea></pre><img src=x onerror=window.hurt=1>",
    "\"><svg onload=window.hurt=1>",
    "' onmouseover='window.hurt=1' x='",
    "javascript:window.hurt=1",
    "{{ 7 * 7 }}{% raw %}${7*7}",
    "\u202egnp.exe\u2066",
    "\u2028\u2029\x00\x1b[31m\ud800",
    "<!--",
    "n" * 3000,
)  # fmt: skip


@dataclass(frozen=True)
class Hostile:
    """A run of which every text is an attack; ``file`` is in ``linecache``."""

    result: RunResult
    file: str


def hostile(attack: str) -> Hostile:
    """Every text of the run is ``attack``, also each line of its source."""
    file = f"/project/{attack[:40]}.py".replace("\0", "")
    linecache.cache[file] = (1, None, [f"{attack}\n"] * 20, file)
    at = SourceLocation(file, 3, 3, 0, 5, attack)
    values = NamedTypes(attack, ((attack, 2), (f"{attack}2", 1)), at)
    unplaced = NamedTypes(attack, ((attack, 1),))
    record = RunRecord(
        (values,),
        (ModuleTypes(attack, attack, (unplaced,), (unplaced,), (unplaced,)),),
        (CostedCall(attack, attack, (0, 1), 0, attack, attack, attack, 2, 1000, 1e-5, at),),
        (AssumedLink(attack, 1e-6, 1e9, attack),),
        (MadeMesh((NamedLayout(attack, (2,), (1,)),), (NamedLayout(attack, (2,), (1,)),)),),
    )
    noted = (Noted(attack, at, 2), Noted(attack))
    finding = Finding("SW112", attack, at, attack, attack, (), (attack,), (attack,), count=2)
    stop = Stop(StopReason.SCRIPT_ERROR, attack, at)
    result = RunResult(
        (finding,),
        10,
        2,
        ((attack, 2),),
        noted,
        noted,
        noted,
        (attack,),
        stop,
        1.0,
        "dp=2, tp=4",
        attack,
        0,
        coverage=Coverage(
            1,
            2,
            3,
            4,
            (attack,),
            (OwnData(attack, at, ((0, 1), (0, 2)), False, attack, (0, 1)),),
            (UnjudgedGradients(attack, 1, 2),),
        ),
        record=record,
    )
    return Hostile(result, file)


def large(layers: int) -> RunResult:
    """A run of a model with so many layers, two modules in each, and its collectives."""
    file = "/project/model.py"
    linecache.cache[file] = (1, None, [f"    line_{at} = value_{at}\n" for at in range(20_000)], file)
    modules = [ModuleTypes("Model", "Model")]
    calls = []
    x = (NamedTypes("x", (("f32[2@dp, 8, 16] {tp: I}", 2),)),)
    for layer in range(layers):
        for name in ("", ".attention", ".mlp"):
            kind = name.removeprefix(".").title() or "Layer"
            modules.append(ModuleTypes(f"Model.layers.{layer}{name}", kind, x, x, x, 2))
        for step in range(8):
            line = SourceLocation(file, 100 + step, 100 + step, 4, 8)
            calls.append(CostedCall("all_reduce", "tp", (0, 1), 0, "f32[2, 8, 16]", "sum", "P->I", 2, 1024, 1e-5, line))
    values = [
        NamedTypes(f"line_{at}", (("f32[2, 8, 16] {dp: V, tp: R}", layers),), SourceLocation(file, at, at, 4, 10))
        for at in range(100, 20_000, 50)
    ]
    record = RunRecord(tuple(values), tuple(modules), tuple(calls))
    return RunResult(checked_ops=9, mesh="dp=2, tp=4", script="model.py", rank=0, record=record)
