"""A file of references: what the run on one rank has recorded, made once and read wherever the mesh runs.

Values are read from the file as they are looked at (memory-mapped), so that many ranks of one machine share them. The
file holds plain containers and tensors only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.running.recording import Draw, HeldElements, Key, Record, StepSettings
from shardwise.types.tensor_type import UNTYPED

from .options import VerifyOptions
from .record import RankRun
from .rounded import Moved

SCHEMA = "shardwise.references/4"
DECIDE = ("every", "double", "layouts")
"""Options that decide what is recorded: references are of use only to a run with the same ones."""


@dataclass(frozen=True)
class References:
    """The run on one rank.

    ``options``  of the run that decide what is recorded: ``every``, ``double``, ``layouts``.
    """

    program: str
    options: Mapping[str, bool]
    run: RankRun

    def require(self, options: VerifyOptions) -> None:
        """Errors: SW905 if a run with these options records something else."""
        for name in DECIDE:
            here, there = getattr(options, name), self.options.get(name, False)
            if here != there:
                raise SpmdValueError(
                    f"the references were recorded {'with' if there else 'without'} --{name}, and this run is "
                    f"{'with' if here else 'without'} it",
                    code="SW905",
                )

    @property
    def nbytes(self) -> int:
        """Of all values."""
        records = (entry for entry in self.run.entries if isinstance(entry, Record))
        return sum(record.value.nbytes for record in records if record.value is not None)


def save(references: References, path: str) -> None:
    """Write the file. Errors: SW905 if that is not possible."""
    values: dict[str, torch.Tensor] = {}
    entries = []
    for at, entry in enumerate(references.run.entries):
        if isinstance(entry, Record) and entry.value is not None:
            values[str(at)] = entry.value.contiguous()
        entries.append(_plain(entry))
    whole = {
        "schema": SCHEMA,
        "program": references.program,
        "options": dict(references.options),
        "dtypes": sorted(str(dtype) for dtype in references.run.dtypes),
        "steps": list(references.run.steps),
        "untrained": list(references.run.untrained),
        "scale_free": references.run.scale_free,
        "drawn_together": references.run.drawn_together,
        "settings": [
            [one.optimizer, one.step, _where(one.location), [dict(group) for group in one.values]]
            for one in references.run.settings
        ],
        "tf32": references.run.tf32,
        "spread": _plain_spread(references.run),
        "entries": entries,
        "values": values,
    }
    # A pipe or a device is written to; a file is replaced once all of the new one is there.
    unfinished = f"{path}.part" if os.path.isfile(path) or not os.path.exists(path) else path
    try:
        with open(unfinished, "wb") as file:
            torch.save(whole, file)
        if unfinished != path:
            os.replace(unfinished, path)
    except (OSError, RuntimeError) as error:
        # What torch's writer says of a full disk is about its own book-keeping; what happened is behind it.
        why = error.__context__ if isinstance(error.__context__, OSError) else error
        if unfinished != path:
            with contextlib.suppress(OSError):
                os.remove(unfinished)
        raise SpmdValueError(f"cannot write references to {path}: {why}", code="SW905") from None


def load(path: str) -> References:
    """What ``save`` has written. Errors: SW905 for a file that is not there, or is something else."""
    try:
        whole: Any = torch.load(path, mmap=True, weights_only=True)
    except FileNotFoundError:
        raise SpmdValueError(
            f"there is no file of references {path}",
            code="SW905",
            help=(f"shardwise verify --record {path} SCRIPT, once, on one rank",),
        ) from None
    except Exception as error:
        raise _no_references(path, str(error).partition("\n")[0]) from None
    if not isinstance(whole, dict) or whole.get("schema") != SCHEMA:
        raise _no_references(path, f"it does not say that it is {SCHEMA}")
    values = whole["values"]
    entries = [_entry(plain, values.get(str(at))) for at, plain in enumerate(whole["entries"])]
    dtypes = {getattr(torch, name.removeprefix("torch.")) for name in whole["dtypes"]}
    run = RankRun(entries=entries, dtypes=dtypes, steps=whole["steps"])
    run.untrained, run.scale_free = whole["untrained"], whole["scale_free"]
    run.tf32, spread = whole["tf32"], whole["spread"]
    run.spread = None if spread is None else {entries[at].key: Moved(*moved) for at, moved in spread.items()}
    run.drawn_together = whole.get("drawn_together", 0)
    run.settings = [
        StepSettings(optimizer, step, _location(where), tuple(values))
        for optimizer, step, where, values in whole.get("settings", ())
    ]
    return References(whole["program"], whole["options"], run)


def _no_references(path: str, why: str) -> SpmdValueError:
    return SpmdValueError(
        f"{path} is no file of references: {why}",
        code="SW905",
        help=(f"shardwise verify --record {path} SCRIPT, once, on one rank",),
    )


def _where(location: SourceLocation | None) -> list[object] | None:
    return None if location is None else [getattr(location, one.name) for one in fields(location)]


def _plain(entry: Record | Draw) -> dict[str, object]:
    key = entry.key
    plain: dict[str, object] = {"kind": key.kind, "name": key.name, "nth": key.nth, "location": _where(key.location)}
    if isinstance(entry, Draw):
        told = {"state": entry.state.hex(), "shape": list(entry.shape), "seeded": entry.seeded, "given": entry.given}
        return plain | told
    held = None if entry.held is None else [list(entry.held.shape), [list(one) for one in entry.held.ranges]]
    return plain | {"claim": entry.claim, "missing": entry.missing, "size": entry.size, "held": held}


def _plain_spread(run: RankRun) -> dict[int, list[float]] | None:
    """How far each entry has moved, by its number."""
    if run.spread is None:
        return None
    moved = ((at, run.spread.get(entry.key)) for at, entry in enumerate(run.entries))
    return {at: [one.largest, one.rms] for at, one in moved if one is not None}


def _location(where: list[Any] | None) -> SourceLocation | None:
    return None if where is None else SourceLocation(*where)


def _entry(plain: Mapping[str, Any], value: torch.Tensor | None) -> Record | Draw:
    key = Key(plain["kind"], plain["name"], _location(plain["location"]), plain["nth"])
    if "state" in plain:
        state, shape = bytes.fromhex(plain["state"]), tuple(plain["shape"])
        return Draw(key, state, shape, plain["seeded"], plain.get("given", False))
    shape, ranges = plain["held"] or ((), ())
    held = HeldElements(tuple(shape), tuple((start, stop) for start, stop in ranges)) if plain["held"] else None
    return Record(key, UNTYPED, plain["claim"], value, plain["missing"], None, plain["size"], held)
