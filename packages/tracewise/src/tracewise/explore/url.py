"""Query to and from the query string: readable, versioned, free of order, defaults left out.

    v=1&view=series&from=-1h&f=rank:eq:1,2&f=name:contains:all_reduce&g=kind&m=p99(dur_us)&res=auto&d=ms:dur_us%2F1000

A filter has two spellings. In a link its parts stand apart by literal ``:`` and ``,`` and each part is percent-encoded
on its own, so ``%2C`` is a comma of a value. A form encodes the text as a whole, separators too; then a part that holds
a separator is in double quotes: ``name:eq:"a,b"``. A raw ``:`` tells which of the two it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import quote, unquote_plus

from tracewise.explore.query import (
    COMPARISONS,
    DEFAULT_LIMIT,
    MAX_LIMIT,
    Aggregate,
    Derived,
    Fill,
    Filter,
    Having,
    Measure,
    Op,
    Order,
    Query,
    Scale,
    Shape,
    View,
    member,
)

VERSION = "1"
CASED_SUFFIX = "!"  # f=name:eq!:Adam compares with case
# Characters that neither browsers nor servers encode on their own, so that an address stays as it was written.
_SAFE = "/()*!$@; "
_SAFE_IN_WHOLE = _SAFE + ":,"
_TEXT_FIELDS = {
    "from": "start",
    "to": "end",
    "tz": "zone",
    "time": "time_column",
    "unit": "time_unit",
    "cmp": "compare",
    "res": "grain",
    "x": "value_column",
    "w": "weight",
    "after": "after",
}
_ENUM_FIELDS: dict[str, tuple[str, type[StrEnum]]] = {
    "fill": ("fill", Fill),
    "shape": ("shape", Shape),
    "scale": ("scale", Scale),
}


@dataclass(frozen=True, slots=True)
class Issue:
    """A part of a query that was left out: the parameter, its value as typed, and why."""

    parameter: str
    value: str
    message: str


def parse_query(query_string: str) -> tuple[Query, tuple[Issue, ...]]:
    """The query that a query string says; what cannot be read is left out and told as an issue. Never raises."""
    query, issues = Query(), list[Issue]()
    view = View.SAMPLES
    pairs = [_pair(part) for part in query_string.split("&") if part]
    for name, raw in pairs:  # the view first: a limit without a name is the view's
        if name == "view":
            try:
                view = member(View, unquote_plus(raw))
            except ValueError as error:
                issues.append(Issue(name, unquote_plus(raw), str(error)))
    query = replace(query, view=view)
    for name, raw in pairs:
        try:
            query = _with_parameter(query, name, raw)
        except ValueError as error:
            issues.append(Issue(name, unquote_plus(raw), str(error)))
    return query, tuple(issues)


def query_string(query: Query) -> str:
    """The shortest query string that ``parse_query`` reads as ``query``."""
    default = Query()
    parts: list[tuple[str, str]] = [("v", VERSION)]
    if query.view is not default.view:
        parts.append(("view", query.view.value))
    for name, field in _TEXT_FIELDS.items():
        if getattr(query, field) != getattr(default, field):
            parts.append((name, _whole(getattr(query, field))))
    for name, (field, _) in _ENUM_FIELDS.items():
        if getattr(query, field) is not getattr(default, field):
            parts.append((name, getattr(query, field).value))
    parts += [("f", _filter_link(condition)) for condition in query.filters]
    parts += [("g", _whole(group)) for group in query.groups]
    parts += [("m", _whole(str(measure))) for measure in query.measures]
    parts += [("d", f"{_whole(derived.name)}:{_whole(derived.text)}") for derived in query.derived]
    parts += [("h", f"{_whole(str(one.measure))}:{one.op.value}:{_whole(one.value)}") for one in query.having]
    if query.order:
        parts.append(("o", f"{_whole(query.order.key)}:{'desc' if query.order.descending else 'asc'}"))
    parts += [("n" if view is query.view else f"n.{view.value}", str(limit)) for view, limit in query.limits]
    if not query.other:
        parts.append(("other", "0"))
    parts += [("c", _whole(column)) for column in query.columns]
    parts += [(quote(name, safe=""), quote(value, safe="")) for name, value in query.unknown]
    return "&".join(f"{name}={value}" for name, value in parts)


def filter_text(condition: Filter) -> str:
    """A filter as a form's text box holds it: ``name:eq:"a,b",c``."""
    op = condition.op.value + (CASED_SUFFIX if condition.cased else "")
    head = f"{quote_part(condition.column)}:{op}"
    return f"{head}:{','.join(map(quote_part, condition.values))}" if condition.op.takes_values else head


def parse_filter(text: str) -> Filter:
    """The filter of a text with quoted parts; ValueError says what is wrong."""
    parts = _split_quoted(text, ":", 2)
    if len(parts) < 2:
        raise ValueError("a filter is column:op:values, for example rank:eq:1,2")
    values = _split_quoted(parts[2], ",") if len(parts) > 2 else []
    return _filter(unquote_part(parts[0]), parts[1], [unquote_part(value) for value in values])


def parse_measure(text: str) -> Measure:
    """``count`` or ``p99(column)``; ValueError names the known aggregates."""
    stripped = text.strip()
    name, bracket, rest = stripped.partition("(")
    aggregate = member(Aggregate, name)
    if bracket and not rest.endswith(")"):
        raise ValueError(f"the bracket of {stripped!r} does not close")
    if aggregate.takes_column != bool(bracket):
        raise ValueError(f"{name} {'needs a column: ' + name + '(column)' if not bracket else 'takes no column'}")
    return Measure(aggregate, rest[:-1] if bracket else None)


