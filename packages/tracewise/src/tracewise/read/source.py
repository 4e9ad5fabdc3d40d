"""What a PATH of the command line stands for: plain files on disk, each with its kind and the name it is shown by.

A path may be a file, a folder, a glob, an archive or ``-``. What a file is, is decided by its content.
"""

from __future__ import annotations

import glob
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tracewise.read.archive import InputError, Unpacker, spool
from tracewise.read.grammar import HEAD
from tracewise.read.health import Health
from tracewise.read.prefix import HEAD_START, find_prefix, without_prefix

SNIFF_BYTES = 1 << 20
REPORT_MARKER = ".tracewise"
RANK_IN_NAME = re.compile(r"rank[_-]?(\d{1,9})")
ROTATION = re.compile(r"^(?P<stem>.+?)\.(?P<number>\d{1,4})$")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One plain file. ``kind`` is one of trace, flight, profiler, plan, other; ``rank`` is what name or tag tells."""

    path: Path
    name: str
    kind: str
    rank: int | None
    folder: str
    size: int


@dataclass(slots=True)
class Sources:
    """The files that paths stand for. A context manager: unpacked copies live until it is left."""

    health: Health = field(default_factory=Health)
    files: list[SourceFile] = field(default_factory=list)
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def scratch(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="tracewise-")
        return Path(self._folder.name)

    def of_kind(self, kind: str) -> list[SourceFile]:
        return [file for file in self.files if file.kind == kind]


def open_sources(paths: Iterable[str | Path]) -> Sources:
    """The files behind ``paths``. InputError if a path does not exist or cannot be read."""
    sources = Sources()
    unpacker: Unpacker | None = None
    plain: list[tuple[str, str, Path]] = []
    for given in paths:
        for path, name in _expanded(str(given), sources):
            try:
                if not _is_packed(path):
                    plain.append((str(Path(name).parent), name, path))
                    continue
                if unpacker is None:
                    (sources.scratch / "unpacked").mkdir()
                    unpacker = Unpacker(sources.scratch / "unpacked", sources.health)
                plain += ((str(Path(inner).parent), inner, copy) for inner, copy in unpacker.plain(path, name))
            except OSError as error:
                raise InputError(
                    f"{name}: cannot be read ({error.strerror}); check the path and its permissions"
                ) from error
    for folder, name, path in _joined(plain, sources):
        sources.files += _typed(folder, name, path, sources)
    return sources


def _expanded(given: str, sources: Sources) -> Iterator[tuple[Path, str]]:
    """Files with the names they are shown by."""
    if given == "-":
        yield spool(sys.stdin.buffer, sources.scratch / "stdin"), "standard input"
        return
    path = Path(given)
    if path.is_dir():
        # Reports that tracewise wrote hold tables and timelines that would pass for traces.
        reports = {marker.parent for marker in path.rglob(REPORT_MARKER)} - {path}
        found = sorted(
            p
            for p in path.rglob("*")
            if p.is_file() and not p.is_symlink() and p.stat().st_size and reports.isdisjoint(p.parents)
        )
        yield from ((p, str(p)) for p in found)
    elif path.is_file():
        yield path, given
    elif path.is_fifo():  # as a shell makes for <(zcat trace.log.gz)
        with path.open("rb") as stream:
            yield spool(stream, sources.scratch / f"pipe-{len(list(sources.scratch.iterdir()))}"), given
    elif matches := sorted(match for match in glob.glob(given, recursive=True) if match != given):
        for match in matches:
            yield from _expanded(match, sources)
    elif path.exists():
        raise InputError(f"{given}: is neither a file nor a folder; give a log, a folder of logs, or an archive")
    elif path.is_symlink():
        raise InputError(f"{given}: is a link that leads nowhere; give a log, a folder of logs, or an archive")
    else:
        raise InputError(
            f"{given}: no such file or folder; give a log, a folder of logs, an archive, or - for standard input"
        )


def _is_packed(path: Path) -> bool:
    with path.open("rb") as file:
        magic = file.read(8)
        file.seek(257)
        is_tar = file.read(5) == b"ustar"
    return is_tar or magic.startswith((b"PK\x03\x04", b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"))


def _joined(plain: list[tuple[str, str, Path]], sources: Sources) -> Iterator[tuple[str, str, Path]]:
    """Rotated logs (``x.log.2``, ``x.log.1``, ``x.log``) as one file, oldest first; others as they are."""
    rotated: dict[tuple[str, str], list[tuple[int, Path]]] = {}
    for folder, name, path in plain:
        match = ROTATION.match(name)
        stem, number = (match["stem"], int(match["number"])) if match else (name, 0)
        rotated.setdefault((folder, stem), []).append((number, path))
    for (folder, name), parts in rotated.items():
        if len(parts) == 1 or not all(_kind_of(part) == "trace" for _, part in parts):
            yield from ((folder, name if not n else f"{name}.{n}", part) for n, part in parts)
            continue
        (sources.scratch / "joined").mkdir(exist_ok=True)
        target = sources.scratch / "joined" / f"{len(list((sources.scratch / 'joined').iterdir()))}.log"
        with target.open("xb") as whole:
            for _, part in sorted(parts, reverse=True):
                with part.open("rb") as file:
                    while block := file.read(1 << 20):
                        whole.write(block)
        yield folder, name, target


def _typed(folder: str, name: str, path: Path, sources: Sources) -> Iterator[SourceFile]:
    kind = _kind_of(path)
    match = RANK_IN_NAME.search(Path(name).name)
    rank = int(match[1]) if match else None
    pattern = find_prefix(path) if kind == "trace" else None
    if pattern is None:
        yield SourceFile(path, name, kind, rank, folder, path.stat().st_size)
        return
    sources.health.note("prefix", name, 1, pattern.pattern)
    target = sources.scratch / f"prefix-{len(sources.files)}"
    target.mkdir()
    for tag_rank, part in without_prefix(path, pattern, target):
        shown = name if tag_rank is None else f"{name} (tag {tag_rank})"
        yield SourceFile(part, shown, kind, rank if tag_rank is None else tag_rank, folder, part.stat().st_size)


def _kind_of(path: Path) -> str:
    """What a file is, by its first bytes."""
    with path.open("rb") as file:
        start = file.read(SNIFF_BYTES)
    if HEAD.search(start) or HEAD_START.search(start):
        return "trace"
    if start[:1] == b"\x80" and b"entries" in start:
        return "flight"
    text = start.lstrip()
    if text.startswith(b"{"):
        if b'"traceEvents"' in start or b'"schemaVersion"' in start:
            return "profiler"
        if b'"pg_config"' in start or b'"entries"' in start:
            return "flight"
        first = text.split(b"\n", 1)[0]
        if b'"kind"' in first and (b'"collective"' in first or b'"finding"' in first):
            return "plan"
    return "other"
