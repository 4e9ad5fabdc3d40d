"""How much of the truth about PyTorch's operators do the rules know, and do they ever lie? The sweep, over op_db.

Along an axis of two ranks, every choice of placements of a call's operands (R, S(i) or P; a seeded selection where
there are very many) is judged by the numbers, forward and backward, and put before the rules. Ours are asked for global
types and, with R, I, V and P, for local ones; DTensor's are asked for the same global facts. A ruleset is functions
that the caller hands over. Replicate operands alone are not counted: they are true of everything.
"""

from __future__ import annotations

import contextlib
import math
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.torch_compat import op_database
from shardwise.oracle.global_types import Ask
from shardwise.oracle.local_types import Tensors, check_claim
from shardwise.oracle.rounding import close
from shardwise.oracle.sharded_types import FAILURES, Answer, Fact, Placements, Truth
from shardwise.types.placement import I, P, R, Shard, V

from .apart import GivenUp, run_apart
from .choices import global_choices, local_choices
from .samples import Case, cases_of, draws_numbers, full_name, rule_of, seed_everything
from .skips import SKIPS

AskForeign = Callable[
    [Callable[..., Any], Sequence[torch.Tensor], Placements, Sequence[torch.Tensor]], tuple[Answer, list[torch.Tensor]]
]
LIMITS = {"float": 40, "complex": 24, "int": 24}
"""Choices of placements per case."""
TIMEOUT_S = 120
"""For one entry of the database."""


@dataclass(frozen=True)
class Rulesets:
    """What is asked. ``foreign``: other rules, for the same global facts.

    ``needs_even``  whether the claim that ``globally`` makes is for shards of equal sizes, and says so.
    """

    globally: Ask
    locally: Ask
    needs_even: Callable[[Callable[..., Any], Sequence[torch.Tensor], Placements], bool]
    foreign: AskForeign | None = None


MakeBooks = Callable[[], contextlib.AbstractContextManager[Rulesets]]


@dataclass(frozen=True, slots=True)
class Note:
    """One lie or one gap. ``ruleset``: ``"global"``, ``"local"`` or ``"foreign"``."""

    ruleset: str
    call: str
    fact: str
    reason: str


@dataclass
class Tally:
    """What the sweep found about one entry of the database.

    ``rule``      name of the rule that describes it, empty if there is none.
    ``covered``  facts that the rules know, by ruleset. ``wrong``: its lies; ``missing``: facts that it refuses.
    ``even``     global facts that our rules refuse and that hold for shards of equal sizes only.
    ``skipped``  why nothing was tried, or empty. ``failed``: samples that could not be run, with the reason.
    """

    name: str
    skipped: str = ""
    rule: str = ""
    cases: int = 0
    covered: dict[str, int] = field(default_factory=lambda: {"global": 0, "local": 0, "foreign": 0})
    wrong: list[Note] = field(default_factory=list)
    missing: list[Note] = field(default_factory=list)
    even: int = 0
    failed: list[str] = field(default_factory=list)


