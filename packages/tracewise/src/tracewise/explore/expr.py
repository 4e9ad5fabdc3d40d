"""Derived columns: a small language of expressions over the columns of a table, parsed and checked.

    dur_us / 1000      if(rank = 0, 'first', 'other')      split(name, '.', 2)      case when `a b` > 1 then 'x' end

    expression = and ("or" and)*      and = not ("and" not)*      not = "not" not | sum (compare sum)?
    sum        = product (("+" | "-") product)*           product = unary (("*" | "/" | "%") unary)*
    unary      = "-" unary | number | 'text' | name | `name` | name "(" arguments ")" | "(" expression ")" | case
    case       = "case" ("when" expression "then" expression)+ ("else" expression)? "end"

Numbers are computed as floating point; a division by zero is null. Names of columns are spelled as in the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from tracewise.explore.functions import FUNCTIONS
from tracewise.store.table import Column, Kind

MAX_TEXT = 2_000
MAX_DEPTH = 40  # of brackets
MAX_NODES = 200  # with the columns that it is derived from
KEYWORDS = frozenset(["and", "or", "not", "case", "when", "then", "else", "end", "true", "false", "null"])
COMPARE = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


class ExpressionError(ValueError):
    """An expression that cannot be read; ``position`` counts characters from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} at character {position + 1}")
        self.position = position


@dataclass(frozen=True, slots=True)
class Literal:
    value: float | int | str | bool | None
    kind: Kind | None  # None of null, which fits any kind


@dataclass(frozen=True, slots=True)
class ColumnRef:
    column: Column

    @property
    def kind(self) -> Kind | None:
        return self.column.kind


@dataclass(frozen=True, slots=True)
class Operation:
    """``operator`` of one or two operands: + - * / % = != < <= > >= and or not, and "neg"."""

    operator: str
    operands: tuple[Expression, ...]
    kind: Kind | None


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple[Expression, ...]
    kind: Kind | None


@dataclass(frozen=True, slots=True)
class Case:
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression
    kind: Kind | None


Expression: TypeAlias = Literal | ColumnRef | Operation | Call | Case
Resolve: TypeAlias = Callable[[str], Expression | None]


def parse_expression(text: str, resolve: Resolve) -> Expression:
    """The checked expression that ``text`` says; ``resolve`` gives the expression behind a name, or None.

    ExpressionError tells the position of the first mistake.
    """
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"the expression has {len(text)} characters, at most {MAX_TEXT} are read", MAX_TEXT)
    return _Parser(text, _tokens(text), resolve).whole()


def parts(expression: Expression) -> tuple[Expression, ...]:
    """The expressions that this one is directly made of."""
    match expression:
        case Operation(operands=inner) | Call(arguments=inner):
            return inner
        case Case(branches=branches, otherwise=otherwise):
            return (*(part for branch in branches for part in branch), otherwise)
        case _:
            return ()


def node_count(expression: Expression) -> int:
    count, waiting = 0, [expression]
    while waiting:
        count += 1
        waiting += parts(waiting.pop())
    return count


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # number, text, name, quoted, mark or end
    text: str
    at: int


_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)"
    r"|(?P<text>'(?:[^']|'')*')"
    r"|(?P<quoted>`(?:[^`]|``)*`)"
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<mark><=|>=|<>|!=|==|[-+*/%=<>(),]))"
)


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    end = len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if not found or found.lastgroup is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise ExpressionError(f"{text[at]!r} cannot stand here", at)
        tokens.append(_Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup)))
        at = found.end()
    return [*tokens, _Token("end", "", end)]


