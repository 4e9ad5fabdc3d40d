"""``shardwise einsum``: the sharding of an einsum, forward and backward, and what would make it legal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.result import ExitCode

from .options.usage import wrong_usage

if TYPE_CHECKING:
    from shardwise.op_rules.propagation.einsum_calculus import Einsum, EinsumVerdict, Line, Placing

EPILOG = """\b
Examples:
  shardwise einsum "sbi,io->sbo" "s@dp" "o@tp"         column-parallel linear
  shardwise einsum "bsh,hd->bsd" "h@tp" "h@tp"         row-parallel: a pending sum
  shardwise einsum "bhqd,bhkd->bhqk" "q@cp" "k@cp"     refused, with the ways out
"""

_MOST_WAYS = 4
_PLACEMENT = re.compile(r"(?:S\((?P<shard>\w)\)|(?P<word>\w))@(?P<axis>\w+)")


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})  # "->b" is an equation
@click.argument("equation")
@click.argument("operands", nargs=-1)
def einsum(equation: str, operands: tuple[str, ...]) -> ExitCode:
    """Work out the sharding of an einsum, forward and backward, per mesh axis.

    EQUATION has one letter per dim. Each of OPERANDS says what one operand is, e.g. "s@dp i@tp" or "S(s)@dp P@tp":
    a label sharded over an axis, or R, I or P; what is not said is R.

    Exit codes: 0 legal, 1 illegal along some axis, 2 wrong usage.
    """
    from shardwise.op_rules.propagation.einsum_calculus import Einsum

    for word in (equation, *operands):
        if word.startswith("-") and not word.startswith("->"):
            raise click.NoSuchOption(word, ctx=click.get_current_context())
    try:
        product = Einsum(equation)
        axes, placings = _read(product, operands)
    except SpmdValueError as error:
        raise wrong_usage(error) from None
    verdicts = [product.judge(axis, placings[axis]) for axis in axes]
    click.echo("\n\n".join(_text(one, _ways(product, placings[one.axis]) if one.refused else ()) for one in verdicts))
    return ExitCode.FINDINGS if any(verdict.refused for verdict in verdicts) else ExitCode.CLEAN


def _read(product: Einsum, operands: Sequence[str]) -> tuple[list[str], dict[str, list[Placing]]]:
    """The axes in the order in which they are named, and every operand's placement on each."""
    from shardwise.op_rules.propagation.einsum_calculus import Placing
    from shardwise.types.placement import PerMeshAxisLocalSpmdType, R, V

    count = len(product.operands)
    if len(operands) > count:
        terms = ",".join("".join(term) for term in product.operands)
        raise SpmdValueError(
            f"{len(operands)} operands are described, {', '.join(map(repr, operands))}, and the equation has "
            f"{count}, {terms!r}: say one text for each, in their order"
        )
    placings: dict[str, list[Placing]] = {}
    said: set[tuple[int, str]] = set()
    for at, text in enumerate(operands):
        words = text.replace(",", " ").split()
        for word in words:
            match = _PLACEMENT.fullmatch(word)
            if match is None:
                whole = "; leave out a label that no axis cuts, and say '' for an operand that is whole"
                raise SpmdValueError(
                    f"{word!r} is not a placement: expected label@axis, S(label)@axis, R@axis, I@axis or P@axis"
                    + (whole if word in product.operands[at] else "")
                )
            axis = match["axis"]
            if (at, axis) in said:
                raise SpmdValueError(
                    f"operand {at + 1} is placed twice on {axis}, in {text!r}: say one placement per axis"
                )
            said.add((at, axis))
            label = match["shard"] or (match["word"] if match["word"] not in ("R", "I", "P") else "")
            if label and label not in product.operands[at]:
                labels = ", ".join(product.operands[at])
                raise SpmdValueError(
                    f"operand {at + 1} has no label {label!r}, in {text!r}: expected one of {labels or 'none'}"
                )
            row = placings.setdefault(axis, [Placing(R)] * count)
            row[at] = Placing(V, label) if label else Placing(PerMeshAxisLocalSpmdType(match["word"]))
    if not placings:
        raise SpmdValueError("nothing is placed on any mesh axis", help=('shardwise einsum "bi,io->bo" "b@dp"',))
    return list(placings), placings


def _ways(product: Einsum, placings: Sequence[Placing]) -> Iterator[str]:
    """The cheapest ways out of an illegal einsum, as the steps and what they lead to."""
    from shardwise.planner.repairs import einsum_repairs
    from shardwise.types.placement import Shard

    def shown(position: int, placement: object) -> str:
        labels = product.operands[position]
        return f"S({labels[placement.dim]})" if isinstance(placement, Shard) else repr(placement)

    for repair in einsum_repairs(product.operands, product.result, placings)[:_MOST_WAYS]:
        steps = (
            f"{one.op} operand {one.position + 1} {shown(one.position, one.src)} -> {shown(one.position, one.dst)}"
            for one in repair.steps
        )
        yield f"{' and '.join(steps)}: result {repair.result}"


def _text(verdict: EinsumVerdict, ways: Iterable[str]) -> str:
    lines = [f"axis {verdict.axis}"]
    lines += _table("forward", verdict.forward)
    if verdict.refused:
        lines.append(f"  illegal ({verdict.code}): {verdict.refused}")
        lines += [f"    legal after: {way}" for way in ways]
    else:
        lines += _table("backward", verdict.backward)
    return "\n".join(lines)


def _table(title: str, rows: Sequence[Line]) -> list[str]:
    name = max(len(row.tensor) for row in rows)
    labels = max(len(row.labels) for row in rows)
    place = max(len(str(row.placing)) for row in rows)
    return [
        f"  {title}",
        *(
            f"    {row.tensor:<{name}}  {row.labels:<{labels}}  {row.placing!s:<{place}}  {row.why}".rstrip()
            for row in rows
        ),
    ]
