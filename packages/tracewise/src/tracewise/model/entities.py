"""The values of the model: runs, ranks, compilations and what is known about each. No payload text is kept.

A ``Record`` says where its payload lies; ``Payloads`` reads it from there when somebody asks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from tracewise.model.ids import CompileId
from tracewise.read.health import Health

TORCH_FOLDERS = ("site-packages/torch/", "dist-packages/torch/", "<frozen ")
PYTHON_FOLDER = re.compile(r"/lib/python3\.\d+/(?!site-packages/|dist-packages/)")


class Frame(NamedTuple):
    """One frame of a Python stack; ``text`` is the source line, often empty."""

    file: str
    line: int
    function: str
    text: str

    @property
    def is_torch(self) -> bool:
        return any(folder in self.file for folder in TORCH_FOLDERS) or self.file.startswith("torch/")

    @property
    def is_library(self) -> bool:
        """Whether the file is torch's or Python's own: nothing that its user would change."""
        return self.is_torch or PYTHON_FOLDER.search(self.file) is not None

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


Stack = tuple[Frame, ...]  # outermost first


def innermost_user_frame(stack: Stack) -> Frame | None:
    """The frame of the user's code nearest to the event."""
    return next((frame for frame in reversed(stack) if not frame.is_library), None)


@dataclass(slots=True)
class LogFile:
    """One file of a run; ``damaged`` says whether something in it was not understood."""

    number: int
    path: str
    name: str
    rank: int | None
    size: int
    records: int = 0
    pids: set[int] = field(default_factory=set)
    started_us: int = 0
    ended_us: int = 0
    offset_us: int = 0
    health: Health = field(default_factory=Health)


@dataclass(slots=True)
class Record:
    """One record that is not an event of the timeline. ``name`` is the artifact's, or that of the dumped file."""

    file: int
    line: int
    offset: int
    length: int
    payload_offset: int
    payload_length: int
    time_us: int
    kind: str
    name: str
    id: CompileId
    md5: str
    flags: tuple[str, ...] = ()
    encoding: str = ""

    @property
    def title(self) -> str:
        """The artifact's name, or the kind for all others."""
        return self.name if self.kind == "artifact" and self.name else self.kind

    @property
    def has_payload(self) -> bool:
        return self.payload_length > 0

    @property
    def is_damaged(self) -> bool:
        return any(flag in ("md5", "truncated", "huge", "missing_payload") for flag in self.flags)


@dataclass(slots=True)
class Span:
    """A stretch of time in a compilation. ``dur_us`` is ``None`` if its end was never written."""

    name: str
    id: CompileId
    start_us: float
    dur_us: float | None = None
    parent: Span | None = field(default=None, repr=False)
    child_us: float = 0.0
    args: dict[str, Any] | None = None

    @property
    def self_us(self) -> float | None:
        return None if self.dur_us is None else max(self.dur_us - self.child_us, 0.0)

    @property
    def depth(self) -> int:
        count, above = 0, self.parent
        while above is not None:
            count, above = count + 1, above.parent
        return count


@dataclass(slots=True)
class Instant:
    """A point in time on the timeline."""

    name: str
    id: CompileId
    time_us: float


@dataclass(slots=True)
class CacheEvent:
    """One look into a cache. ``state`` is hit, miss, bypass or disabled; the record has the key's components."""

    cache: str
    state: str
    key: str
    reason: str
    saved_us: float | None
    record: Record


@dataclass(slots=True)
class BreakText:
    """What torch wrote about a graph break or an error, as it stands."""

    kind: str
    text: str
    attempt: int
    record: Record


@dataclass(slots=True)
class Symbol:
    """A symbolic size. ``hint`` is the value seen; empty if unbacked."""

    name: str
    hint: str
    range: str
    sources: list[str]
    is_backed: bool
    stack: Stack
    record: Record


@dataclass(slots=True)
class SymbolGuard:
    """A condition on symbols. ``kind`` is guard or specialization; ``locals`` and ``sources`` only in detailed logs."""

    kind: str
    expression: str
    value: str
    reason: str
    prefix: str
    sources: dict[str, list[str]]
    locals: dict[str, Any]
    node_id: int | None
    stack: Stack
    record: Record


@dataclass(slots=True)
class ExportFact:
    """Something that speaks against an export: ``kind`` is the record's kind."""

    kind: str
    subject: str
    result: str
    reason: str
    node_id: int | None
    sources: dict[str, list[str]]
    locals: dict[str, Any]
    stack: Stack
    record: Record


@dataclass(slots=True)
class Expression:
    """How a symbolic expression came to be."""

    result: str
    result_id: int
    method: str
    arguments: list[str]
    argument_ids: list[int]
    stack: Stack


@dataclass(slots=True)
class Attempt:
    """One chapter of a compilation: analysis starts anew after a graph break."""

    number: int
    started_us: int
    records: list[Record] = field(default_factory=list)
    stack: Stack = ()


