"""A run as JSON with a versioned schema, described in ``docs/json.md`` and by ``schemas/check-2.json``; and back again.

Within one version keys are only added, so a reader ignores keys that it does not know. Lines and columns of a source
location, whose key is ``place``, count from 1, columns in characters, as editors do; Python's own columns count bytes
from 0, so the source is looked at on the way there and back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from .codes import Severity
from .coverage import TEXTS, Coverage, OwnData, UnjudgedGradients
from .errors import SpmdValueError
from .excerpt import byte_column, character_column, end_character_column
from .finding import Finding, Unsummed
from .fix import Argument, Edit, Fix, Insert, Leave, Remove, Replace, Rewrite, Within, Wrap
from .printing.printable import safe_str
from .result import HeldBack, HeldBackBy, IgnoreSeen, Noted, RunResult, Stop, StopReason
from .run_record import AssumedLink, CostedCall, MadeMesh, ModuleTypes, NamedLayout, NamedTypes, RunRecord
from .source_location import Hop, Operand, SourceLocation

SCHEMA = "shardwise.check/2"


def to_json(result: RunResult, *, indent: int | None = 2) -> str:
    """The whole run, nothing left out."""
    return json.dumps(to_dict(result), indent=indent, ensure_ascii=False)


def to_dict(result: RunResult) -> dict[str, object]:
    """The run as plain dicts, lists, strings and numbers."""
    stop = result.stopped
    return {
        "schema": SCHEMA,
        "verdict": result.verdict,
        "exit_code": int(result.exit_code),
        "script": result.script,
        "mesh": result.mesh,
        "own_mesh": result.own_mesh,
        "rank": result.rank,
        "ranks": list(result.ranks),
        "collectives": result.collectives,
        "duration_s": round(result.duration_s, 6),
        "errors": len(result.errors),
        "warnings": len(result.warnings),
        "notes": len(result.notes),
        "checked_ops": result.checked_ops,
        "unchecked_ops": result.unchecked_ops,
        "findings": [_finding(finding) for finding in result.findings],
        "no_rule_ops": [{"op": op, "count": count} for op, count in result.no_rule_ops],
        "trusted": _notes(result.trusted),
        "open": list(map(safe_str, result.coverage.open_questions if result.inconclusive else ())),
        "coverage": _coverage(result.coverage),
        "lost": _notes(result.lost),
        "unchecked": _notes(result.unchecked),
        "not_followed": list(map(safe_str, result.not_followed)),
        "held_back": [
            {"by": one.by.value, "reason": safe_str(one.reason), "finding": _finding(one.finding)}
            for one in result.held_back
        ],
        "gone": list(map(safe_str, result.gone)),
        "ignores": [{"place": location_dict(one.location), "ran": one.ran} for one in result.ignores],
        "stopped": None
        if stop is None
        else {"reason": stop.reason.value, "text": safe_str(stop.text), "place": location_dict(stop.location)},
        "record": None if result.record is None else _record(result.record),
    }


def _notes(notes: Iterable[Noted]) -> list[dict[str, object]]:
    return [{"what": safe_str(one.what), "place": location_dict(one.location), "count": one.count} for one in notes]


def from_json(text: str) -> RunResult:
    """The run that ``to_json`` wrote.

    Errors: SW905 if it is not JSON of this schema.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise SpmdValueError(f"not a JSON document: {error}", code="SW905") from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise SpmdValueError(
            f"a document of schema {schema!r} cannot be read, only {SCHEMA!r}",
            code="SW905",
            help=("shardwise check --format json script.py",),
        )
    try:
        return _result(data)
    except (KeyError, TypeError, ValueError) as error:
        raise SpmdValueError(f"a damaged document of schema {SCHEMA!r}: {error!r}", code="SW905") from error


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "configured": None if finding.configured is None else finding.configured.value,
        "message": safe_str(finding.message),
        "place": location_dict(finding.location),
        "op": finding.op,
        "axis": finding.axis,
        "operands": [
            {
                "name": safe_str(operand.name),
                "type": safe_str(operand.type),
                "place": location_dict(operand.location),
                "origin": [
                    {"text": safe_str(hop.text), "place": location_dict(hop.location)} for hop in operand.origin
                ],
            }
            for operand in finding.operands
        ],
        "facts": list(map(safe_str, finding.facts)),
        "help": list(map(safe_str, finding.help)),
        "fixes": [_fix(fix) for fix in finding.fixes],
        "count": finding.count,
        "ranks": list(finding.ranks),
        "modules": list(map(safe_str, finding.modules)),
        "alike": [_finding(one) for one in finding.alike],
        "unsummed": _unsummed(finding.unsummed),
    }


def _unsummed(missing: Unsummed | None) -> dict[str, object] | None:
    if missing is None:
        return None
    return {"arrived": location_dict(missing.arrived), "gradient": safe_str(missing.gradient)}