def quote_part(text: str) -> str:
    """``text``, in double quotes if it would not be read back as it is."""
    needs_quotes = any(mark in text for mark in ':,"\t\n\r') or text != text.strip()
    return '"' + text.replace('"', '""') + '"' if needs_quotes else text


def unquote_part(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    return text


def _with_parameter(query: Query, name: str, raw: str) -> Query:
    """``query`` with one parameter of a link; ValueError says what is wrong with it."""
    value = unquote_plus(raw)
    if name in ("v", "view"):
        if name == "v" and value != VERSION:
            raise ValueError(f"this link is of version {value!r}, this explorer reads version {VERSION}")
        return query
    if name in _TEXT_FIELDS:
        return replace(query, **{_TEXT_FIELDS[name]: value}) if value or name == "tz" else query  # type: ignore[arg-type]
    if name in _ENUM_FIELDS:
        field, known = _ENUM_FIELDS[name]
        return replace(query, **{field: member(known, value)})  # type: ignore[arg-type]
    if name == "n" or name.startswith("n."):
        view = query.view if name == "n" else member(View, name[2:])
        return replace(query, limits=_with_limit(query.limits, view, value)) if value else query
    if name == "other":
        return replace(query, other=value != "0")
    reader = _LIST_READERS.get(name)
    if reader is None:
        return replace(query, unknown=(*query.unknown, (name, value)))
    return reader(query, raw) if value else query


def _read_filter(query: Query, raw: str) -> Query:
    if ":" not in raw:
        condition = parse_filter(unquote_plus(raw))
    else:
        column, op, *rest = [*raw.split(":", 2), ""][:3]
        values = [unquote_plus(value) for value in rest[0].split(",")] if raw.count(":") > 1 else []
        condition = _filter(unquote_plus(column), unquote_plus(op), values)
    return replace(query, filters=(*query.filters, condition))


def _read_group(query: Query, raw: str) -> Query:
    group = unquote_plus(raw)
    return query if group in query.groups else replace(query, groups=(*query.groups, group))


def _read_measure(query: Query, raw: str) -> Query:
    measure = parse_measure(unquote_plus(raw))
    return query if measure in query.measures else replace(query, measures=(*query.measures, measure))


def _read_derived(query: Query, raw: str) -> Query:
    name, colon, text = unquote_plus(raw).partition(":")
    if not colon or not name.strip() or not text.strip():
        raise ValueError("a derived column is name:expression, for example ms:dur_us/1000")
    return replace(query, derived=(*query.derived, Derived(name.strip(), text.strip())))


def _read_order(query: Query, raw: str) -> Query:
    key, colon, direction = unquote_plus(raw).rpartition(":")
    if not colon or direction not in ("asc", "desc"):
        raise ValueError("an order is column:asc or column:desc")
    return replace(query, order=Order(key, direction == "desc"))


def _read_having(query: Query, raw: str) -> Query:
    parts = unquote_plus(raw).rsplit(":", 2)
    if len(parts) != 3 or parts[1] not in COMPARISONS:
        raise ValueError(f"a condition on groups is measure:op:number, op one of {', '.join(COMPARISONS)}")
    return replace(query, having=(*query.having, Having(parse_measure(parts[0]), Op(parts[1]), parts[2])))


def _read_column(query: Query, raw: str) -> Query:
    return replace(query, columns=(*query.columns, unquote_plus(raw)))


_LIST_READERS: dict[str, Callable[[Query, str], Query]] = {
    "f": _read_filter,
    "g": _read_group,
    "m": _read_measure,
    "d": _read_derived,
    "o": _read_order,
    "h": _read_having,
    "c": _read_column,
}


def _filter(column: str, op_text: str, values: Iterable[str]) -> Filter:
    cased = op_text.endswith(CASED_SUFFIX)
    op = member(Op, op_text.removesuffix(CASED_SUFFIX))
    return Filter(column, op, (tuple(values) or ("",)) if op.takes_values else (), cased)


def _filter_link(condition: Filter) -> str:
    op = condition.op.value + (CASED_SUFFIX if condition.cased else "")
    head = f"{_part(condition.column)}:{op}"
    return f"{head}:{','.join(map(_part, condition.values))}" if condition.op.takes_values else head


def _with_limit(limits: tuple[tuple[View, int], ...], view: View, text: str) -> tuple[tuple[View, int], ...]:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_LIMIT[view]):
        raise ValueError(f"the limit of {view} is a whole number from 1 to {MAX_LIMIT[view]}")
    others = tuple((other, limit) for other, limit in limits if other is not view)
    return others if int(text) == DEFAULT_LIMIT[view] else (*others, (view, int(text)))


def _split_quoted(text: str, separator: str, most: int = -1) -> list[str]:
    """The pieces of ``text`` between separators that are not in double quotes, quotes kept."""
    pieces, start, quoted = list[str](), 0, False
    for at, mark in enumerate(text):
        if mark == '"':
            quoted = not quoted
        elif mark == separator and not quoted and (most < 0 or len(pieces) < most):
            pieces.append(text[start:at])
            start = at + 1
    return [*pieces, text[start:]]


def _pair(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return unquote_plus(name), value


def _part(text: str) -> str:
    """A part of a parameter whose separators stand as they are."""
    return quote(text, safe=_SAFE).replace(" ", "+")


def _whole(text: str) -> str:
    """A parameter without separators of its own."""
    return quote(text, safe=_SAFE_IN_WHOLE).replace(" ", "+")
