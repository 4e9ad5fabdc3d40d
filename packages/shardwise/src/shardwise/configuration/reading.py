"""How ``[tool.shardwise]`` is found and read. Whatever is not understood is an error with its line and what comes
nearest: a key that is passed over is a check that nobody makes.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shardwise.diagnostics.codes import Severity
from shardwise.diagnostics.errors import SpmdValueError
from shardwise.mesh.shape import MeshShape

from .link_speeds import bandwidths, latencies
from .selection import Selection, codes_named, selection
from .settings import DeclaredRule, Settings

TABLE = "tool.shardwise"
PROJECT_FILE = "pyproject.toml"
_HEADING = re.compile(r"""\s*\[+\s*(?:tool\s*\.\s*["']?(?P<inside>[\w-]+)|(?P<outside>[\w-]+))["']?\s*[.\]]""")
"""Of a table of ours, or of what may be meant as one: ``[tool.NAME]``, ``[tool.NAME.x]`` or ``[NAME]``."""
_RANKS = re.compile(r"all|corners|\d+(-\d+)?(,\d+(-\d+)?)*")
_MEANT_BY = {"mode": "strict, types or partials", "local": "types", "links": "bandwidth or latency"}
"""Keys that others have for what several of ours say."""
_ATTRIBUTE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class _Wrong(Exception):
    """What is wrong with the value of a key, and the words on whose line it stands."""

    def __init__(self, text: str, *words: str) -> None:
        super().__init__(text)
        self.words = words


def find_settings(start: Path) -> Settings:
    """The settings of the project that ``start``, a script or a folder, is in: those of the first ``pyproject.toml``
    with a table ``[tool.shardwise]``, from there upwards. Nothing but defaults if there is none.

    Errors: SW905 for a file that cannot be read or understood.
    """
    return first_settings(project_files(start))


def project_files(start: Path) -> tuple[Path, ...]:
    """Where the settings of the project that ``start`` is in may stand, the nearest first."""
    try:
        folder = start.resolve()
    except (OSError, RuntimeError):  # links that go round
        return ()
    return tuple(place / PROJECT_FILE for place in (folder, *folder.parents))


def first_settings(files: Iterable[Path]) -> Settings:
    """The settings in the first of the files that has some. Errors: as of ``find_settings``."""
    try:
        found = [file for file in files if file.is_file()]
    except OSError:  # a name that is too long: nothing can be there
        return Settings()
    for file in found:
        text = _text(file)
        if "shardwise" in text and "shardwise" in _tables(text, file).get("tool", {}):
            return settings_of(text, file)
        _require_name(text, file)
    return Settings()


def _require_name(text: str, file: Path) -> None:
    """Refuse a heading that is nearly that of our table. Errors: SW905."""
    for number, line in enumerate(text.splitlines(), 1):
        heading = _HEADING.match(line)
        if heading is None:
            continue
        outside, name = heading["outside"], heading["inside"] or heading["outside"]
        near = difflib.get_close_matches(name.lower().replace("_", "-"), ["shardwise"], n=1, cutoff=0.8)
        if near and (outside is None or name == "shardwise"):
            said = f"unknown table [{'tool.' if outside is None else ''}{name}]; did you mean [{TABLE}]?"
            raise SpmdValueError(f"{file}:{number}: {said}", code="SW905")


def read_settings(file: Path) -> Settings:
    """The settings in ``file``. Errors: SW905 also if there are none."""
    text = _text(file)
    if "shardwise" not in _tables(text, file).get("tool", {}):
        raise SpmdValueError(f"{file} has no table [{TABLE}]", code="SW905")
    return settings_of(text, file)


def settings_of(text: str, file: Path) -> Settings:
    """The settings that ``text``, the contents of ``file``, has. Errors: SW905."""
    table = _tables(text, file).get("tool", {}).get("shardwise", {})
    values: dict[str, Any] = {}
    try:
        if not isinstance(table, dict):
            raise _Wrong(f"[{TABLE}] is a table, not {_kind(table)}", "shardwise")
        for key, value in table.items():
            if key not in KEYS:
                near = f"; did you mean {_MEANT_BY[key]}?" if key in _MEANT_BY else _near(key, KEYS)
                raise _Wrong(f"unknown key {key!r} in [{TABLE}]{near}", key)
            name, read = KEYS[key]
            try:
                values[name] = read(key, value)
            except SpmdValueError as error:
                raise _Wrong(f"{key}: {error.message}", *_words(value), key) from None
            except ValueError as error:
                raise _Wrong(f"{key}: {error}", *_words(value), key) from None
        mesh, size = values.get("mesh"), values.get("world_size")
        if mesh is not None and size is not None and mesh.ranks != size:
            said = f"mesh {mesh} has {mesh.arithmetic} ranks, and world-size is {size}: leave world-size out"
            raise _Wrong(said, "world-size")
    except _Wrong as wrong:
        where = f"{file}:{_line(text, wrong.words)}" if wrong.words else str(file)
        raise SpmdValueError(f"{where}: {wrong}", code="SW905") from None
    if values.get("baseline") is not None:
        values["baseline"] = file.resolve().parent / values["baseline"]
    return Settings(file=file, **values)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except OSError as error:
        raise SpmdValueError(f"cannot read {file}: {(error.strerror or str(error)).lower()}", code="SW905") from None
    except UnicodeDecodeError as error:
        raise SpmdValueError(f"{file} is not UTF-8: {error}", code="SW905") from None


def _tables(text: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        said = "values are nested too deep" if isinstance(error, RecursionError) else error
        raise SpmdValueError(f"{file} is not TOML: {said}", code="SW905") from None


def _line(text: str, words: Iterable[str]) -> int:
    """The first line, from the table's heading on, that has one of the words; the heading's if none does."""
    lines = text.splitlines()
    heading = re.compile(rf"^\s*\[+\s*{re.escape(TABLE)}\b")
    start = next((number for number, line in enumerate(lines) if heading.match(line)), 0)
    for word in words:
        for number, line in enumerate(lines[start:], start + 1):
            if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", line.partition("#")[0]):
                return number
    return start + 1


def _words(value: object) -> list[str]:
    """The words of a value by which its line is found, where only one of them can be the wrong one."""
    return [value] if isinstance(value, str) and value.strip() else []


def _near(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word.lower().replace("_", "-"), list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"


_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    str: "a string",
    list: "a list",
    dict: "a table",
}


def _kind(value: object) -> str:
    if isinstance(value, (list, dict)):
        return _KINDS[type(value)]
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _of(kind: type, value: object, example: str = "") -> Any:
    """``value`` if it is of that kind. ``example``: what to write where the value itself does not say it."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        instead = _meant(kind, value) or example
        raise ValueError(f"{_KINDS[kind]} is expected, not {_kind(value)}{instead and f': write {instead}'}")
    return value


def _meant(kind: type, value: object) -> str:
    """How a value of another kind is written as one of ``kind``; empty if nothing tells."""
    if kind is list and isinstance(value, str):
        return f'["{value}"]'
    if isinstance(value, str) and (
        (kind is int and value.isdecimal()) or (kind is bool and value in ("true", "false"))
    ):
        return value
    return ""


def _plain(kind: type) -> Callable[[str, object], object]:
    return lambda key, value: _of(kind, value, "true or false" if kind is bool else "")


def _one_of(words: Mapping[str, object]) -> Callable[[str, object], object]:
    def read(key: str, value: object) -> object:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"{' or '.join(map(repr, words))} is expected, not {value!r}")
        return words[value]

    return read


def _mesh(key: str, value: object) -> object:
    sizes = value.items() if isinstance(value, dict) else ()
    said = ",".join(f"{axis}={size}" for axis, size in sizes if isinstance(size, int))
    return MeshShape.parse(_of(str, value, f'"{said or "dp=2,tp=4"}"'))


def _size(key: str, value: object) -> int:
    size: int = _of(int, value, "8")
    if size < 1:
        raise ValueError(f"a number of ranks is expected, not {size}")
    return size


def _ranks(key: str, value: object) -> str:
    text = str(_of(str, value, '"all"')).replace(" ", "")
    if not _RANKS.fullmatch(text):
        raise ValueError(f"{value!r} is no choice of ranks: write all, corners or a list like 0,3,5-7")
    return text


def _strings(key: str, value: object, example: str = "") -> tuple[str, ...]:
    return tuple(_of(str, one, example) for one in _of(list, value, example and f"[{example}]"))


def _script(key: str, value: object) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else _strings(key, value)


def _codes(key: str, value: object) -> Selection:
    chosen = Selection()
    number = next((one for one in value if type(one) is int), 113) if isinstance(value, list) else value
    for word in _strings(key, value, f'"SW{number if type(number) is int else 113}"'):
        try:
            chosen |= selection([word])
        except ValueError as error:
            raise _Wrong(f"{key}: {error}", word, key) from None
    return chosen


def _per_file(key: str, value: object) -> tuple[tuple[str, Selection], ...]:
    return tuple(
        (pattern, _codes(f"{key}, {pattern!r}", words))
        for pattern, words in _of(dict, value, '{"tests/*.py" = ["SW113"]}').items()
    )


def _severity(key: str, value: object) -> Mapping[str, Severity]:
    words = {severity.value: severity for severity in Severity}
    found: dict[str, Severity] = {}
    for word, level in _of(dict, value, '{SW113 = "warning"}').items():
        try:
            codes = codes_named(word)
            severity = _one_of(words)(key, level)
        except ValueError as error:
            raise _Wrong(f"{key}: {error}", word, key) from None
        assert isinstance(severity, Severity)
        found |= dict.fromkeys(codes, severity)
    return MappingProxyType(found)


def _attributes(key: str, value: object) -> tuple[str, ...]:
    for word in _strings(key, value, '"package.module:function"'):
        if not _ATTRIBUTE.fullmatch(word):
            raise _Wrong(f"{key}: {word!r} names no attribute: write it like package.module:function", word, key)
    return _strings(key, value)


def _rules(key: str, value: object) -> tuple[DeclaredRule, ...]:
    rules = []
    for op, declared in _of(dict, value, '{"mylib.scale" = {params = "x weight", linear = "x"}}').items():
        if not isinstance(declared, dict):
            raise _Wrong(f'{key}: {op} is declared by a table, like {{params = "x weight", linear = "x"}}', op, key)
        for part, said in declared.items():
            if part not in ("params", "linear"):
                raise _Wrong(f"{key}: unknown key {part!r} for {op}{_near(part, ('params', 'linear'))}", part, op)
            if not isinstance(said, str):
                raise _Wrong(f"{key}: {part} of {op} is a string, not {_kind(said)}", part, op)
        if "params" not in declared:
            raise _Wrong(f'{key}: {op} lacks its parameters, like params = "x weight"', op, key)
        rules.append(DeclaredRule(op, **declared))
    return tuple(rules)


def _speeds(read: Callable[[str], Mapping[str, float]]) -> Callable[[str, object], object]:
    return lambda key, value: MappingProxyType(dict(read(_of(str, value))))


def _address(key: str, value: object) -> str:
    address = str(_of(str, value))
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", address):
        raise ValueError(f"an address like https://docs.example.org/shardwise is expected, not {address!r}")
    return address.rstrip("/")


def _path(key: str, value: object) -> Path:
    return Path(_of(str, value))


KEYS: dict[str, tuple[str, Callable[[str, object], object]]] = {
    "script": ("script", _script),
    "mesh": ("mesh", _mesh),
    "world-size": ("world_size", _size),
    "ranks": ("ranks", _ranks),
    "strict": ("strict", _plain(bool)),
    "types": ("local", _one_of({"local": True, "global": False})),
    "partials": ("partials", _one_of({"infer": "infer", "explicit": "explicit"})),
    "observe": ("observe", _plain(bool)),
    "select": ("select", _codes),
    "ignore": ("ignore", _codes),
    "per-file-ignores": ("per_file_ignores", _per_file),
    "severity": ("severity", _severity),
    "trusted": ("trusted", _attributes),
    "rules": ("rules", _rules),
    "contracts": ("contracts", _attributes),
    "baseline": ("baseline", _path),
    "bandwidth": ("bandwidth", _speeds(bandwidths)),
    "latency": ("latency", _speeds(latencies)),
    "docs": ("docs", _address),
}
"""The keys of the table: the field that each is, and how its value is read."""