_EDITS: dict[str, type[Edit]] = {
    "wraps": Wrap,
    "replaces": Replace,
    "rewrites": Rewrite,
    "arguments": Argument,
    "inserts": Insert,
    "removes": Remove,
    "leaves": Leave,
    "contexts": Within,
}
"""The kinds of edits of a fix, by the name of their list."""
_NAMED = {"location": "place"}
"""Fields that documents call by another name."""


def _fix(fix: Fix) -> dict[str, object]:
    lists = {name: [_edit(edit) for edit in fix.edits if isinstance(edit, kind)] for name, kind in _EDITS.items()}
    choice: dict[str, object] = {"choice": True} if fix.choice else {}
    named = {name: some for name, some in lists.items() if some or name == "wraps"}
    return {"help": safe_str(fix.help)} | choice | named


def _edit(edit: Edit) -> dict[str, object]:
    values = ((one.name, getattr(edit, one.name)) for one in fields(edit))
    return {_NAMED.get(name, name): _plain(value) for name, value in values}


def _plain(value: object) -> object:
    if isinstance(value, SourceLocation):
        return location_dict(value)
    return list(value) if isinstance(value, tuple) else value


def location_dict(location: SourceLocation | None) -> dict[str, object] | None:
    """A source location as every document has it: lines and columns from 1."""
    if location is None:
        return None
    return {
        "file": location.file,
        "line": location.line,
        "column": character_column(location),
        "end_line": location.end_line,
        "end_column": end_character_column(location),
        "function": location.function,
    }


def _record(record: RunRecord) -> dict[str, object]:
    return {
        "values": _named_types(record.values),
        "modules": [
            {
                "path": safe_str(one.path),
                "class": safe_str(one.kind),
                "inputs": _named_types(one.inputs),
                "outputs": _named_types(one.outputs),
                "parameters": _named_types(one.parameters),
                "count": one.count,
            }
            for one in record.modules
        ],
        "collectives": [
            {**_without_location(one), "ranks": list(one.ranks), "place": location_dict(one.location)}
            for one in record.collectives
        ],
        "links": [asdict(one) for one in record.links],
        "meshes": [{"axes": _layouts(one.axes), "flattened": _layouts(one.flattened)} for one in record.meshes],
    }


def _layouts(axes: Iterable[NamedLayout]) -> list[dict[str, object]]:
    return [{"name": safe_str(one.name), "sizes": list(one.sizes), "strides": list(one.strides)} for one in axes]


def _without_location(call: CostedCall) -> dict[str, object]:
    return {name: value for name, value in asdict(replace(call, location=None)).items() if name != "location"}


def _named_types(values: Iterable[NamedTypes]) -> list[dict[str, object]]:
    return [
        {
            "name": safe_str(one.name),
            "text": safe_str(one.text),
            "types": [{"type": safe_str(text), "count": count} for text, count in one.types],
            "place": location_dict(one.location),
        }
        for one in values
    ]


def _result(data: Mapping[str, Any]) -> RunResult:
    stopped = data["stopped"]
    coverage = data.get("coverage", {})
    return RunResult(
        findings=tuple(_read_finding(finding) for finding in data["findings"]),
        checked_ops=data["checked_ops"],
        unchecked_ops=data["unchecked_ops"],
        no_rule_ops=tuple((entry["op"], entry["count"]) for entry in data["no_rule_ops"]),
        trusted=_read_notes(data["trusted"]),
        lost=_read_notes(data.get("lost", ())),
        unchecked=_read_notes(data.get("unchecked", ())),
        not_followed=tuple(data.get("not_followed", ())),
        stopped=stopped and Stop(StopReason(stopped["reason"]), stopped["text"], _read_location(stopped["place"])),
        duration_s=data["duration_s"],
        mesh=data["mesh"],
        own_mesh=data.get("own_mesh", ""),
        script=data["script"],
        rank=data["rank"],
        ranks=tuple(data.get("ranks", ())),
        collectives=data.get("collectives", 0),
        coverage=replace(
            Coverage(**{**coverage, **{name: tuple(coverage.get(name, ())) for name in TEXTS}}),
            own_data=tuple(
                OwnData(
                    one["what"],
                    _read_location(one["place"]),
                    tuple(map(tuple, one["groups"])),
                    one["said"],
                    one["digest"],
                    tuple(one["alike"]),
                    tuple(one.get("apart", ())),
                    one.get("of_operator", False),
                )
                for one in coverage.get("own_data", ())
            ),
            unjudged_gradients=tuple(UnjudgedGradients(**one) for one in coverage.get("unjudged_gradients", ())),
        ),
        record=None if data.get("record") is None else _read_record(data["record"]),
        ignores=tuple(_read_ignore(one) for one in data.get("ignores", ())),
        held_back=tuple(
            HeldBack(_read_finding(one["finding"]), HeldBackBy(one["by"]), one["reason"])
            for one in data.get("held_back", ())
        ),
        gone=tuple(data.get("gone", ())),
    )


