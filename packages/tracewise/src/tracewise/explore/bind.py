"""A Query checked against a table: names become columns, texts become values, and what does not fit becomes an issue.

Only a Bound reaches the SQL builder, so each of its identifiers is one of the table's own and each value is typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tracewise.explore.expr import ColumnRef, Expression, ExpressionError, parse_expression
from tracewise.explore.query import (
    COUNT,
    MAX_GROUPS,
    Aggregate,
    Filter,
    Having,
    Measure,
    Op,
    Order,
    Query,
    View,
)
from tracewise.explore.timeparse import Clock, TimeSyntaxError, parse_duration, parse_time, time_text
from tracewise.explore.url import Issue, filter_text
from tracewise.store.table import Kind, Table, TimeColumn, TimeUnit

Value: TypeAlias = bool | int | float | str  # a time is an int, in microseconds since the epoch

TEXT_OPS = frozenset({Op.CONTAINS, Op.EXCLUDES, Op.MATCHES, Op.STARTS, Op.EMPTY, Op.NOT_EMPTY})
NUMERIC_ONLY = frozenset(Aggregate) - {
    Aggregate.COUNT,
    Aggregate.RATE,
    Aggregate.SHARE,
    Aggregate.DISTINCT,
    Aggregate.MIN,
    Aggregate.MAX,
}
GRAINS_US: tuple[int, ...] = (
    *(1, 10, 100, 1_000, 10_000, 100_000),
    *(seconds * 1_000_000 for seconds in (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 10_800, 21_600, 43_200)),
    *(days * 86_400_000_000 for days in (1, 7, 30)),
)
AUTO_BUCKETS = {"auto": 100, "fine": 500}
MAX_BUCKETS = 5_000
_WHOLE = re.compile(r"[+-]?\d{1,38}", re.ASCII)
_LARGEST = 2**126


@dataclass(frozen=True, slots=True)
class Named:
    """A column of the table or a derived one."""

    name: str
    expression: Expression

    @property
    def kind(self) -> Kind:
        return self.expression.kind or Kind.TEXT  # an expression that is always null


@dataclass(frozen=True, slots=True)
class BoundFilter:
    column: Named
    op: Op
    values: tuple[Value, ...]
    cased: bool


@dataclass(frozen=True, slots=True)
class BoundMeasure:
    aggregate: Aggregate
    column: Named | None

    def __str__(self) -> str:
        return str(Measure(self.aggregate, self.column.name if self.column else None))


@dataclass(frozen=True, slots=True)
class BoundHaving:
    measure: BoundMeasure
    op: Op
    value: float


@dataclass(frozen=True, slots=True)
class Period:
    """Times from ``start_us`` on and before ``end_us``."""

    start_us: int
    end_us: int

    @property
    def length_us(self) -> int:
        return self.end_us - self.start_us

    def moved(self, by_us: int) -> Period:
        return Period(self.start_us + by_us, self.end_us + by_us)


@dataclass(frozen=True, slots=True)
class Bound:
    """What to compute. ``period`` is None where the table has no times; ``restricts_time``: it was asked for."""

    query: Query
    table: Table
    clock: Clock
    time: TimeColumn | None = None
    period: Period | None = None
    restricts_time: bool = False
    compare_us: int | None = None  # how far the compared period lies before the period
    bucket_us: int = 0
    names: tuple[Named, ...] = ()
    filters: tuple[BoundFilter, ...] = ()
    groups: tuple[Named, ...] = ()
    measures: tuple[BoundMeasure, ...] = (BoundMeasure(Aggregate.COUNT, None),)
    having: tuple[BoundHaving, ...] = ()
    order: Order | None = None
    columns: tuple[Named, ...] = ()
    value_column: Named | None = None
    weight: Named | None = None
    after: tuple[int, int] | None = None  # time and row key of the last row of the page before
    issues: tuple[Issue, ...] = field(default=())

    def named(self, name: str) -> Named | None:
        return next((one for one in self.names if one.name == name), None)


def choose_time(query: Query, table: Table) -> tuple[TimeColumn | None, tuple[Issue, ...]]:
    """The time column that the query asks for, else the table's."""
    if not query.time_column:
        return table.time, ()
    column = table.column(query.time_column)
    if column is None or column.kind not in (Kind.TIME, Kind.NUMBER):
        reason = "no such column" if column is None else f"a column of {column.kind} holds no times"
        return table.time, (Issue("time", query.time_column, reason),)
    if column.kind is Kind.TIME:
        return TimeColumn(column, TimeUnit.TIMESTAMP), ()
    units = [unit.value for unit in TimeUnit if unit is not TimeUnit.TIMESTAMP]
    if query.time_unit not in units:
        return table.time, (Issue("unit", query.time_unit, f"the unit of a numeric time is one of {', '.join(units)}"),)
    return TimeColumn(column, TimeUnit(query.time_unit)), ()