def tallies_of(
    names: Iterable[str] | None,
    make_rulesets: MakeBooks,
    *,
    jobs: int = 2,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> list[Tally]:
    """A tally per entry of the database, in its order; ``names``: full names of the entries (None: all).

    Each is tried in a process of its own, ``jobs`` at a time; 0: in this one. ``make_books`` is entered in each.
    Errors: ImportError if the database cannot be loaded.
    """
    wanted = None if names is None else set(names)
    entries = {full_name(op): op for op in op_database() if wanted is None or full_name(op) in wanted}
    rules = {name: _rule_name(op) for name, op in entries.items()}  # loads the registry before the first fork
    found = []
    for tally in _tallies(list(entries), make_rulesets, jobs):
        tally.rule = rules[tally.name]
        progress(tally)
        found.append(tally)
    return found


def _rule_name(op: Any) -> str:
    rule = rule_of(op)
    return "" if rule is None else rule.op


def _tallies(names: Sequence[str], make_rulesets: MakeBooks, jobs: int) -> Iterator[Tally]:
    if jobs == 0:
        with make_rulesets() as rulesets:
            yield from (tally_of(name, rulesets) for name in names)
        return

    def run(name: str) -> Tally:
        torch.set_num_threads(1)
        with make_rulesets() as rulesets:
            return tally_of(name, rulesets)

    for name, tally in zip(names, run_apart(run, names, jobs=jobs, timeout_s=TIMEOUT_S), strict=True):
        yield Tally(name, skipped=tally.reason) if isinstance(tally, GivenUp) else tally


def tally_of(name: str, rulesets: Rulesets) -> Tally:
    """What the rules know about the entry called ``name``."""
    op = next(op for op in op_database() if full_name(op) == name)
    tally = Tally(name, SKIPS.get(op.name, ""))
    if tally.skipped:
        return tally
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases_of(op):
            _try_case(case, rulesets, tally)
    if not tally.cases and not tally.skipped:
        tally.skipped = tally.failed[0] if tally.failed else "no sample has a dense tensor among its arguments"
    return tally


def _try_case(case: Case, rulesets: Rulesets, tally: Tally) -> None:
    seed_everything(case.shown)
    try:
        if draws_numbers(case):
            tally.failed.append("random")
            return
        case, truth = _differentiable(case)
    except FAILURES as error:
        tally.failed.append(f"{type(error).__name__}: {error}".splitlines()[0])
        return
    if not truth.wholes[0][1]:
        tally.failed.append("its result has no tensor")
        return
    tally.cases += 1
    judge_globally(case, truth, rulesets, tally)
    judge_locally(case, rulesets.locally, tally)


def _differentiable(case: Case) -> tuple[Case, Truth]:
    """The case and its truth; forward only where an operand must not require a gradient, such as a running mean."""
    try:
        return case, _truth(case, 2)
    except RuntimeError:
        fn = case.fn
        forward = replace(case, fn=lambda *given: fn(*[tensor.detach() for tensor in given]))
        return forward, _truth(forward, 2)


def _truth(case: Case, size: int) -> Truth:
    try:
        return Truth(case.fn, case.values, size=size, others=case.others)
    except FAILURES:
        return Truth(case.fn, case.values, size=size, value_sets=1)


def judge_globally(case: Case, truth: Truth, rulesets: Rulesets, tally: Tally) -> None:
    """Put every choice of R, S(i) and P to the global rules."""
    idle = [not _matters(case.fn, case.values, at) for at in range(len(case.values))]
    apart = _never_meet(case)
    for operands in global_choices(case.values, LIMITS[case.kind], random.Random(0)):
        true = {fact for fact in truth.facts(operands) if not truth.is_accident(fact)}
        if any(place is P and unused for place, unused in zip(operands, idle, strict=True)):
            true = set()  # nobody has a pending sum where a value makes no difference
        telling = {place for place, value in zip(operands, case.values, strict=True) if value.ndim or place is P}
        if apart and len(telling) > 1:
            true = set()  # operands that never meet are calls of their own: counted together, in one way
        _judge_ours(case, truth, operands, true, rulesets, tally)
        if rulesets.foreign is not None:
            _judge_foreign(case, truth, operands, true, rulesets.foreign, tally)


def _judge_ours(
    case: Case, truth: Truth, operands: Placements, true: set[Fact], rulesets: Rulesets, tally: Tally
) -> None:
    refusal = ""
    for local in _of_other_shapes(truth.locals(operands)):  # a claim must hold for every rank's shapes
        answer = truth.spoken(rulesets.globally(case.fn, local, operands))
        if isinstance(answer, str):
            refusal = refusal or answer
            continue
        lie = truth.refute(operands, answer)
        if lie is not None and rulesets.needs_even(case.fn, local, operands):
            even = _even_truth(case, operands)
            lie = lie if even is None else even.refute(operands, answer)
        if lie is not None:
            claim = ", ".join("no claim" if place is None else repr(place) for place in answer)
            shown = f"{', '.join(map(repr, operands))} -> {claim}"
            tally.wrong.append(Note("global", case.shown, shown, lie))
            return
        if any(place is None for place in answer):
            refusal = refusal or "no claim"
    if not true:
        return
    if not refusal:
        tally.covered["global"] += 1
        return
    fact = min(true, key=str)
    if _holds_for_even_shards_only(case, operands, true):
        tally.even += 1
    else:
        tally.missing.append(Note("global", case.shown, str(fact), refusal))


def _of_other_shapes(ranks: Sequence[Tensors]) -> list[Tensors]:
    """The ranks' tensors, one rank of all that have tensors of the same shapes."""
    return list({tuple(tensor.shape for tensor in local): local for local in ranks}.values())


def _even_truth(case: Case, operands: Placements) -> Truth | None:
    """The numbers along an axis that cuts every sharded dim into equal pieces, None if there is no such axis."""
    extents = [v.shape[place.dim] for v, place in zip(case.values, operands, strict=True) if isinstance(place, Shard)]
    common = math.gcd(*extents)
    size = next((size for size in range(2, common + 1) if common % size == 0), None)
    return None if size is None else _truth(case, size)


def _holds_for_even_shards_only(case: Case, operands: Placements, true: set[Fact]) -> bool:
    """Three ranks cut dims whose sizes two ranks cut evenly into pieces of unequal sizes."""
    try:
        wider = _truth(case, 3)
        return operands in wider.cuts() and not true & wider.facts(operands)
    except FAILURES:
        return False


def _judge_foreign(
    case: Case, truth: Truth, operands: Placements, true: set[Fact], ask: AskForeign, tally: Tally
) -> None:
    """The claim of the other rules is about the forward pass only.

    It cannot be compared where the plain call fails, or gives something else than their own run.
    """
    if truth.failure(operands):
        return
    answer, own = ask(case.fn, truth.locals(operands)[0], operands, truth.values[0])
    answer = truth.spoken(answer)
    if isinstance(answer, str):
        reason = answer
    elif len(answer) != len(truth.wholes[0][1]):
        reason = "another number of results"
    else:
        reason = "a placement that is none of R, S(i) and P" if None in answer else ""
        lie = truth.refute_forward(operands, answer)
        if lie is not None:
            if not all(close(a.detach(), b) for a, b in zip(truth.first_rank(operands), own, strict=True)):
                return
            claim = ", ".join("something else" if place is None else repr(place) for place in answer)
            tally.wrong.append(Note("foreign", case.shown, f"{', '.join(map(repr, operands))} -> {claim}", lie))
            return
    if true:
        if not reason:
            tally.covered["foreign"] += 1
        else:
            tally.missing.append(Note("foreign", case.shown, str(min(true, key=str)), reason))


def judge_locally(case: Case, ask: Ask, tally: Tally) -> None:
    """Put the telling choices of R, I, V and P to the local rules."""
    for operands in local_choices(case.values):
        answer = ask(case.fn, case.values, operands)
        shown = ", ".join(map(repr, operands))
        if not isinstance(answer, str) and None not in answer:
            claim = answer[0] if len(set(answer)) == 1 else answer
            lie = _refute_locally(case.fn, case.values, operands, claim)
            if lie is None:
                tally.covered["local"] += 1
            else:
                claimed = ", ".join(dict.fromkeys(map(repr, answer))) if claim is not answer else repr(answer)
                tally.wrong.append(Note("local", case.shown, f"{shown} -> {claimed}", str(lie)))
            continue
        if I in operands and len(set(operands)) > 1:
            continue  # refused by meaning, however the numbers come out: docs/semantics.md section 3
        true = _true_locally(case, operands)
        if true is not None:
            refusal = answer if isinstance(answer, str) else "no claim"
            tally.missing.append(Note("local", case.shown, f"{shown} -> {true!r}", refusal))


def _true_locally(case: Case, operands: Sequence[Any]) -> Any:
    """A result type that the numbers confirm, None if there is none that is no accident."""
    sets = (case.values, case.others or case.values)
    if any(place is P and not _matters(case.fn, case.values, at) for at, place in enumerate(operands)):
        return None
    if P in operands and _agree(case.fn, *sets):
        return None  # a constant, or nothing but NaN: an accident
    for claim in (P,) if P in operands else (V,) if V in operands else (R, I):
        if not any(_refute_locally(case.fn, values, operands, claim, seed) for seed, values in enumerate(sets)):
            return claim
    return None


def _agree(fn: Callable[..., Any], *sets: Sequence[torch.Tensor]) -> bool:
    first, second = (tensors_in(fn(*[value.clone() for value in values])) for values in sets)
    return all(close(a, b) for a, b in zip(first, second, strict=True))


def _refute_locally(
    fn: Callable[..., Any], values: Sequence[torch.Tensor], operands: Sequence[Any], claim: Any, seed: int = 0
) -> str | None:
    if P in operands and V in operands:  # only one of them counts: the other lends its shape or dtype
        operands = [place if place is R or _matters(fn, values, at) else R for at, place in enumerate(operands)]
    try:
        lie = check_claim(fn, values, operands, claim, seed=seed)
    except FAILURES:  # no derivative, or none for these values
        lie = check_claim(lambda *given: [out.detach() for out in tensors_in(fn(*given))], values, operands, claim)
    if lie is not None and claim is V and P not in operands and lie.phase == "forward":
        return None  # a rank's own values are outside the operator's domain
    return None if lie is None else str(lie)


def _never_meet(case: Case) -> bool:
    """True if there is a result for every operand, and no other operand has a part in it."""
    count = len(case.values)
    whole = tensors_in(case.fn(*case.values))
    if count < 2 or len(whole) != count:
        return False
    for at, value in enumerate(case.values):
        changed = tensors_in(case.fn(*case.values[:at], value + 1, *case.values[at + 1 :]))
        if any(not close(a, b) for other, (a, b) in enumerate(zip(whole, changed, strict=True)) if other != at):
            return False
    return True


def _matters(fn: Callable[..., Any], values: Sequence[torch.Tensor], at: int) -> bool:
    """False if the operand's values can be others without a difference."""
    other = values[at].flip(0) + 1 if values[at].ndim else values[at] + 1
    try:
        return not _agree(fn, values, [*values[:at], other, *values[at + 1 :]])
    except FAILURES:
        return True