@dataclass(slots=True)
class _Parser:
    text: str
    tokens: list[_Token]
    resolve: Resolve
    at: int = 0
    depth: int = 0

    def whole(self) -> Expression:
        expression = self.expression()
        if self.token.kind != "end":
            self.fail(f"{self.token.text!r} is left over")
        if node_count(expression) > MAX_NODES:
            self.fail(f"more than {MAX_NODES} operations and values, with those of derived columns", 0)
        return expression

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        raise ExpressionError(message, self.token.at if at is None else at)

    def take(self, *texts: str) -> str | None:
        """The next mark or keyword if it is one of these."""
        token = self.token
        wanted = token.text.lower() if token.kind == "name" else token.text
        if token.kind in ("mark", "name") and wanted in texts:
            self.at += 1
            return wanted
        return None

    def expect(self, text: str) -> None:
        if not self.take(text):
            self.fail(f"expected {text!r}, found {self.token.text!r}" if self.token.text else f"expected {text!r}")

    def expression(self) -> Expression:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"more than {MAX_DEPTH} levels of brackets")
        left = self.conjunction()
        while self.take("or"):
            left = self.logic("or", left, self.conjunction())
        self.depth -= 1
        return left

    def conjunction(self) -> Expression:
        left = self.negation()
        while self.take("and"):
            left = self.logic("and", left, self.negation())
        return left

    def negation(self) -> Expression:
        times = 0
        while self.take("not"):
            times += 1
        inner = self.comparison()
        for _ in range(times):
            inner = self.logic("not", inner)
        return inner

    def comparison(self) -> Expression:
        left, start = self.sum(), self.token.at
        operator = self.take(*COMPARE)
        if not operator:
            return left
        right = self.sum()
        if None not in (left.kind, right.kind) and left.kind is not right.kind:
            self.fail(f"{operator!r} compares {left.kind} with {right.kind}; text() and number() convert", start)
        return Operation(COMPARE[operator], (left, right), Kind.BOOL)

    def sum(self) -> Expression:
        left, start = self.product(), self.token.at
        while operator := self.take("+", "-"):
            left, start = self.arithmetic(operator, start, left, self.product()), self.token.at
        return left

    def product(self) -> Expression:
        left, start = self.unary(), self.token.at
        while operator := self.take("*", "/", "%"):
            left, start = self.arithmetic(operator, start, left, self.unary()), self.token.at
        return left

    def unary(self) -> Expression:
        start, signs = self.token.at, 0
        while self.take("-"):
            signs += 1
        inner = self.primary()
        for _ in range(signs):
            inner = self.arithmetic("neg", start, inner)
        return inner

    def primary(self) -> Expression:
        token = self.token
        if token.kind == "mark" and self.take("("):
            inner = self.expression()
            self.expect(")")
            return inner
        if token.kind in ("mark", "end"):
            self.fail(f"expected a value, found {token.text!r}" if token.text else "expected a value")
        self.at += 1
        if token.kind == "number":
            is_whole = token.text.isascii() and token.text.isdigit() and len(token.text) <= 18
            return Literal(int(token.text) if is_whole else float(token.text), Kind.NUMBER)
        if token.kind == "text":
            return Literal(token.text[1:-1].replace("''", "'"), Kind.TEXT)
        if token.kind == "quoted":
            return self.reference(token.text[1:-1].replace("``", "`"), token.at)
        return self.named(token)

    def named(self, token: _Token) -> Expression:
        word = token.text.lower()
        if word in ("true", "false"):
            return Literal(word == "true", Kind.BOOL)
        if word == "null":
            return Literal(None, None)
        if word == "case":
            return self.case(token.at)
        if self.take("("):
            return self.conditional(token.at) if word == "if" else self.call(word, token.at)
        if word in KEYWORDS:
            self.fail(f"{token.text!r} cannot stand here", token.at)
        return self.reference(token.text, token.at)

    def reference(self, name: str, at: int) -> Expression:
        return self.resolve(name) or self.fail(f"no column {name!r}", at)

    def logic(self, operator: str, *operands: Expression) -> Expression:
        for operand in operands:
            if operand.kind not in (Kind.BOOL, None):
                self.fail(f"{operator!r} needs true or false, got {operand.kind}")
        return Operation(operator, operands, Kind.BOOL)

    def arithmetic(self, operator: str, at: int, *operands: Expression) -> Expression:
        for operand in operands:
            if operand.kind not in (Kind.NUMBER, None):
                sign = "-" if operator == "neg" else operator
                self.fail(f"{sign!r} needs numbers, got {operand.kind}; number() converts", at)
        return Operation(operator, operands, Kind.NUMBER)

    def arguments(self) -> tuple[Expression, ...]:
        found: list[Expression] = []
        if self.take(")"):
            return ()
        found.append(self.expression())
        while self.take(","):
            found.append(self.expression())
        self.expect(")")
        return tuple(found)

    def call(self, name: str, at: int) -> Expression:
        function = FUNCTIONS.get(name)
        if function is None:
            self.fail(f"no function {name!r}; there are if, {', '.join(FUNCTIONS)}", at)
        arguments, needed = self.arguments(), len(function.arguments)
        if len(arguments) < needed or (len(arguments) > needed and not function.variadic):
            more = " or more" if function.variadic else ""
            self.fail(f"{name} takes {needed}{more} arguments, got {len(arguments)}", at)
        for number, argument in enumerate(arguments):
            kinds = function.arguments[min(number, needed - 1)]
            if argument.kind is not None and argument.kind not in kinds:
                wanted = " or ".join(sorted(kinds))
                self.fail(f"argument {number + 1} of {name} is {wanted}, got {argument.kind}", at)
        first = arguments[0]
        if function.choices and not (isinstance(first, Literal) and first.value in function.choices):
            self.fail(f"argument 1 of {name} is one of {', '.join(map(repr, function.choices))}", at)
        if function.result is not None:
            return Call(name, arguments, function.result)
        return Call(name, arguments, self.common_kind(arguments, at))

    def conditional(self, at: int) -> Expression:
        arguments = self.arguments()
        if len(arguments) != 3:
            self.fail(f"if takes 3 arguments, got {len(arguments)}: if(condition, value, otherwise)", at)
        return self.checked_case(((arguments[0], arguments[1]),), arguments[2], at)

    def case(self, at: int) -> Expression:
        branches: list[tuple[Expression, Expression]] = []
        while self.take("when"):
            condition = self.expression()
            self.expect("then")
            branches.append((condition, self.expression()))
        if not branches:
            self.fail("expected 'when'")
        otherwise: Expression = self.expression() if self.take("else") else Literal(None, None)
        self.expect("end")
        return self.checked_case(tuple(branches), otherwise, at)

    def checked_case(self, branches: tuple[tuple[Expression, Expression], ...], otherwise: Expression, at: int) -> Case:
        for condition, _ in branches:
            if condition.kind not in (Kind.BOOL, None):
                self.fail(f"a condition is true or false, got {condition.kind}", at)
        return Case(branches, otherwise, self.common_kind((*(value for _, value in branches), otherwise), at))

    def common_kind(self, values: tuple[Expression, ...], at: int) -> Kind | None:
        kinds = {value.kind for value in values if value.kind is not None}
        if len(kinds) > 1:
            self.fail(f"the values are {' and '.join(sorted(kinds))}; they must be of one kind", at)
        return next(iter(kinds), None)
