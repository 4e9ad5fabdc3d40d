"""The collectives that ranks issue, as lines of JSON: the expected schedule, for ``tracewise ranks --plan``.

{"v":1,"kind":"collective","rank":3,"group":"tp","ranks":[2,3],"seq":17,"op":"all_reduce","reduce":"sum",
 "dtype":"float32","shape":[4,512],"file":"train.py","line":88,"type":"P->I"}

``seq`` counts a rank's calls over the group from 1, as torch's flight recorder does. ``shape`` and ``dtype`` are those
of the first tensor handed in; ``type`` is known of typed collectives. Fields without a value are null.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator

from shardwise.diagnostics.finding import Finding

from .calls import Trace, TracedCall

VERSION = 1


def schedule_lines(traces: Iterable[Trace], findings: Iterable[Finding] = ()) -> Iterator[str]:
    """A line a collective, rank by rank in the order of the program, then a line a finding and rank."""
    for trace in traces:
        counts: Counter[object] = Counter()
        for call in trace.exchanges():
            # Messages are counted by themselves, between the two ranks.
            channel = (call.group, call.kind, call.peer) if call.is_message else call.group
            counts[channel] += 1
            yield _line(_collective(trace.rank, call, counts[channel]))
    for finding in findings:
        yield from (_line(_finding(rank, finding)) for rank in finding.ranks or (None,))


def _collective(rank: int, call: TracedCall, seq: int) -> dict[str, object]:
    location = call.location
    return {
        "v": VERSION,
        "kind": "collective",
        "rank": rank,
        "group": call.group.name,
        "ranks": list(call.group.ranks),
        "seq": seq,
        "op": call.kind,
        "reduce": call.op or None,
        "dtype": call.dtypes[0] if call.dtypes else None,
        "shape": list(call.shapes[0]) if call.shapes else [],
        "file": location.file if location else None,
        "line": location.line if location else None,
        "type": call.transition or None,
    }


def _finding(rank: int | None, finding: Finding) -> dict[str, object]:
    location = finding.location
    return {
        "v": VERSION,
        "kind": "finding",
        "code": finding.code,
        "rank": rank,
        "file": location.file if location else None,
        "line": location.line if location else None,
        "message": finding.message,
        "severity": finding.severity.value,
    }


def _line(value: dict[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"))
