"""What was odd in the input: every oddity has a name, a count, examples, and a verdict on whether it is damage."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

EXAMPLES_KEPT = 3
EXAMPLE_BYTES = 200
NAMES_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Reason:
    """One oddity. ``damage``: something could not be understood, so no verdict may build on its absence."""

    name: str
    damage: bool
    meaning: str


REASONS = {
    reason.name: reason
    for reason in (
        Reason("prefix", False, "every line begins with a launcher's tag; the tags were removed"),
        Reason("not_a_record", True, "a line that is neither the head of a record nor part of a payload"),
        Reason("mended", False, "foreign lines stood inside a payload; without them it fits its checksum"),
        Reason("interleaved", False, "payload lines of several records were mixed; checksums told whose they are"),
        Reason("bad_json", True, "the JSON of a record's head is broken"),
        Reason(
            "python_json", False, "a number or character that only Python's JSON allows (NaN, Infinity, surrogates)"
        ),
        Reason("md5", True, "a payload differs from its checksum"),
        Reason("truncated", True, "the file ends inside a record, as after a crash"),
        Reason("missing_payload", True, "a record announces a payload and has none"),
        Reason("stray_payload", True, "payload lines after a record that announces none"),
        Reason("encoding", True, "bytes that are not UTF-8"),
        Reason("nul", True, "a hole of NUL bytes, as a crashed host leaves it"),
        Reason("no_kind", True, "a record without a kind"),
        Reason("unknown_kind", True, "a kind of record that tracewise does not know"),
        Reason("unknown_field", False, "a field that tracewise does not know; it is shown under 'more'"),
        Reason("bad_field", True, "a field whose value has an unexpected type"),
        Reason("bad_payload", True, "a payload that is not of the announced form"),
        Reason("no_strings", True, "a text that is referred to and never defined"),
        Reason("mixed_ranks", False, "records of several ranks in one file; they were told apart"),
        Reason("duplicate", False, "the same record twice in a row; the second was dropped"),
        Reason("crlf", False, "lines end in CR LF; the CR was removed"),
        Reason("clock_back", False, "the time of a record lies before that of the record above it"),
        Reason("year_guessed", False, "no event tells the year and the zone; they are those of the file's date"),
        Reason("huge", True, "over a limit of size; kept as a reference and not read"),
        Reason("archive_member", True, "a member of an archive that may not be unpacked"),
        Reason("compressed", True, "the compressed file is damaged; it was read up to the damage"),
        Reason("unpaired_end", True, "the end of a time span without its begin"),
    )
}


@dataclass(frozen=True, slots=True)
class Example:
    """Where an oddity was seen, and the first bytes of it."""

    file: str
    line: int
    text: bytes


@dataclass(slots=True)
class Health:
    """Counts by reason with their first examples, and the names that were not known."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Example]] = field(default_factory=dict)
    unknown_kinds: Counter[str] = field(default_factory=Counter)
    unknown_fields: Counter[str] = field(default_factory=Counter)
    bad_fields: Counter[str] = field(default_factory=Counter)
    records: int = 0

    def note(self, reason: str, file: str, line: int, text: bytes = b"") -> None:
        if reason not in REASONS:
            raise KeyError(f"no reason named {reason!r} in REASONS")
        self.counts[reason] += 1
        kept = self.examples.setdefault(reason, [])
        if len(kept) < EXAMPLES_KEPT:
            kept.append(Example(file, line, bytes(text[:EXAMPLE_BYTES])))

    def note_name(self, reason: str, name: str, file: str, line: int, text: bytes = b"") -> None:
        """An oddity that has a name of its own: a kind, or ``kind.field``."""
        names = {"unknown_kind": self.unknown_kinds, "unknown_field": self.unknown_fields, "bad_field": self.bad_fields}
        counter = names[reason]
        if name in counter or len(counter) < NAMES_KEPT:
            counter[name] += 1
        self.note(reason, file, line, text)

    @property
    def damage(self) -> dict[str, int]:
        """The counts that stand for something not understood."""
        return {name: count for name, count in self.counts.items() if REASONS[name].damage}

    @property
    def is_clean(self) -> bool:
        return not self.damage

    def add(self, other: Health) -> None:
        """Take in what another file's reader noted."""
        for mine, theirs in (
            (self.counts, other.counts),
            (self.unknown_kinds, other.unknown_kinds),
            (self.unknown_fields, other.unknown_fields),
            (self.bad_fields, other.bad_fields),
        ):
            mine.update(theirs)
        for reason, examples in other.examples.items():
            kept = self.examples.setdefault(reason, [])
            kept += examples[: EXAMPLES_KEPT - len(kept)]
        self.records += other.records

    def as_json(self) -> dict[str, Any]:
        return {
            "clean": self.is_clean,
            "records": self.records,
            "counts": dict(sorted(self.counts.items())),
            "damage": dict(sorted(self.damage.items())),
            "unknown_kinds": dict(self.unknown_kinds.most_common()),
            "unknown_fields": dict(self.unknown_fields.most_common()),
            "bad_fields": dict(self.bad_fields.most_common()),
            "examples": {
                reason: [{"file": e.file, "line": e.line, "text": e.text.decode("utf-8", "replace")} for e in examples]
                for reason, examples in sorted(self.examples.items())
            },
        }
