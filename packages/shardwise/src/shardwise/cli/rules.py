"""``shardwise rules``: lists the op rules, or shows one."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

import click

from shardwise.diagnostics.result import ExitCode
from shardwise.op_rules.schema import OpRule

EPILOG = """\b
Examples:
  shardwise rules                              every rule
  shardwise rules --about softmax              the rules that mention a word
  shardwise rules all_reduce                   a collective: from type to type, and its gradient
  shardwise rules matmul                       one rule: law, dims, placements, gradients, costs, torch's way
"""
_DISPATCHED = re.compile(r"(?:torch\.ops\.)?aten(?:::|\.)(\w+)(?:\.\w+)?")
"""A name of the dispatcher, as profilers show it, with or without the overload."""
_ELSEWHERE = {
    "redistribute": "shardwise plan FROM TO, which shows the steps of a move and what they cost",
    "shard": "shardwise rules convert",
    "unshard": "shardwise rules all_gather",
}
"""Calls of ours that others stand for."""
_OPERATOR = re.compile(r"^__[ir]?(\w+)__$")
"""The method behind an operator of Python: ``__add__``, ``__iadd__``, ``__radd__``."""
_MODULES = re.compile(r"^(?:torch\.)?(?:nn\.functional\.|F\.|Tensor\.)?")


@click.command(epilog=EPILOG)
@click.argument("op", required=False)
@click.option("--about", metavar="WORD", help="List only rules whose name, law, labels or kind mention WORD.")
def rules(op: str | None, about: str | None) -> ExitCode:
    """List the op rules, or show what happens to a call of OP: its rule, its placements and gradients along one mesh
    axis, what is left to be summed and what that costs, and what torch makes of it, forward and backward. Of a typed
    collective: what it leads from and to, what its gradient takes, and what a rank receives.

    Exit codes: 0 fine, 2 wrong usage.
    """
    if op is not None:
        click.echo(_page(op))
    else:
        click.echo(_listing(about))
    return ExitCode.CLEAN


def _page(op: str) -> str:
    from shardwise.op_rules.registry import all_rules, lookup

    from .pages.collective_page import KNOWN, collective

    if op.removeprefix("shardwise.") in KNOWN:
        return collective(op.removeprefix("shardwise."))

    from .pages.call_page import call_sections, called_example
    from .pages.rule_page import render

    dispatched = _DISPATCHED.fullmatch(op)
    name = dispatched[1] if dispatched else _MODULES.sub("", op)
    name = _OPERATOR.sub(r"\1", name)
    rule = lookup(op) or lookup(name) or lookup(name.replace("_", ".", 1))
    if rule is None:
        known = [*KNOWN, *(spelling for rule in all_rules() for spelling in (rule.op, *rule.spellings))]
        if (elsewhere := _ELSEWHERE.get(name.removeprefix("shardwise."))) is not None:
            raise click.UsageError(f"no rule for {op!r}; try {elsewhere}")
        near = difflib.get_close_matches(name, known, 3) or difflib.get_close_matches(_last(name), known, 3)
        near = near or (["--about " + shlex.quote(name)] if name else [""])
        tries = ", or ".join(f"shardwise rules {one}".rstrip() for one in near)
        raise click.UsageError(f"no rule for {op!r}; try {tries}")
    rule = _as_asked(rule, (op, name, name.replace("_", ".", 1)))
    example, recorded = called_example(rule)
    return "\n\n".join([render(rule, example), *call_sections(rule, example, recorded)])


def _as_asked(rule: OpRule, names: Sequence[str]) -> OpRule:
    """The rule under the spelling that is asked for: its page has a call of that one."""
    every = (rule.op, *rule.spellings)
    asked = next((name for name in names if name in every), rule.op)
    source = f"torch.{asked}" if rule.source == f"torch.{rule.op}" else rule.source
    return replace(rule, op=asked, source=source, spellings=tuple(one for one in every if one != asked))


def _last(name: str) -> str:
    """``linear`` of ``nn.Linear``: a module is called as its function is, but for capitals."""
    return name.rpartition(".")[2].lower()


def _listing(about: str | None) -> str:
    from shardwise.op_rules.registry import all_rules, lookup

    from .pages.rule_page import signature

    found = []
    for bare in all_rules():
        rule = lookup(bare.op)
        assert rule is not None, "every rule answers to its name"
        dims = signature(rule) or "local rule only"
        found.append((rule.op, rule.kind.value, rule.linear, rule.law, dims, " ".join(rule.spellings)))
    if about is not None:
        found = [one for one in found if any(about.lower() in text.lower() for text in one)]
        if not found:
            raise click.UsageError(f"no rule mentions {about!r}: shardwise rules lists all {len(list(all_rules()))}")
    width = max(len(one[0]) for one in found) + 2
    lines = [f"{op:<{width}}{kind:<10}{law or '-'}; {dims}" for op, kind, _, law, dims, _ in found]
    return "\n".join([*lines, f"{len(found)} rules"])
