"""Is what should be equal on all ranks of an axis computed alike on them? Pure: expressions in, findings out.

A value typed R or I is the same expression of the same operands, numbers, slices and random draws on every rank of the
axis; where it is, no numbers are needed to know it equal. Expressions are compared at the same place of the program,
the n-th with the n-th. Where a call parts from that of another rank, it is a mistake only if its value is used as an
equal one: a slice that each rank takes of its own and that meets a shard next is none. What follows from it is no
mistake of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from shardwise.diagnostics.finding import Diagnosis, Finding
from shardwise.diagnostics.printing.ranks import ranks_text
from shardwise.diagnostics.source_location import Operand as ShownOperand
from shardwise.diagnostics.source_location import SourceLocation

from .expressions import TAKEN_BY, UNKNOWN, EqualValue, TakenTensor

Group = tuple[str, tuple[int, ...]]
_SHOWN_CHARACTERS = 60


def incongruent(expressions: Mapping[int, Sequence[EqualValue]]) -> tuple[Finding, ...]:
    """What ranks compute differently and use as equal; one finding for each place and axis."""
    groups = {group for told in expressions.values() for one in told for group in one.groups}
    found: dict[object, Finding] = {}
    for group in sorted(groups):
        ranks = [rank for rank in group[1] if rank in expressions]
        if len(ranks) > 1:
            for finding in _of_group(group, {rank: expressions[rank] for rank in ranks}):
                found.setdefault((finding.code, finding.location, finding.axis), finding)
    return tuple(found.values())


def equal_draws(expressions: Mapping[int, Sequence[EqualValue]]) -> frozenset[tuple[SourceLocation | None, str]]:
    """Places and axes at which every rank has drawn its random numbers from a generator in the same state."""
    proven: dict[tuple[SourceLocation | None, str], bool] = {}
    groups = {group for told in expressions.values() for one in told if one.state for group in one.groups}
    for group in groups:
        ranks = {rank: expressions[rank] for rank in group[1] if rank in expressions}
        for meeting in _meetings(group, ranks):
            first = meeting[min(meeting)]
            if first.state:
                same = len(meeting) == len(ranks) and len({one.state for one in meeting.values()}) == 1
                at = first.location, group[0]
                proven[at] = proven.get(at, True) and same
    return frozenset(at for at, same in proven.items() if same)


def _of_group(group: Group, expressions: Mapping[int, Sequence[EqualValue]]) -> Iterator[Finding]:
    meetings = list(_meetings(group, expressions))
    used = {
        operand
        for meeting in meetings
        if _parts_ways(meeting)
        for one in meeting.values()
        for operand in map(_stem, one.operands)
    } - {UNKNOWN}
    explained: set[str] = set()
    for meeting in meetings:
        if not _parts_ways(meeting):
            continue
        digests = {one.digest for one in meeting.values()}
        if len({one.own for one in meeting.values()}) > 1:
            explained |= digests
            if _is_use(meeting) or digests & used:
                yield _own_difference(group, meeting)
            continue
        # It differs by its operands alone: what parted before has been told, or stands where ranks take other branches.
        if not any(_stem(operand) in explained for one in meeting.values() for operand in one.operands):
            yield from _other_operands(group, meeting)
        explained |= digests


def _is_use(meeting: Mapping[int, EqualValue]) -> bool:
    """Somebody says that it is equal, or hands it to a collective."""
    return any(one.value or not one.made for one in meeting.values())


def _stem(operand: TakenTensor) -> str:
    """The digest of the call that made the operand, of several results that it has."""
    return operand.digest.partition(".")[0]


def _meetings(group: Group, expressions: Mapping[int, Sequence[EqualValue]]) -> Iterator[Mapping[int, EqualValue]]:
    """What the ranks compute at one place, the n-th time; in the order of the first rank. Some ranks may be missing.

    Ranks of which one has read numbers that nobody knows before another has are not compared any more.
    """
    met: dict[tuple[str, int], dict[int, EqualValue]] = defaultdict(dict)
    for rank, told in expressions.items():
        counts: Counter[str] = Counter()
        for one in told:
            if group in one.groups:
                counts[one.key] += 1
                met[one.key, counts[one.key]][rank] = one
    # Where ranks come more or less often, nobody knows which times belong together.
    often = Counter(key for key, _ in met)
    for (key, _), meeting in met.items():
        alike = len({one.blind for one in meeting.values()}) == 1
        if len(meeting) > 1 and alike and len(met[key, often[key]]) == len(met[key, 1]):
            yield meeting


def _parts_ways(meeting: Mapping[int, EqualValue]) -> bool:
    return len({one.digest for one in meeting.values()}) > 1


def _own_difference(group: Group, meeting: Mapping[int, EqualValue]) -> Finding:
    (rank, one), (other, two) = _odd(meeting, lambda each: each.own)
    axis = group[0]
    where = f"over {axis}" if axis else f"over {ranks_text(group[1])}"
    if one.op != two.op:
        code, what = "SW507", f"it is {one.op} on rank {rank} and {two.op} on rank {other}"
    elif not one.made:
        parts = _different(one.plain, two.plain)
        message = f"{one.op} {where} takes {parts[0]} on rank {rank} and {parts[1]} on rank {other}"
        return _finding("SW505", message, ("give it the same arguments on every rank",), axis, meeting)
    elif one.plain != two.plain:
        parts = _different(one.plain, two.plain)
        code, what = "SW507", f"{one.op} takes {parts[0]} on rank {rank} and {parts[1]} on rank {other}"
    elif one.state != two.state:
        code, what = "SW509", f"{one.op} draws from a generator in another state on rank {rank} than on rank {other}"
    elif one.op.startswith(TAKEN_BY):
        taker = one.op.removeprefix(TAKEN_BY)
        message = f"{taker} takes it for equal {where}, and its values on rank {rank} are not those on rank {other}"
        help = _HELP["SW508"] if taker in _OF_PARAMETERS else _GIVE_THE_SAME
        return _finding("SW508", message, help, axis, meeting)
    else:
        code, what = "SW508", f"its values on rank {rank} are not those on rank {other}"
    message = f"a value that is equal {where} by its type is not the same on its ranks: {what}"
    return _finding(code, message, _HELP[code], axis, meeting)


_OF_PARAMETERS = ("fully_shard", "DistributedDataParallel")
"""These take parameters, and others data."""
_GIVE_THE_SAME = (
    "give it the same data on every rank of the axis: a sampler or a seed goes by the rank on the data parallel axis",
    "say how it differs where it is meant to: Shard(dim), or Partial()",
)
_HELP = {
    "SW507": (
        "compute it alike on every rank of the axis",
        "say that it differs where it is meant to: reinterpret(x, axis, src=R, dst=V, expert_mode=True)",
    ),
    "SW508": ("make it from one seed on every rank, or broadcast it from one of them before it is declared",),
    "SW509": ("seed the generator alike on every rank of the axis, or draw from one that is",),
}


def _other_operands(group: Group, meeting: Mapping[int, EqualValue]) -> Iterator[Finding]:
    """Nothing is said of operands that came to some rank by communication, as weights that it was sent."""
    (rank, one), (other, two) = _odd(meeting, lambda each: each.digest)
    differing = [
        mine.name
        for mine, theirs in zip(one.operands, two.operands, strict=False)
        if mine.digest != theirs.digest and UNKNOWN not in (mine.digest, theirs.digest)
    ]
    if not differing and len(one.operands) == len(two.operands):
        return
    name = differing[0] if differing else "an operand"
    where = f"over {group[0]}" if group[0] else f"over {ranks_text(group[1])}"
    message = f"{one.op} takes {name} as equal {where}, and rank {rank} has computed it differently than rank {other}"
    yield _finding("SW507", message, _HELP["SW507"], group[0], meeting)


def _odd(
    meeting: Mapping[int, EqualValue], what: Callable[[EqualValue], object]
) -> tuple[tuple[int, EqualValue], tuple[int, EqualValue]]:
    """The first rank and the first that differs from it."""
    items = sorted(meeting.items())
    first = items[0]
    return first, next(item for item in items if what(item[1]) != what(first[1]))


def _different(one: str, two: str) -> tuple[str, str]:
    """Where two texts of arguments differ."""
    pairs = list(zip(one.split("; "), two.split("; "), strict=False))
    mine, theirs = next(((a, b) for a, b in pairs if a != b), (one, two))
    return mine[:_SHOWN_CHARACTERS] or "nothing", theirs[:_SHOWN_CHARACTERS] or "nothing"


def _finding(code: str, message: str, help: tuple[str, ...], axis: str, meeting: Mapping[int, EqualValue]) -> Finding:
    by_text: dict[str, list[int]] = defaultdict(list)
    for rank, one in sorted(meeting.items()):
        by_text[f"{one.op}({one.plain})" if one.plain else one.op].append(rank)
    first = meeting[min(meeting)]
    operands = tuple(_shown(text, ranks, meeting) for text, ranks in by_text.items())
    return Diagnosis(code, message, help=help).at(first.location, first.op, axis, operands)


def _shown(text: str, ranks: Sequence[int], meeting: Mapping[int, EqualValue]) -> ShownOperand:
    return ShownOperand(ranks_text(ranks), text[:_SHOWN_CHARACTERS], meeting[ranks[0]].location)
