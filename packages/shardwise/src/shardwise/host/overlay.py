"""Files of a program with other text than the disk has: how a fix is tried before it is written.

``SHARDWISE_OVERLAY`` in the environment names a JSON file, {path: text}. It holds for the script, for the modules that
it imports, and for every process that runs it; ``overlaid`` does so in this process alone, and those that it forks.
"""

from __future__ import annotations

import contextlib
import functools
import json
import linecache
import os
import sysconfig
from collections.abc import Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from shardwise.diagnostics.source_location import lines_of
from shardwise.rewriting.file_edit import encoded

from .attribute_patch import patched
from .forking import scratch_folder
from .number_calls import carrying_numbers, has_number_calls
from .reached_comments import active

VARIABLE = "SHARDWISE_OVERLAY"
_LIBRARIES = tuple({path + os.sep for kind in ("stdlib", "purelib", "platlib") if (path := sysconfig.get_path(kind))})
"""Folders of files that are nobody's program."""
_given: dict[str, str] = {}
"""The texts of this process alone, by real path."""
_ran: set[str] = set()
"""Files that ran in this process with other text than the disk has."""


def is_of_library(file: str) -> bool:
    """Is a file one of Python, or of an installed package?"""
    return os.path.realpath(file).startswith(_LIBRARIES) or file.startswith(_LIBRARIES)


def read_bytes(file: str) -> bytes:
    """What the program is to have for ``file``. Errors: OSError."""
    text = _texts().get(os.path.realpath(file))
    if text is None:
        with open(file, "rb") as source:
            return source.read()
    _show(file, text)
    _ran.add(file)
    return encoded(text)


def compiled(source: bytes, file: str) -> CodeType:
    """The code of a file of the program, as this run needs it. Errors: SyntaxError."""
    comments = active()
    marked = None if comments is None else comments.compiled(source, file)
    return marked or carrying_numbers(source, file) or compile(source, file, "exec", dont_inherit=True)


@contextlib.contextmanager
def imports_overlaid() -> Iterator[None]:
    """Inside the block the program's modules are imported with the texts that replace theirs, and ``compiled``."""
    texts = _texts()
    original = SourceFileLoader.get_code

    @functools.wraps(original)
    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        file = self.get_filename(fullname)
        text = texts.get(os.path.realpath(file))
        if text is not None:
            _show(file, text)
            _ran.add(file)
            return compiled(encoded(text), file)
        if is_of_library(file):
            return original(self, fullname)
        source = self.get_data(file)
        if active() is None and not has_number_calls(source):
            return original(self, fullname)
        return compiled(source, file)

    with patched(SourceFileLoader, "get_code", get_code):
        yield


@contextlib.contextmanager
def overlay_of(texts: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Variables of the environment in which programs have ``texts``, given by path, as long as the block runs."""
    with scratch_folder("shardwise-") as folder:
        overlay = folder / "overlay.json"
        overlay.write_text(json.dumps({os.path.realpath(file): text for file, text in texts.items()}), "utf-8")
        try:
            yield {VARIABLE: str(overlay)}
        finally:
            _show_the_disk()


@contextlib.contextmanager
def overlaid(texts: Mapping[str, str]) -> Iterator[None]:
    """Inside the block programs that are loaded and run in this process have ``texts``, given by path."""
    before = dict(_given)
    _given.update((os.path.realpath(file), text) for file, text in texts.items())
    try:
        with texts_shown(texts):
            yield
    finally:
        _given.clear()
        _given.update(before)
        _show_the_disk()


@contextlib.contextmanager
def texts_shown(texts: Mapping[str, str]) -> Iterator[None]:
    """Inside the block excerpts and columns of files are those of ``texts``, given by path."""
    before = {file: linecache.cache.get(file) for file in texts}
    try:
        for file, text in texts.items():
            _show(file, text)
        yield
    finally:
        for file, entry in before.items():
            linecache.cache.pop(file, None)
            if entry is not None:
                linecache.cache[file] = entry


def _texts() -> Mapping[str, str]:
    path = os.environ.get(VARIABLE)
    if not path:
        return _given
    texts: Mapping[str, str] = json.loads(Path(path).read_text("utf-8"))
    return {**texts, **_given}


def _show_the_disk() -> None:
    """A later run in this process has the texts of the disk."""
    while _ran:
        linecache.cache.pop(_ran.pop(), None)


def _show(file: str, text: str) -> None:
    """Let excerpts show the text that runs; without a time of change it is not read again."""
    linecache.cache[file] = (len(text), None, lines_of(text), file)
