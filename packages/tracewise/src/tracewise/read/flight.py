"""Flight-recorder dumps: the last collectives of one rank, as JSON or as a pickle of plain values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracewise.read.archive import InputError
from tracewise.read.grammar import parse_json
from tracewise.read.pickled import MAX_BYTES, PickleError, plain_values
from tracewise.read.source import SourceFile

TRAILING_RANK = re.compile(r"(\d{1,9})$")


@dataclass(slots=True)
class FlightDump:
    """One rank's dump, as it stands; what is inside the parts is not checked yet."""

    name: str
    rank: int
    version: str
    has_stacks: bool
    groups: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    entries: list[Any] = field(default_factory=list)


def read_flight(source: SourceFile) -> FlightDump:
    """The dump in a file. InputError if it is none, is damaged, or its name does not end in a rank."""
    rank = rank_of(source)
    if source.size > MAX_BYTES:
        raise InputError(f"{source.name}: {source.size} bytes, more than the limit of {MAX_BYTES} for a dump")
    data = source.path.read_bytes()
    try:
        value = plain_values(data) if data[:1] == b"\x80" else parse_json(data)[0]
    except PickleError as error:
        raise InputError(f"{source.name}: not a readable flight-recorder dump ({error})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source.name}: not a readable flight-recorder dump: broken JSON ({error})") from None
    entries = value.get("entries") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        raise InputError(f"{source.name}: not a flight-recorder dump: it has no list of entries")
    groups, status = value.get("pg_config"), value.get("pg_status")
    return FlightDump(
        source.name,
        rank,
        str(value.get("version", "")),
        any(isinstance(entry, dict) and entry.get("frames") for entry in entries),
        groups if isinstance(groups, dict) else {},
        status if isinstance(status, dict) else {},
        entries,
    )


def rank_of(source: SourceFile) -> int:
    """The rank that the name of a dump ends in. InputError if it ends in none."""
    stem = Path(source.name).name.removesuffix(".json").removesuffix(".pickle").removesuffix(".pkl")
    match = TRAILING_RANK.search(stem)
    if match:
        return int(match[1])
    if source.rank is not None:
        return source.rank
    raise InputError(f"{source.name}: whose dump is it? Its name must end in the rank, as in fr_3 or fr_3.json")