def _coverage(coverage: Coverage) -> dict[str, object]:
    places = [location_dict(one.location) for one in coverage.own_data]
    said = asdict(replace(coverage, own_data=tuple(replace(one, location=None) for one in coverage.own_data)))
    for one, place in zip(said["own_data"], places, strict=True):
        del one["location"]
        one["place"] = place
    return said


def _read_ignore(data: Mapping[str, Any]) -> IgnoreSeen:
    location = _read_location(data["place"])
    if location is None:
        raise ValueError("an ignore comment without a place")
    return IgnoreSeen(location, data["ran"])


def _read_notes(entries: Iterable[Mapping[str, Any]]) -> tuple[Noted, ...]:
    return tuple(Noted(entry["what"], _read_location(entry["place"]), entry["count"]) for entry in entries)


def _read_finding(data: Mapping[str, Any]) -> Finding:
    return Finding(
        code=data["code"],
        message=data["message"],
        location=_read_location(data["place"]),
        op=data["op"],
        axis=data["axis"],
        operands=tuple(_read_operand(operand) for operand in data["operands"]),
        facts=tuple(data["facts"]),
        help=tuple(data["help"]),
        fixes=tuple(map(_read_fix, data.get("fixes", ()))),
        count=data["count"],
        ranks=tuple(data.get("ranks", ())),
        modules=tuple(data.get("modules", ())),
        alike=tuple(_read_finding(one) for one in data.get("alike", ())),
        unsummed=_read_unsummed(data.get("unsummed")),
        configured=None if data.get("configured") is None else Severity(data["configured"]),
    )


def _read_unsummed(data: object) -> Unsummed | None:
    arrived = _read_location(data["arrived"]) if isinstance(data, dict) else None
    return Unsummed(arrived, data["gradient"]) if isinstance(data, dict) and arrived is not None else None


def _read_fix(data: Mapping[str, Any]) -> Fix:
    edits = (_read_edit(kind, one) for name, kind in _EDITS.items() for one in data.get(name, ()))
    return Fix(data["help"], tuple(edits), data.get("choice", False))


def _read_edit(kind: type[Edit], data: Mapping[str, Any]) -> Edit:
    names = ((one.name, _NAMED.get(one.name, one.name)) for one in fields(kind))
    return kind(**{name: _read_value(data[said]) for name, said in names if said in data})


def _read_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _read_location(value)
    return tuple(value) if isinstance(value, list) else value


def _read_operand(data: Mapping[str, Any]) -> Operand:
    origin = []
    for hop in data["origin"]:
        location = _read_location(hop["place"])
        if location is None:
            raise ValueError("a hop without a location")
        origin.append(Hop(hop["text"], location))
    return Operand(data["name"], data["type"], _read_location(data["place"]), tuple(origin))


def _read_record(data: Mapping[str, Any]) -> RunRecord:
    modules = [
        ModuleTypes(
            one["path"],
            one["class"],
            _read_types(one["inputs"]),
            _read_types(one["outputs"]),
            _read_types(one["parameters"]),
            one["count"],
        )
        for one in data["modules"]
    ]
    calls = [
        CostedCall(
            **{name: value for name, value in one.items() if name not in ("place", "ranks")},
            ranks=tuple(one["ranks"]),
            location=_read_location(one["place"]),
        )
        for one in data["collectives"]
    ]
    links = tuple(AssumedLink(**one) for one in data["links"])
    meshes = [MadeMesh(_read_layouts(one["axes"]), _read_layouts(one["flattened"])) for one in data.get("meshes", ())]
    return RunRecord(_read_types(data["values"]), tuple(modules), tuple(calls), links, tuple(meshes))


def _read_layouts(axes: Iterable[Mapping[str, Any]]) -> tuple[NamedLayout, ...]:
    return tuple(NamedLayout(one["name"], tuple(one["sizes"]), tuple(one["strides"])) for one in axes)


def _read_types(entries: Iterable[Mapping[str, Any]]) -> tuple[NamedTypes, ...]:
    return tuple(
        NamedTypes(
            one["name"],
            tuple((each["type"], each["count"]) for each in one["types"]),
            _read_location(one["place"]),
        )
        for one in entries
    )


def _read_location(data: Mapping[str, Any] | None) -> SourceLocation | None:
    if data is None:
        return None
    file, line, end_line = data["file"], data["line"], data["end_line"]
    return SourceLocation(
        file,
        line,
        end_line,
        byte_column(file, line, data["column"]),
        byte_column(file, end_line or line, data["end_column"]),
        data.get("function", ""),
    )
