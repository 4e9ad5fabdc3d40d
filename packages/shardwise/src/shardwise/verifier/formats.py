"""How does a program read the verdict? JSON with a versioned schema, described in ``docs/json.md`` and by
``diagnostics/schemas/verify-2.json``.

Within one version keys are only added, so a reader ignores keys that it does not know.
"""

from __future__ import annotations

import json
import math

from shardwise.diagnostics.formats import location_dict
from shardwise.diagnostics.formats import to_dict as run_to_dict
from shardwise.diagnostics.printing.printable import safe_str
from shardwise.interop.running.recording import Key

from .distance.difference import Difference
from .distance.numbers import FirstInBackward, ValueDisagreement
from .text import Verdict

SCHEMA = "shardwise.verify/2"


def to_json(verdict: Verdict, *, indent: int | None = 2) -> str:
    """The whole verdict, nothing left out."""
    return json.dumps(to_dict(verdict), indent=indent, ensure_ascii=False, allow_nan=False)


def to_dict(verdict: Verdict) -> dict[str, object]:
    """The verdict as plain dicts, lists, strings and numbers."""
    numbers, failure = verdict.numbers, verdict.failure
    return {
        "schema": SCHEMA,
        "program": safe_str(verdict.program),
        "mesh": verdict.mesh,
        "exit_code": int(verdict.exit_code),
        "duration_s": round(verdict.duration_s, 6),
        "failure": None
        if failure is None
        else {
            "where": failure.where,
            "text": safe_str(failure.text),
            "place": location_dict(failure.location),
            "details": failure.details,
        },
        "types": run_to_dict(verdict.types),
        "numbers": {
            "equal": numbers.equal,
            "replicas": numbers.replicas,
            "origin": None if numbers.origin is None else _disagreement(numbers.origin),
            "module": None if numbers.module is None else _disagreement(numbers.module),
            "backward": None if numbers.backward is None else _backward(numbers.backward),
            "disagreements": [_disagreement(one) for one in numbers.disagreements],
            "not_compared": [
                {**_key(one.key), "claim": safe_str(one.claim), "reason": safe_str(one.reason)}
                for one in numbers.not_compared
            ],
            "open": [safe_str(one) for one in numbers.open_questions],
            "notes": [safe_str(note) for note in numbers.notes],
            "parting": None
            if numbers.parting is None
            else {**_key(numbers.parting.key), "reason": safe_str(numbers.parting.reason)},
        },
    }


def _key(key: Key) -> dict[str, object]:
    return {
        "kind": key.kind,
        "name": safe_str(key.name),
        "number": key.nth,
        "place": location_dict(key.location),
    }


def _disagreement(wrong: ValueDisagreement) -> dict[str, object]:
    return {
        **_key(wrong.key),
        "claim": safe_str(wrong.claim),
        "against": wrong.against.value,
        "said": safe_str(wrong.said),
        "rank": wrong.rank,
        "ranks": list(wrong.ranks),
        "index": list(wrong.index),
        "whole_index": list(wrong.whole_index),
        "hint": wrong.hint,
        "used": location_dict(wrong.use),
        "difference": None if wrong.difference is None else _difference(wrong.difference),
    }


def _backward(found: FirstInBackward) -> dict[str, object]:
    return {**_disagreement(found.wrong), "used": location_dict(found.use), "right": [safe_str(x) for x in found.right]}


def _difference(found: Difference) -> dict[str, object]:
    return {
        "expected": _number(found.expected),
        "actual": _number(found.actual),
        "count": found.count,
        "total": found.total,
        "largest": _number(found.largest),
        "scale": found.scale,
        "factor": found.factor,
    }


def _number(value: float | complex | bool) -> object:
    """JSON has neither complex numbers nor those that are none: these are strings."""
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value
