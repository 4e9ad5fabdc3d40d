"""The page and the summary that are made of the sweep's data, docs/coverage.json."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shardwise.op_rules.registry import lookup

from .families import family

_HEAD = """\
# What the op rules cover

PyTorch's own list of operators, with its own sample inputs, is the examination. For every operator and a few calls of
it, every choice of placements of its tensors along an axis of two ranks (very many: a fixed selection) is tried out
with numbers: the operator runs on each rank's part, and what comes out is put together and compared with the operator
on the whole; then the same for gradients. What holds is a *fact*. Operands that are all replicate are not counted.

- **covered**: a fact that the rules know. **missing**: one that they refuse. **wrong**: a claim that is refuted.
- *global* facts are about which dims are sharded, *local* ones about R, I, V and P alone.
- DTensor {torch} is asked about the same global facts. It admits one if its dispatch runs the operator on these
  placements without redistributing an operand and names a placement of the result; its claims are held to the forward
  pass only, and only where it runs what the plain call runs. Claims that it could repair by communicating later, such
  as a mean that is pending, are not counted against it, and facts about sizes in a call (`view`) favour us: we read
  them as a rank's, DTensor as global ones.
- Four floating samples are in double precision where the operator has it, so that rounding is not mistaken for a lie;
  two in single precision, one complex and one integer sample are added where the operator takes them.