def bind(query: Query, table: Table, time: TimeColumn | None, clock: Clock) -> Bound:
    """``query`` over ``table``, rows placed by ``time``; the clock's span is that of the data in this time column."""
    return _Binder(query, table, time, clock).bound()


def parse_number(text: str) -> int | float:
    """A number as typed; ValueError if it is none or larger than any column holds."""
    stripped = text.strip()
    if _WHOLE.fullmatch(stripped):
        number: int | float = int(stripped)
    elif stripped.isascii() and "_" not in stripped:
        number = float(stripped)
    else:
        raise ValueError(f"{text!r} is no number")
    if isinstance(number, int) and abs(number) > _LARGEST:
        return float(number)
    return number


class _Binder:
    def __init__(self, query: Query, table: Table, time: TimeColumn | None, clock: Clock) -> None:
        self.query, self.table, self.time, self.clock = query, table, time, clock
        self.issues: list[Issue] = []
        self.names = {column.name: Named(column.name, ColumnRef(column)) for column in table.columns}

    def bound(self) -> Bound:
        query = self.query
        self.derive()
        period, restricts_time = self.period()
        measures = tuple(found for measure in query.measures if (found := self.measure(measure, "m")))
        bound = Bound(
            query=query,
            table=self.table,
            clock=self.clock,
            time=self.time,
            period=period,
            restricts_time=restricts_time,
            compare_us=self.compare_us(period),
            bucket_us=self.bucket_us(period),
            names=tuple(self.names.values()),
            filters=tuple(kept for condition in query.filters if (kept := self.filter(condition))),
            groups=self.groups(),
            measures=measures or (BoundMeasure(COUNT.aggregate, None),),
            having=tuple(tested for one in query.having if (tested := self.having(one))),
            columns=tuple(self.known(query.columns, "c")),
            value_column=self.numeric(query.value_column, "x"),
            weight=self.numeric(query.weight, "w"),
            after=self.after(),
        )
        return replace(bound, order=self.order(bound), issues=tuple(self.issues))

    def reject(self, parameter: str, value: str, message: str) -> None:
        self.issues.append(Issue(parameter, value, message))

    def derive(self) -> None:
        for derived in self.query.derived:
            if derived.name in self.names:
                self.reject("d", derived.name, "there is a column of this name already")
                continue
            try:
                expression = parse_expression(derived.text, self.resolve)
            except ExpressionError as error:
                self.reject("d", f"{derived.name}:{derived.text}", str(error))
            else:
                self.names[derived.name] = Named(derived.name, expression)

    def resolve(self, name: str) -> Expression | None:
        named = self.names.get(name)
        return named.expression if named else None

    def known(self, names: Iterable[str], parameter: str) -> Iterable[Named]:
        for name in names:
            if name in self.names:
                yield self.names[name]
            else:
                self.reject(parameter, name, "no such column")

    def numeric(self, name: str, parameter: str) -> Named | None:
        for named in self.known([name] if name else [], parameter):
            if named.kind is Kind.NUMBER:
                return named
            self.reject(parameter, name, f"a column of {named.kind}, a number is needed")
        return None

    def groups(self) -> tuple[Named, ...]:
        found = tuple(self.known(self.query.groups, "g"))
        for extra in found[MAX_GROUPS:]:
            self.reject("g", extra.name, f"at most {MAX_GROUPS} columns can be grouped by")
        return found[:MAX_GROUPS]

    def measure(self, measure: Measure, parameter: str) -> BoundMeasure | None:
        if measure.column is None:
            return BoundMeasure(measure.aggregate, None)
        for named in self.known([measure.column], parameter):
            needs_number = measure.aggregate in NUMERIC_ONLY
            orders = measure.aggregate in (Aggregate.MIN, Aggregate.MAX)
            if (needs_number and named.kind is not Kind.NUMBER) or (
                orders and named.kind not in (Kind.NUMBER, Kind.TIME)
            ):
                self.reject(
                    parameter, str(measure), f"{measure.aggregate} needs a number, {named.name} is {named.kind}"
                )
            else:
                return BoundMeasure(measure.aggregate, named)
        return None

    def having(self, having: Having) -> BoundHaving | None:
        text = f"{having.measure}:{having.op}:{having.value}"
        measure = self.measure(having.measure, "h")
        if measure is None:
            return None
        try:
            number = parse_number(having.value)
        except ValueError as error:
            self.reject("h", text, str(error))
            return None
        return BoundHaving(measure, having.op, number)

    def filter(self, condition: Filter) -> BoundFilter | None:
        try:
            named = self.names[condition.column]
        except KeyError:
            self.reject("f", filter_text(condition), f"no column {condition.column!r}")
            return None
        try:
            values = tuple(self.value(named, condition.op, text) for text in condition.values)
        except ValueError as error:
            self.reject("f", filter_text(condition), str(error))
            return None
        return BoundFilter(named, condition.op, values, condition.cased)

    def value(self, named: Named, op: Op, text: str) -> Value:
        if "\0" in text:
            raise ValueError("a value cannot hold a NUL character")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("a value cannot hold half of a surrogate pair") from None
        if op in TEXT_OPS or named.kind in (Kind.TEXT, Kind.NESTED):
            return text
        if named.kind is Kind.NUMBER:
            return parse_number(text)
        if named.kind is Kind.TIME:
            return parse_time(text, self.clock)
        lowered = text.strip().lower()
        if lowered not in ("true", "false", "1", "0"):
            raise ValueError(f"{text!r} is neither true nor false")
        return lowered in ("true", "1")

    def time_of(self, text: str, parameter: str, otherwise: int) -> int:
        if not text.strip():
            return otherwise
        try:
            return parse_time(text, self.clock)
        except TimeSyntaxError as error:
            self.reject(parameter, text, str(error))
            return otherwise

    def period(self) -> tuple[Period | None, bool]:
        """The asked-for times; the last moment of the data belongs to it unless another end is named."""
        query, clock = self.query, self.clock
        if self.time is None:
            for parameter, text in (("from", query.start), ("to", query.end), ("cmp", query.compare)):
                if text:
                    self.reject(parameter, text, "this table has no time column; choose one")
            return None, False
        start = self.time_of(query.start, "from", clock.first_us)
        end = self.time_of(query.end, "to", clock.last_us + 1)
        if query.end.replace(" ", "") == "100%":
            end = clock.last_us + 1
        if end <= start:
            shown = f"{time_text(start, clock.zone)} to {time_text(end, clock.zone)}"
            self.reject("to", query.end, f"{shown} holds no time; the end must be after the start")
            return Period(clock.first_us, clock.last_us + 1), False
        return Period(start, end), bool(query.start.strip() or query.end.strip())

    def compare_us(self, period: Period | None) -> int | None:
        text = self.query.compare.strip()
        if not text or period is None:
            return None
        if text.lower() == "previous":
            return period.length_us
        try:
            shift = parse_duration(text[1:]) if text[0] == "-" else period.start_us - parse_time(text, self.clock)
        except TimeSyntaxError as error:
            self.reject("cmp", text, f"{error}; or previous, or -1 day")
            return None
        if shift == 0:
            self.reject("cmp", text, "this is the period itself")
            return None
        return shift

    def bucket_us(self, period: Period | None) -> int:
        """The width of a bucket of time, at least a MAX_BUCKETS-th of the period."""
        if period is None:
            return 0
        text, wanted = self.query.grain.strip(), AUTO_BUCKETS["auto"]
        if text in AUTO_BUCKETS:
            wanted = AUTO_BUCKETS[text]
        else:
            try:
                width = parse_duration(text)
            except TimeSyntaxError as error:
                self.reject("res", text, f"{error}; or auto, fine")
            else:
                if period.length_us <= width * MAX_BUCKETS:
                    return width
                self.reject("res", text, f"more than {MAX_BUCKETS} buckets; choose a wider one or a shorter time")
        return next(
            (grain for grain in GRAINS_US if period.length_us <= grain * wanted), period.length_us // wanted + 1
        )

    def order(self, bound: Bound) -> Order | None:
        """The order, None for the view's own. One that belongs to another view is kept for it, without a complaint."""
        order = self.query.order
        if order is None:
            return None
        shown = {str(measure) for measure in bound.measures}
        if self.query.view is View.SAMPLES:
            return order if order.key in self.names else None
        if order.key in shown or order.key in {group.name for group in bound.groups}:
            return order
        return None

    def after(self) -> tuple[int, int] | None:
        text = self.query.after
        if not text:
            return None
        parts = text.split("_")
        if len(parts) == 2 and all(re.fullmatch(r"-?\d{1,18}", part, re.ASCII) for part in parts):
            return int(parts[0]), int(parts[1])
        self.reject("after", text, "no page begins here")
        return None
