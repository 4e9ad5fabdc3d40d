"""Findings about ranks that part ways, SW501 to SW506: both ranks' next calls, each where it stands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from shardwise.diagnostics.finding import Diagnosis, Finding
from shardwise.diagnostics.printing.ranks import ranks_text
from shardwise.diagnostics.source_location import Operand, SourceLocation

from .calls import End, Ending, TracedCall
from .matching import Clash, Meeting

Party = tuple[list[int], TracedCall]


def mismatch(found: Clash, calls: Mapping[int, TracedCall], meeting: Meeting) -> Finding:
    """Calls that meet and do not fit: SW501 for different ones, SW502 for groups, SW505 for their arguments."""
    parties = _parties(calls)
    (ranks, call), (rest, other) = parties[0], parties[-1 if len(parties) == 1 else 1]
    if found.code == "SW502":
        message = f"{ranks_text(ranks)} makes a process group of {ranks_text(call.members)} where {ranks_text(rest)} "
        message = _plural(message, ranks) + f"{_verb(rest, 'make')} one of {ranks_text(other.members)}"
        facts: tuple[str, ...] = ("groups are told apart by the order in which they are made",)
        help_lines: tuple[str, ...] = ("make every group on every rank, in one order, also those that it is not in",)
    elif found.code == "SW501":
        message = f"{ranks_text(ranks)} {_verb(ranks, 'issue')} {call.what} where {ranks_text(rest)} "
        message += f"{_verb(rest, 'issue')} {other.what}, over {call.group}"
        facts = (_nth(meeting), "each waits in its own call for the others: the job hangs here, or mixes up their data")
        help_lines = (f"issue the same collectives in the same order on every rank of {call.group}",)
    else:
        message = f"{call} does not fit what other ranks issue: {found.what}"
        facts = (_nth(meeting),) if not call.is_message else ()
        help_lines = ()
    return _finding(Diagnosis(found.code, message, facts, help_lines), call, _operands(parties))


def never_issued(meeting: Meeting, rank: int, other: int, elsewhere: Meeting) -> Finding:
    """SW501: ``rank`` waits in a call that ``other`` never issues, and ``other`` waits for it in another."""
    waiting = sorted(meeting.calls)
    call, own = meeting.calls[rank][1], elsewhere.calls[other][1]
    message = f"{ranks_text(waiting)} {_verb(waiting, 'wait')} in {call}, which rank {other} never issues"
    awaited = [one for one in waiting if one in elsewhere.missing] or waiting
    facts = (f"rank {other} waits for {ranks_text(awaited)} in {own} meanwhile",)
    operands = _operands([(waiting, call), (sorted(elsewhere.calls), own)])
    help_lines = (f"issue it on every rank of {call.group}, or on none",) if not call.is_message else ()
    return _finding(Diagnosis("SW501", message, facts, help_lines), call, operands)


def crossed(steps: Sequence[tuple[int, TracedCall]]) -> Finding:
    """SW504: each of these ranks waits in a call that the next one would come to after its own."""
    (rank, call), *others = steps
    told = ", ".join(f"rank {one} in {other}" for one, other in others)
    message = f"rank {rank} waits in {call}, and {told}, each for the next: nobody can go on"
    if call.kind == "send" and all(other.kind == "send" for _, other in others):
        facts = ("a send returns when its receive has been posted, and every rank here sends first",)
        help_lines: tuple[str, ...] = ("let one side receive first, or use torch.distributed.batch_isend_irecv",)
    else:
        facts = ("every one of these calls is issued by all of its ranks, but not in the same order",)
        help_lines = ("issue them in one order on all ranks",)
    operands = _operands([([one], other) for one, other in steps])
    return _finding(Diagnosis("SW504", message, facts, help_lines), call, operands)


def left_waiting(
    meeting: Meeting, waiting: Sequence[int], ended: Sequence[int], end: End, last: TracedCall | None
) -> Finding:
    """SW503: ``ended`` will not come to a call in which ``waiting`` stand. ``last``: their call before it."""
    call = meeting.calls[waiting[0]][1]
    code = "SW506" if call.is_message and end.how is Ending.FINISHED else "SW503"
    said = str(end).replace("has", "have", 1).replace("is still", "are still", 1) if len(ended) > 1 else str(end)
    if code == "SW506":
        return unmatched(meeting)
    message = f"{ranks_text(waiting)} {_verb(waiting, 'wait')} in {call} for {ranks_text(ended)}, which {said}"
    operands = [Operand(ranks_text(waiting), call.what, call.location)]
    facts: tuple[str, ...] = () if call.is_message else (_nth(meeting),)
    if end.location is not None:
        operands.append(Operand(ranks_text(ended), str(end), end.location))
    if last is not None and end.how is Ending.FINISHED:
        operands.append(Operand(ranks_text(ended), f"{last.what}, the last before its end", last.location))
    if last is None and not call.is_message:
        facts += (f"{ranks_text(ended)} {_verb(ended, 'issue')} no collective over {call.group} at all"
                  if meeting.number == 0 else "",)  # fmt: skip
    help_lines: tuple[str, ...] = ()
    if end.how is Ending.FINISHED:
        help_lines = ("let every rank issue it as often: agree on the number of rounds, or move it out of the branch",)
    facts = tuple(fact for fact in facts if fact)
    return _finding(Diagnosis("SW503", message, facts, help_lines), call, operands)


def unmatched(meeting: Meeting) -> Finding:
    """SW506: a message of which one half is missing."""
    ((rank, (_, call)),) = meeting.calls.items()
    missing = "send" if call.kind == "recv" else "recv"
    where = "any rank" if call.peer is None else f"rank {call.peer}"
    message = f"rank {rank} issues {call}, but {where} never issues the {missing} for it"
    facts = (f"messages meet in order, by the two ranks, the group ({call.group}) and the tag ({call.tag})",)
    operands = (Operand(f"rank {rank}", call.what, call.location),)
    return _finding(Diagnosis("SW506", message, facts), call, operands)


def _finding(said: Diagnosis, call: TracedCall, operands: Iterable[Operand]) -> Finding:
    return said.at(call.location, call.kind, call.group.name, operands)


def _parties(calls: Mapping[int, TracedCall]) -> list[Party]:
    """The ranks by what they issue and where, the fewest first: where one rank differs, it is the one to look at."""
    parties: dict[tuple[str, SourceLocation | None], list[int]] = defaultdict(list)
    for rank, call in calls.items():
        parties[call.what, call.location].append(rank)
    told = [(ranks, calls[ranks[0]]) for ranks in parties.values()]
    told.sort(key=lambda party: (len(party[0]), party[0]))
    odd = told[0]
    # The party that differs in what it issues, and not only in where, stands second.
    return [odd, *sorted(told[1:], key=lambda party: (party[1].what == odd[1].what, -len(party[0])))]


def _operands(parties: Sequence[Party]) -> tuple[Operand, ...]:
    return tuple(Operand(ranks_text(ranks), call.what, call.location) for ranks, call in parties)


def _nth(meeting: Meeting) -> str:
    call = next(iter(meeting.calls.values()))[1]
    if meeting.number == 0:
        return f"it is the first call over {call.group}"
    return f"it is call number {meeting.number + 1} over {call.group}; those before it are the same on all ranks"


def _verb(ranks: Sequence[int], verb: str) -> str:
    return verb if len(set(ranks)) > 1 else f"{verb}s"


def _plural(text: str, ranks: Sequence[int]) -> str:
    return text.replace(" makes ", " make ", 1) if len(ranks) > 1 else text
