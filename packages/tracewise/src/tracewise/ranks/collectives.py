"""Where the ranks of a job part ways: first by what they call, then by how much, who never came, who came late."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass

from tracewise.find.inventory import missing_ranks
from tracewise.model.collectives import COMPLETED, Group, Kind, Recording, Schedule
from tracewise.model.entities import Frame
from tracewise.ranks.explanation import Explanation, explain
from tracewise.ranks.lateness import find_late, skews
from tracewise.ranks.messages import message_verdicts
from tracewise.ranks.sizes import same_sized, size_fault
from tracewise.ranks.verdicts import VERDICTS, CollectiveAnswer, Verdict
from tracewise.ranks.wording import clock_time, place, ranks_text, seconds, sentence, verb


@dataclass(slots=True)
class _Party:
    """Ranks whose calls are equal within the window; ``tokens`` are what must agree, ``kinds`` what they called."""

    ranks: list[int]
    kinds: array[int]
    tokens: list[object]


def analyse(recording: Recording) -> CollectiveAnswer:
    """All verdicts over all groups, the headline first."""
    answer = CollectiveAnswer(recording)
    lost = missing_ranks(recording.ranks, recording.world_size)
    if lost:
        answer.notes.append(f"No file of {ranks_text(lost)}; the verdict is about the others.")
    answer.skews_ns = skews(recording)
    for rank, offset in answer.skews_ns.items():
        answer.notes.append(
            f"The clock of rank {rank} is {seconds(abs(offset))} {'ahead' if offset > 0 else 'behind'}."
        )
    for name, of_group in recording.schedules.items():
        answer.verdicts += _GroupComparison(answer, recording.groups[name], of_group).verdicts()
    answer.verdicts += message_verdicts(recording)
    answer.verdicts = _told_once(answer.verdicts)
    if any(verdict.kind == "late" and not verdict.is_tie for verdict in answer.verdicts):
        # Who comes late to one group comes late to the next; what may be a clock says nothing then.
        answer.verdicts = [v for v in answer.verdicts if v.kind != "late" or not v.is_tie]
    answer.verdicts.sort(key=lambda verdict: (VERDICTS.index(verdict.kind), verdict.time_ns, verdict.group))
    return answer


class _GroupComparison:
    """The comparison of one group's members."""

    def __init__(self, answer: CollectiveAnswer, group: Group, of_group: dict[int, Schedule]) -> None:
        self.recording = answer.recording
        self.answer = answer
        self.group = group
        self.of_group = of_group
        # The recorder is a ring: what a rank no longer has cannot be compared.
        self.first = max(schedule.seqs[0] for schedule in of_group.values())
        if self.first > min(schedule.seqs[0] for schedule in of_group.values()):
            answer.notes.append(f"{sentence(str(group))} is compared from collective {self.first} on: "
                                "some ranks no longer have what came before.")  # fmt: skip
        self.offsets = {rank: bisect_left(schedule.seqs, self.first) for rank, schedule in of_group.items()}
        self.lengths = {rank: len(of_group[rank]) - self.offsets[rank] for rank in of_group}
        self.parties = self._parties()

    def verdicts(self) -> list[Verdict]:
        """At most one verdict on what is called; else those on who never came, is inside, or late."""
        found = self._divergence() or self._inner_sizes()
        if found is not None:
            return [found]
        verdicts = self._missing() or self._unfinished()
        late = find_late(
            self.recording, {r: (s, self.offsets[r]) for r, s in self.of_group.items()}, self.answer.skews_ns
        )
        if late is not None:
            kind, seq, site = self._call(late.rank, late.position)
            text = f"{sentence(str(self.group))}: " + late.text(kind.op + place(site), seq)
            verdicts.append(
                Verdict("late", text, self.group.name, seq, [late.rank], op=kind.op, site=site, is_tie=late.is_tie)
            )
        return verdicts

    def _parties(self) -> list[_Party]:
        """The members by what they called, the largest party first, then the longest."""
        by_bytes: dict[bytes, list[int]] = defaultdict(list)
        for rank in sorted(self.of_group):
            kinds = self.of_group[rank].kinds
            by_bytes[(kinds[self.offsets[rank] :] if self.offsets[rank] else kinds).tobytes()].append(rank)
        known: dict[int, object] = {}
        parties = []
        for data, ranks in by_bytes.items():
            kinds = array("I")
            kinds.frombytes(data)
            for number in set(kinds) - known.keys():
                known[number] = same_sized(self.recording.kinds[number])
            parties.append(_Party(ranks, kinds, [known[number] for number in kinds]))
        return sorted(parties, key=lambda party: (-len(party.ranks), -len(party.kinds), party.ranks[0]))

    def _divergence(self) -> Verdict | None:
        """The first position at which two members call something else."""
        reference = max(self.parties, key=lambda party: len(party.tokens))
        position = min((_first_difference(reference.tokens, party.tokens) for party in self.parties), default=-1)
        if position >= len(reference.tokens):
            return None
        at: dict[object, list[_Party]] = defaultdict(list)
        for party in self.parties:
            if position < len(party.tokens):
                at[party.tokens[position]].append(party)
        sides = sorted(
            at.values(), key=lambda side: (-sum(len(party.ranks) for party in side), min(p.ranks[0] for p in side))
        )
        return self._verdict_of(position, sides)

    def _verdict_of(self, position: int, sides: list[list[_Party]]) -> Verdict:
        ranks_of = [sorted(rank for party in side for rank in party.ranks) for side in sides]
        kinds = [self.recording.kinds[side[0].kinds[position]] for side in sides]
        odd = sorted(rank for ranks in ranks_of[1:] for rank in ranks)
        is_tie = len(ranks_of[0]) == len(ranks_of[1])
        path = max(sides[0], key=lambda party: len(party.tokens)).tokens[position:]
        mine = max(sides[1], key=lambda party: len(party.tokens)).tokens[position:]
        why = explain(path, mine)
        differs = len({kind.op for kind in kinds}) > 1
        if not differs and (why is None or why.what == "replaced" or why.evidence < 2):
            return self._size_verdict(position, ranks_of, kinds, is_tie)
        seq = self._call(ranks_of[0][0], position)[1]
        parts = []
        for ranks, kind in zip(ranks_of[:4], kinds, strict=False):
            shown = kind.op if differs else str(kind)
            parts.append(f"{ranks_text(ranks)} {verb(ranks, 'call')} {shown}{place(self._call(ranks[0], position)[2])}")
        text = f"{sentence(str(self.group))}, collective {seq}: " + ", ".join(parts) + "."
        who = odd if not is_tie else sorted(rank for ranks in ranks_of for rank in ranks)
        text += self._left_path(position, odd, is_tie)
        if why is not None:
            text += " " + self._explained(why, position, ranks_of, is_tie)
        _, _, site = self._call(odd[0], position)
        time_ns = min(filter(None, (self._time(r, position) for r in who)), default=0)
        return Verdict(
            "operation", text, self.group.name, seq, who, why.what if why else "", is_tie, time_ns,
            self._subject(why, position, ranks_of).op, site,
        )  # fmt: skip

    def _left_path(self, position: int, odd: list[int], is_tie: bool) -> str:
        if is_tie:
            return " There is no majority to tell which of them left the common path."
        if not position:
            return f" {sentence(ranks_text(odd))} {verb(odd, 'differ')} from the first call on."
        kind, seq, site = self._call(odd[0], position - 1)
        return f" {sentence(ranks_text(odd))} left the common path after collective {seq} ({kind.op}{_inner(site)})."

    def _subject(self, why: Explanation | None, position: int, ranks_of: list[list[int]]) -> Kind:
        """The call that was skipped, or the one that the others do not make."""
        rank = ranks_of[0][0] if why and why.what == "skipped" else ranks_of[1][0]
        return self._call(rank, position)[0]

    def _explained(self, why: Explanation, position: int, ranks_of: list[list[int]], is_tie: bool) -> str:
        path_rank, odd = ranks_of[0][0], ranks_of[1]
        who = sentence(ranks_text(odd))
        expected, _, expected_site = self._call(path_rank, position)
        found, _, found_site = self._call(odd[0], position)
        more = f" and {why.count - 1} more" if why.count > 1 else ""
        match why.what:
            case "skipped":
                text = f"{who} skipped {expected.op}{place(expected_site)}{more}"
            case "extra":
                text = f"{who} made an extra call of {found.op}{place(found_site)}{more}"
            case "swapped":
                text = f"{who} called {found.op}{place(found_site)} and {expected.op} in the other order"
            case _:
                text = f"{who} called {found.op}{place(found_site)} instead of {expected.op}{place(expected_site)}"
        if is_tie and why.what in ("skipped", "extra"):
            other = "made an extra call" if why.what == "skipped" else "skipped one"
            text += f", or {ranks_text(ranks_of[0])} {other}"
        return f"{text}; the calls after that match again."

    def _size_verdict(self, position: int, ranks_of: list[list[int]], kinds: list[Kind], is_tie: bool) -> Verdict:
        what = "dtype" if len({kind.dtypes for kind in kinds}) > 1 else "elements"
        _, seq, _ = self._call(ranks_of[0][0], position)
        parts = []
        for ranks, kind in zip(ranks_of[:4], kinds, strict=False):
            parts.append(f"{ranks_text(ranks)} {verb(ranks, 'give')} {kind}{place(self._call(ranks[0], position)[2])}")
        text = f"{sentence(str(self.group))}, collective {seq}: {what} differ: " + ", ".join(parts) + "."
        who = sorted(rank for ranks in (ranks_of if is_tie else ranks_of[1:]) for rank in ranks)
        _, _, site = self._call(ranks_of[1][0], position)
        time_ns = min(filter(None, (self._time(rank, position) for rank in who)), default=0)
        return Verdict("size", text, self.group.name, seq, who, what, is_tie, time_ns, kinds[1].op, site)

    def _inner_sizes(self) -> Verdict | None:
        """Sizes that do not fit within a call, or over the members of an exchange."""
        size = len(self.group.members) if self.group.is_certain else 0
        numbers = {number for party in self.parties for number in set(party.kinds)}
        exchanges = {number for number in numbers if self.recording.kinds[number].op == "all_to_all"}
        faulty = {n: fault for n in numbers if (fault := size_fault(self.recording.kinds[n], size))}
        if not faulty and not (exchanges and len(self.parties) > 1):
            return None
        for position in range(min(self.lengths.values())):
            at = {rank: party.kinds[position] for party in self.parties for rank in party.ranks}
            bad = sorted(rank for rank, number in at.items() if number in faulty)
            if bad:
                kind, seq, site = self._call(bad[0], position)
                text = f"{sentence(str(self.group))}, collective {seq}: {ranks_text(bad)} {verb(bad, 'call')} "
                text += f"{kind.op}{place(site)}, but {faulty[at[bad[0]]]}."
                return Verdict("size", text, self.group.name, seq, bad, "elements", op=kind.op, site=site)
            if set(at.values()) <= exchanges and len(at) == len(self.group.members):
                given = sum(self.recording.kinds[number].elements for number in at.values())
                taken = sum(self.recording.kinds[number].out_elements for number in at.values())
                if given != taken:
                    kind, seq, site = self._call(min(at), position)
                    text = f"{sentence(str(self.group))}, collective {seq}: in all_to_all{place(site)} all ranks "
                    text += f"together give {given} elements and take {taken}."
                    return Verdict("size", text, self.group.name, seq, sorted(at), "elements", op=kind.op, site=site)
        return None

    def _missing(self) -> list[Verdict]:
        """Members that left a file and have no call at the last position."""
        present = self.group.members & self.recording.ranks
        last = max(self.lengths.values()) - 1
        waiting = sorted(rank for rank, length in self.lengths.items() if length - 1 == last)
        behind = sorted(rank for rank in present if self.lengths.get(rank, 0) - 1 < last)
        if not behind or last < 0:
            return []
        _, last_seq, _ = self._call(waiting[0], last)
        least = min(self.lengths.get(rank, 0) for rank in behind)
        far = [rank for rank in behind if self.lengths.get(rank, 0) == least]
        kind, seq, site = self._call(waiting[0], least)
        text = (
            f"{sentence(str(self.group))}: {ranks_text(far)} never reached collective {seq} ({kind.op}{_inner(site)}); "
        )
        if least:
            own, own_seq, own_site = self._call(far[0], least - 1)
            text += f"the last {'of each ' if len(far) > 1 else ''}is {own_seq} ({own.op}{_inner(own_site)})"
        else:
            text += "no call over this group at all"
        others = [rank for rank in self.lengths if self.lengths[rank] > least]
        began = min(filter(None, (self._time(rank, least) for rank in others)), default=0)
        text += f"; {ranks_text(others)} {verb(others, 'wait')} there"
        text += f" since {clock_time(began)}" if began else ""
        timeout = max((self.of_group[rank].timeout_ms for rank in others), default=0)
        text += f" (timeout {timeout / 1000:g} s)." if timeout else "."
        if last_seq > seq:
            text += f" Some went on to collective {last_seq}."
        return [Verdict("missing", text, self.group.name, seq, far, time_ns=began, op=kind.op, site=site)]

    def _unfinished(self) -> list[Verdict]:
        """All are in the last call, and some have not left it."""
        at = {rank: len(schedule) - 1 for rank, schedule in self.of_group.items()}
        tells_states = any(any(schedule.states) for schedule in self.of_group.values())
        inside = sorted(
            rank
            for rank, position in at.items()
            if (tells_states and self.of_group[rank].states[position] != COMPLETED)
            or (not tells_states and self.of_group[rank].active[position])
        )
        if not inside:
            return []
        rank = inside[0]
        kind, seq, site = self._call(rank, at[rank] - self.offsets[rank])
        begun = [r for r in inside if self.of_group[r].states[at[r]]]
        text = f"{sentence(str(self.group))}: all ranks reached collective {seq} ({kind.op}{_inner(site)}); "
        if tells_states:
            waiting = [r for r in inside if r not in begun]
            parts = [f"{ranks_text(begun)} {'has' if len(begun) == 1 else 'have'} started it"] if begun else []
            parts += [f"{ranks_text(waiting)} only scheduled it"] if waiting else []
            text += " and ".join(parts) + ", and none of them completed it."
        else:
            text += f"{ranks_text(inside)} had not left it."
        time_ns = min(filter(None, (self.of_group[r].created[at[r]] for r in inside)), default=0)
        return [Verdict("unfinished", text, self.group.name, seq, inside, time_ns=time_ns, op=kind.op, site=site)]

    def _call(self, rank: int, position: int) -> tuple[Kind, int, Frame | None]:
        """Kind, number and place of a rank's call, by its position in the window."""
        schedule = self.of_group[rank]
        at = position + self.offsets[rank]
        return self.recording.kinds[schedule.kinds[at]], schedule.seqs[at], self.recording.sites[schedule.sites[at]]

    def _time(self, rank: int, position: int) -> int:
        schedule = self.of_group.get(rank)
        at = position + self.offsets.get(rank, 0)
        return schedule.created[at] if schedule is not None and at < len(schedule) else 0


def _inner(site: Frame | None) -> str:
    """The place inside of brackets: ``, train.py:31``."""
    return f", {place(site)[2:-1]}" if site else ""


def _first_difference(one: list[object], two: list[object]) -> int:
    """Where two sequences differ first; past the end if one goes on as the other."""
    length = min(len(one), len(two))
    if one[:length] == two[:length]:
        return 1 << 62
    return next(n for n in range(length) if one[n] != two[n])


def _told_once(verdicts: list[Verdict]) -> list[Verdict]:
    """A call that one group lacks and another has too many of is one mistake: it went to the wrong group."""
    skipped = [v for v in verdicts if v.what == "skipped"]
    for lack in skipped:
        for extra in verdicts:
            if extra.what == "extra" and extra.op == lack.op and set(extra.ranks) & set(lack.ranks):
                both = sorted(set(extra.ranks) & set(lack.ranks))
                lack.ranks, lack.what, lack.is_tie = both, "group", False
                lack.text += f" {sentence(ranks_text(both))} called {lack.op} over group {extra.group} instead."
                verdicts = [v for v in verdicts if v is not extra]
                break
    return verdicts