@dataclass
class Compilation:
    """All that happened under one compile id of one process, whose ``Rank.label`` is ``process``.

    ``metrics`` holds the last attempt's numbers; its configs are texts in ``Run.configs``, here by their digests.
    """

    id: CompileId
    rank: int | None
    file: int
    process: str = ""
    attempts: dict[int, Attempt] = field(default_factory=dict)
    stack: Stack = ()
    metrics: dict[str, Any] = field(default_factory=dict)
    backward_metrics: dict[str, Any] = field(default_factory=dict)
    metrics_record: Record | None = None
    restart_reasons: list[str] = field(default_factory=list)
    recompile_reasons: list[str] = field(default_factory=list)
    breaks: list[BreakText] = field(default_factory=list)
    caches: list[CacheEvent] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)
    guards: list[SymbolGuard] = field(default_factory=list)
    inputs: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    collectives: list[tuple[Record, list[str]]] = field(default_factory=list)
    started_us: int = 0
    ended_us: int = 0
    span_us: float = 0.0
    open_spans: int = 0
    recompile_limit: int = 0
    configs: dict[str, str] = field(default_factory=dict)
    first_of_frame: Compilation | None = None

    @property
    def records(self) -> list[Record]:
        """The records of all attempts, in the order of the file."""
        return sorted((r for a in self.attempts.values() for r in a.records), key=lambda r: (r.file, r.offset))

    @property
    def status(self) -> str:
        """failed, unfinished, empty, restarted or ok; ``outside`` for what has no compile id."""
        if self.id.is_empty:
            return "outside"
        if not self.metrics:
            # Export and compiled autograd write no metrics; what died in the middle has left spans open.
            return "unfinished" if self.open_spans or not self.span_us else "ok"
        if self.metrics.get("fail_type"):
            return "failed"
        if self.restart_reasons:
            return "restarted"
        return "ok" if self.metrics.get("graph_op_count") or self.id.frame is None else "empty"

    @property
    def function(self) -> str:
        """The name of the compiled function, from the metrics or the stack."""
        name = self.metrics.get("co_name")
        if isinstance(name, str) and name:
            return name
        if self.id.frame is None and self.id.autograd is not None:
            return "compiled autograd"
        if self.stack:
            return self.stack[-1].function
        return self.first_of_frame.function if self.first_of_frame else ""

    @property
    def site(self) -> Frame | None:
        """Where the compiled function begins, or where the user's code calls it if it is torch's own."""
        file, line = self.metrics.get("co_filename"), self.metrics.get("co_firstlineno")
        if isinstance(file, str) and type(line) is int:
            text = next((f.text for f in self.stack if f.file == file and f.line == line), "")
            site = Frame(file, line, self.function, text)
            return site if not site.is_library else innermost_user_frame(self.stack) or site
        site_of_stack = innermost_user_frame(self.stack)
        if site_of_stack is None and self.first_of_frame is not None:
            return self.first_of_frame.site
        return site_of_stack

    @property
    def duration_us(self) -> float | None:
        """Compile time: what torch says, else what the spans say."""
        for key, unit in (("duration_us", 1.0), ("entire_frame_compile_time_s", 1e6)):
            value = self.metrics.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15:
                return float(value) * unit
        return self.span_us or None


@dataclass
class Rank:
    """One process of a run; ``number`` is ``None`` outside of torch.distributed, where pids tell processes apart."""

    number: int | None
    files: list[int] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    compilations: dict[CompileId, Compilation] = field(default_factory=dict)
    outside: Compilation = field(default_factory=lambda: Compilation(CompileId(), None, 0))
    spans: list[Span] = field(default_factory=list)
    instants: list[Instant] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The form for file names and links."""
        if self.number is not None:
            return str(self.number)
        return f"pid{self.pids[0]}" if self.pids else "pid"


@dataclass
class Run:
    """The files of one start of a program, read."""

    number: int
    folder: str
    files: list[LogFile] = field(default_factory=list)
    ranks: list[Rank] = field(default_factory=list)
    health: Health = field(default_factory=Health)
    torch_version: str = ""
    torch_commit: str = ""
    started_us: int = 0
    ended_us: int = 0
    offset_us: int = 0
    export_facts: list[ExportFact] = field(default_factory=list)
    expressions: dict[int, Expression] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)
    export_records: list[Record] = field(default_factory=list)

    @property
    def compilations(self) -> list[Compilation]:
        """All compilations of all ranks, by rank and start."""
        return [c for rank in self.ranks for c in sorted(rank.compilations.values(), key=lambda c: c.started_us)]

    @property
    def is_distributed(self) -> bool:
        return sum(rank.number is not None for rank in self.ranks) > 1

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @cached_property
    def first_with_configs(self) -> Compilation | None:
        """The compilation that others' configs are compared with."""
        return next((unit for unit in self.compilations if unit.configs), None)

    @cached_property
    def by_key(self) -> dict[tuple[str, CompileId], Compilation]:
        """Compilations by process (``Rank.label``) and id."""
        return {(c.process, c.id): c for c in self.compilations}
