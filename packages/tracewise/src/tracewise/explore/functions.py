"""The functions of derived columns: for each its kinds of arguments, its kind of result, and DuckDB's spelling."""

from __future__ import annotations

from dataclasses import dataclass

from tracewise.store.table import Kind

N, T, D, B, J = Kind.NUMBER, Kind.TEXT, Kind.TIME, Kind.BOOL, Kind.NESTED
ANY = frozenset(Kind)


@dataclass(frozen=True, slots=True)
class Function:
    """``arguments`` are the kinds that each argument may have.

    ``sql`` has one ``{}`` an argument, by position; a ``variadic`` function repeats its last argument, joined by commas
    in place of ``{rest}``. A result of None is the kind of the first argument.
    """

    arguments: tuple[frozenset[Kind], ...]
    result: Kind | None
    sql: str
    variadic: bool = False
    choices: tuple[str, ...] = ()  # literals that the first argument must be one of


def _row(arguments: str, result: Kind | None, sql: str, **more: object) -> Function:
    letters = {"N": {N}, "T": {T}, "D": {D}, "B": {B}, "*": ANY, "S": {T, J}}
    return Function(tuple(frozenset(letters[letter]) for letter in arguments), result, sql, **more)  # type: ignore[arg-type]


PARTS_OF_TIME = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")

# Absent: anything that reads files, settings or the clock, and anything that makes more than one row of one.
FUNCTIONS: dict[str, Function] = {
    "lower": _row("T", T, "lower({0})"),
    "upper": _row("T", T, "upper({0})"),
    "trim": _row("T", T, "trim({0})"),
    "length": _row("T", N, "length({0})"),
    "reverse": _row("T", T, "reverse({0})"),
    # substr and split count from 1, as DuckDB does.
    "substr": _row("TNN", T, "substr({0}, CAST({1} AS BIGINT), CAST({2} AS BIGINT))"),
    "left": _row("TN", T, "left({0}, CAST({1} AS BIGINT))"),
    "right": _row("TN", T, "right({0}, CAST({1} AS BIGINT))"),
    "split": _row("TTN", T, "split_part({0}, {1}, CAST({2} AS BIGINT))"),
    "replace": _row("TTT", T, "replace({0}, {1}, {2})"),
    "concat": _row("**", T, "concat({0}, {rest})", variadic=True),
    "contains": _row("TT", B, "contains({0}, {1})"),
    "starts_with": _row("TT", B, "starts_with({0}, {1})"),
    "ends_with": _row("TT", B, "ends_with({0}, {1})"),
    "position": _row("TT", N, "instr({0}, {1})"),
    "regexp_matches": _row("TT", B, "regexp_matches({0}, {1})"),
    "regexp_extract": _row("TT", T, "regexp_extract({0}, {1})"),  # what the whole pattern matched
    "regexp_group": _row("TT", T, "regexp_extract({0}, {1}, 1)"),  # what its first bracket matched
    "regexp_replace": _row("TTT", T, "regexp_replace({0}, {1}, {2}, 'g')"),
    "abs": _row("N", N, "abs({0})"),
    "sign": _row("N", N, "sign({0})"),
    "round": _row("N", N, "round({0})"),
    "floor": _row("N", N, "floor({0})"),
    "ceil": _row("N", N, "ceil({0})"),
    "sqrt": _row("N", N, "CASE WHEN {0} >= 0 THEN sqrt({0}) END"),
    "exp": _row("N", N, "exp({0})"),
    "ln": _row("N", N, "CASE WHEN {0} > 0 THEN ln({0}) END"),
    "log2": _row("N", N, "CASE WHEN {0} > 0 THEN log2({0}) END"),
    "log10": _row("N", N, "CASE WHEN {0} > 0 THEN log10({0}) END"),
    "pow": _row("NN", N, "pow({0}, {1})"),
    "least": _row("NN", N, "least({0}, {rest})", variadic=True),
    "greatest": _row("NN", N, "greatest({0}, {rest})", variadic=True),
    "coalesce": _row("**", None, "coalesce({0}, {rest})", variadic=True),
    "nullif": _row("**", None, "nullif({0}, {1})"),
    "is_null": _row("*", B, "({0} IS NULL)"),
    "text": _row("*", T, "CAST({0} AS VARCHAR)"),
    "number": _row("*", N, "TRY_CAST(CAST({0} AS VARCHAR) AS DOUBLE)"),
    "json_get": _row("ST", T, "CASE WHEN json_valid({0}::VARCHAR) THEN json_extract_string({0}::VARCHAR, {1}) END"),
    "date_trunc": _row("TD", D, "date_trunc({0}, {1})", choices=PARTS_OF_TIME),
    "year": _row("D", N, "year({0})"),
    "month": _row("D", N, "month({0})"),
    "day": _row("D", N, "day({0})"),
    "hour": _row("D", N, "hour({0})"),
    "minute": _row("D", N, "minute({0})"),
    "second": _row("D", N, "second({0})"),
    "weekday": _row("D", N, "isodow({0})"),  # Monday is 1
    "epoch": _row("D", N, "(epoch_us({0}) / 1e6)"),
}