"""


@dataclass
class Count:
    """Facts about one group of operators under one ruleset."""

    covered: int = 0
    missing: int = 0
    wrong: int = 0

    @property
    def share(self) -> str:
        """Covered facts in percent."""
        whole = self.covered + self.missing
        return f"{100 * self.covered / whole:.1f} %" if whole else "-"


def count(ops: Iterable[Any], ruleset: str) -> Count:
    """The facts about ``ops`` under ``"global"``, ``"local"`` or ``"foreign"``."""
    total = Count()
    for op in ops:
        total.covered += op["covered"][ruleset]
        if ruleset == "foreign":
            total.missing += op["foreign"]["missing"]
            total.wrong += op["foreign"]["wrong"]
        else:
            total.missing += sum(gap["count"] for gap in op["missing"] if gap["ruleset"] == ruleset)
            total.wrong += sum(lie["ruleset"] == ruleset for lie in op["wrong"])
    return total


def summary(data: Any) -> str:
    """The figures, one line per ruleset."""
    ops = data["ops"]
    tried = sum(bool(op["cases"]) for op in ops)
    ruleless = [op["name"] for op in ops if op["rule"] is None and op["no_rule"] is None]
    lines = [f"{len(ops)} entries of the database, {tried} tried with {sum(op['cases'] for op in ops)} calls"]
    for ruleset, name in _RULESETS:
        total = count(ops, ruleset)
        lines.append(
            f"{name:<24}covered {total.covered:>6} ({total.share})  missing {total.missing}  wrong {total.wrong}"
        )
    unlisted = sum(gap["count"] for op in ops for gap in op["missing"] if gap["reason"] is None)
    lines.append(f"missing without a listed reason: {unlisted}; entries without a rule or a reason: {len(ruleless)}")
    return "\n".join(lines)


_RULESETS = (("global", "shardwise, global"), ("local", "shardwise, local"), ("foreign", "DTensor, global"))


def render(data: Any) -> str:
    """The page, as Markdown."""
    parts = [_HEAD.replace("{torch}", f"of torch {data['torch']}"), _figures(data), _families(data), _wrong(data)]
    parts += [_missing(data), _foreign(data), _untried(data)]
    return "\n".join(parts)


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _figures(data: Any) -> str:
    ops = data["ops"]
    lines = ["## In figures", "", _row("ruleset", "covered", "of all facts", "missing", "wrong"), _row(*["---"] * 5)]
    for ruleset, name in _RULESETS:
        total = count(ops, ruleset)
        lines.append(_row(name, total.covered, total.share, total.missing, total.wrong))
    even = sum(op["even"] for op in ops)
    tried = [op for op in ops if op["cases"]]
    lines += [
        "",
        f"{len(ops)} entries of the database, {len(tried)} of them tried, with {sum(op['cases'] for op in ops)} calls. "
        f"{even} global facts that hold for shards of equal sizes only, and that the rules refuse, are not counted.",
        "",
    ]
    return "\n".join(lines)


def _families(data: Any) -> str:
    groups: dict[str, list[Any]] = defaultdict(list)
    for op in data["ops"]:
        rule = None if op["rule"] is None else lookup(op["rule"])
        groups["no rule" if rule is None else family(rule)].append(op)
    lines = ["## By family", "", "Global facts.", ""]
    lines += [_row("family", "entries", "covered", "missing", "wrong", "DTensor covers", "misses", "is wrong")]
    lines += [_row(*["---"] * 8)]
    for name, ops in sorted(groups.items()):
        ours, foreign = count(ops, "global"), count(ops, "foreign")
        cells = (ours.covered, ours.missing, ours.wrong, foreign.covered, foreign.missing, foreign.wrong)
        lines.append(_row(name, len(ops), *cells))
    return "\n".join([*lines, ""])


def _wrong(data: Any) -> str:
    lies = [(op["name"], lie) for op in data["ops"] for lie in op["wrong"]]
    lines = ["## Wrong", "", "None." if not lies else "Claims of the rules that the numbers refute:", ""]
    lines += [f"- `{name}({lie['call']})`, {lie['ruleset']}: {lie['fact']}: {lie['reason']}" for name, lie in lies]
    return "\n".join([*lines, ""] if lies else lines)


def _missing(data: Any) -> str:
    reasons: dict[tuple[str, str], list[tuple[str, Any]]] = defaultdict(list)
    for op in data["ops"]:
        for gap in op["missing"]:
            reasons[gap["ruleset"], gap["reason"] or ""].append((op["name"], gap))
    lines = ["## Missing, and why", "", _row("ruleset", "facts", "why", "operators"), _row(*["---"] * 4)]
    for (ruleset, reason), gaps in sorted(reasons.items(), key=lambda one: -sum(gap["count"] for _, gap in one[1])):
        if reason:
            names = ", ".join(f"`{name}`" for name in dict.fromkeys(name for name, _ in gaps))
            lines.append(_row(ruleset, sum(gap["count"] for _, gap in gaps), reason, names))
    unlisted = sorted(
        ((name, gap) for (_, reason), gaps in reasons.items() if not reason for name, gap in gaps),
        key=lambda one: (-one[1]["count"], one[0]),
    )
    if unlisted:
        lines += ["", "No reason is listed for these yet:", ""]
        lines += [_row("operator", "ruleset", "facts", "refused with", "smallest example"), _row(*["---"] * 5)]
        lines += [_row(f"`{n}`", g["ruleset"], g["count"], g["code"], f"`{g['example']}`") for n, g in unlisted]
    return "\n".join([*lines, ""])


def _foreign(data: Any) -> str:
    wrong = [op for op in data["ops"] if op["foreign"]["wrong"]]
    lines = ["## Where DTensor's claims are wrong", ""]
    if not wrong:
        return "\n".join([*lines, "Nowhere in this sweep.", ""])
    lines += [_row("operator", "claims", "for example"), _row(*["---"] * 3)]
    lines += [_row(f"`{op['name']}`", op["foreign"]["wrong"], f"`{op['foreign']['example']}`") for op in wrong]
    return "\n".join([*lines, ""])


def _untried(data: Any) -> str:
    reasons: dict[str, list[str]] = defaultdict(list)
    for op in data["ops"]:
        if op["rule"] is None:
            reasons[f"no rule: {op['no_rule'] or 'no reason listed'}"].append(op["name"])
        if op["skipped"] is not None:
            reasons[f"not tried: {op['skipped']}"].append(op["name"])
    lines = ["## Not tried, and without a rule", ""]
    for reason, names in sorted(reasons.items(), key=lambda one: -len(one[1])):
        lines.append(f"- {reason}: {', '.join(f'`{name}`' for name in names)}")
    return "\n".join([*lines, ""])
