"""Does generated code issue the collectives that inductor scheduled, and wait for each?"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from tracewise.model.entities import Compilation, Run
from tracewise.model.payloads import Payloads

CODE_BYTES = 32 << 20
# What only looks like a call: texts (kernels are C++ or Triton in them) and comments.
QUOTED = re.compile(r"'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|#[^\n]*", re.DOTALL)
CALL = re.compile(r"torch\.ops\._c10d_functional\.(?P<op>\w+)(?:\.\w+)?\(")


@dataclass(frozen=True, slots=True)
class Parity:
    """``offset``: calls in the code minus calls in the schedule; ``missing_waits``: collectives nobody waits for."""

    unit: Compilation
    offset: int
    missing_waits: int


def find_parity(run: Run, payloads: Payloads) -> list[Parity]:
    """One entry for each compilation that has a schedule and code."""
    found = []
    for unit in run.compilations:
        codes = [record for record in unit.records if record.kind == "inductor_output_code" and record.has_payload]
        if not any(schedule for _, schedule in unit.collectives) or not codes:
            continue
        scheduled = Counter(_name(op) for _, schedule in unit.collectives for op in schedule)
        called: Counter[str] = Counter()
        for record in codes:
            called += collective_calls(payloads.text(record, CODE_BYTES))
        waits = called.pop("wait_tensor", 0)
        scheduled.pop("wait_tensor", None)
        found.append(Parity(unit, called.total() - scheduled.total(), max(called.total() - waits, 0)))
    return found


def collective_calls(code: str) -> Counter[str]:
    """Calls of functional collectives by name, without those in comments and texts."""
    return Counter(match["op"] for match in CALL.finditer(QUOTED.sub("", code)))


def _name(op: str) -> str:
    return op.removeprefix("torch.ops.").removeprefix("_c10d_functional.").split(".")[0]
