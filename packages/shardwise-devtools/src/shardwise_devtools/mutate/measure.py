"""Is a mutant wrong, and does the checker reject it? It runs on every rank of the mesh and on one rank, in real
processes, first plainly for its numbers and then under the checker.

The one-rank run is of the mutant too: a change that is the same on one device is no mistake of parallelism.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from shardwise.diagnostics.codes import Severity
from shardwise.diagnostics.finding import Finding
from shardwise.host.program import Program
from shardwise.host.worker_pool import worker_pool
from shardwise.interop.running.recording import Draw, Record
from shardwise.types.tensor_type import TensorType
from shardwise.verifier.comparison.compare import compare
from shardwise.verifier.distance.numbers import ValueDisagreement
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.record import RankRun
from shardwise.verifier.runs.crash import crash_among, lost
from shardwise.verifier.runs.processes import run_ranks
from shardwise.worlds.world import RankFailure, RankTimeout

from .checked_alone import imagined_types
from .explained import Explained, reason_for
from .judge import VERIFY, Judged, Measured, Numbers, Said, Verdict
from .operators import Mutant
from .substitute import Changed

STILL_S = 3.0
"""A mutant hangs if none of its ranks has moved for so long, however busy the machine is."""
MODES = {
    "local": VerifyOptions(local=True, still_s=STILL_S),
    "global": VerifyOptions(local=False, still_s=STILL_S),
}


class Unfit(RuntimeError):
    """The program itself does not pass, so that its mutants would teach nothing."""


Claims = Mapping[tuple[str, str, int], TensorType]


@dataclass(frozen=True)
class Bench:
    """A program that its mutants are compared with.

    ``mesh``    axes and their sizes.
    ``rtol``    how far values may be apart; None takes it from the dtypes.
    ``values``  for every rank of the mesh, what the program computes there, in program order.
    ``claims``  the types that the checker finds for losses and named values, for every rank: plain runs have none.
    ``imagined``  the modes in which the checker accepts it on one imagined rank too.
    """

    program: Program
    mesh: Mapping[str, int]
    rtol: float | None
    values: tuple[tuple[torch.Tensor, ...], ...]
    claims: tuple[Claims, ...]
    imagined: tuple[str, ...] = ()

    @staticmethod
    def of(program: Program, mesh: Mapping[str, int], *, rtol: float | None = None) -> Bench:
        """Errors: Unfit if the program fails, differs from one rank, or is rejected."""
        subject = Changed(program)
        try:
            plain, alone = _plain(subject, mesh)
            runs = {mode: _run(subject, mesh, options) for mode, options in MODES.items()}
        except Broken as error:
            raise Unfit(str(error)) from error
        for mode, ranks in runs.items():
            found = [finding for rank in ranks for finding in rank.types.errors]
            if found:
                raise Unfit(f"the checker rejects it with {mode} types: {shown(found[0])} {found[0].message}")
        claims = tuple(map(_claims, runs["local"]))
        numbers = compare(_claimed(plain, claims), alone, rtol=rtol)
        if numbers.parting is not None:
            raise Unfit(f"{numbers.parting.reason}, so it does not compute on the mesh what it does on one rank")
        if numbers.disagreements:
            raise Unfit(f"its numbers are wrong: {_told(numbers.disagreements[0])}")
        if not numbers.equal:
            raise Unfit("nothing in it can be compared: it declares no types and takes no optimizer step")
        alike = {mode: imagined_types(subject, mesh, options) for mode, options in MODES.items()}
        imagined = tuple(mode for mode, types in alike.items() if types is not None and not types.errors)
        return Bench(program, mesh, rtol, tuple(map(_values, plain)), claims, imagined)

    def judge(self, mutant: Mutant) -> Verdict:
        """What running ``mutant`` shows, and what the checker says of it."""
        try:
            measured = self.measured(mutant.texts)
            said = self._said(mutant.texts)
            if measured.numbers is Numbers.DIFFERENT and not any(one.findings for one in said):
                said += (Said(VERIFY, self.verified(mutant.texts)),)
        except Broken as error:
            return Measured(Numbers.CRASHED, str(error)), ()
        return measured, said

    def _said(self, texts: Mapping[Path, str]) -> tuple[Said, ...]:
        """What the checker says: of one imagined rank, and of all real ones only where it accepts that, which takes
        long on many; and in a mode only where it accepts it in those before."""
        subject = Changed(self.program, texts)
        for mode in self.imagined:
            types = imagined_types(subject, self.mesh, MODES[mode])
            if types is not None and (errors := errors_of(types.findings)):
                return (_words(mode, errors),)
        said: tuple[Said, ...] = ()
        for mode in MODES:
            said += (_words(mode, errors_of(self.findings(texts, mode))),)
            if said[-1].findings:
                break
        return said

    def verified(self, texts: Mapping[Path, str]) -> tuple[str, ...]:
        """What ``shardwise verify`` says is wrong of the program with these texts: it knows no other program.

        Errors: Broken if a run does not come to its end.
        """
        subject = Changed(self.program, texts)
        ranks = _run(subject, self.mesh, MODES["local"])
        (alone,) = _run(subject, dict.fromkeys(self.mesh, 1), MODES["local"])
        numbers = compare(ranks, alone, rtol=self.rtol)
        if numbers.parting is not None:
            return (numbers.parting.reason,)
        return tuple(map(_told, numbers.disagreements))

    def findings(self, texts: Mapping[Path, str], mode: str) -> list[Finding]:
        """What the checker says in a mode of the program with other text in the place of files, on any rank.

        Errors: Broken if a run does not come to its end.
        """
        ranks = _run(Changed(self.program, texts), self.mesh, MODES[mode])
        return [finding for rank in ranks for finding in rank.types.findings]

    def measured(self, texts: Mapping[Path, str]) -> Measured:
        """How the program with these texts computes on the mesh what it does on one rank. Errors: Broken."""
        return self._measured(*_plain(Changed(self.program, texts), self.mesh))

    def _measured(self, ranks: Sequence[RankRun], alone: RankRun) -> Measured:
        values = [_values(rank) for rank in ranks]
        if all(map(_identical, values, self.values)):
            return Measured(Numbers.EQUAL, unchanged=True)
        numbers = compare(_claimed(ranks, self.claims), alone, rtol=self.rtol)
        if numbers.disagreements:
            return Measured(Numbers.DIFFERENT, _told(numbers.disagreements[0]))
        return Measured(Numbers.EQUAL)


def judge_all(
    bench: Bench, mutants: Sequence[Mutant], jobs: int, explained: tuple[Explained, ...] = ()
) -> Iterator[Judged]:
    """Every mutant judged, in their order, ``jobs`` at a time."""
    for mutant, (measured, said) in zip(mutants, verdicts(bench, mutants, jobs), strict=True):
        yield Judged(mutant, measured, said, reason_for(mutant, explained))


def verdicts(bench: Bench, mutants: Sequence[Mutant], jobs: int) -> Iterator[Verdict]:
    """What judges say of every mutant, in their order, ``jobs`` at a time."""
    with worker_pool(jobs, "fork", functools.partial(_start, bench)) as pool:
        yield from pool.map(_judge, mutants)


def _plain(subject: Changed, mesh: Mapping[str, int]) -> tuple[list[RankRun], RankRun]:
    """The runs on the mesh and on one rank that decide on the numbers: the checker has no hand in them."""
    plain = replace(subject, checked=False)
    ranks = _run(plain, mesh, MODES["local"])
    (alone,) = _run(plain, dict.fromkeys(mesh, 1), MODES["local"])
    return ranks, alone


class Broken(RuntimeError):
    """A run that did not come to its end; its text says how."""


def _run(subject: Changed, sizes: Mapping[str, int], options: VerifyOptions) -> list[RankRun]:
    where = "on one rank" if all(size == 1 for size in sizes.values()) else "on the mesh"
    try:
        runs = run_ranks(subject, sizes, options)
        failure = crash_among(runs, where, math.prod(sizes.values()))
    except (RankFailure, RankTimeout) as error:
        failure = lost(error, where)
    if failure is not None:
        raise Broken(f"{failure.where} {failure.text}")
    return runs


_bench: Bench | None = None


def _start(bench: Bench) -> None:
    global _bench
    _bench = bench
    torch.set_num_threads(1)


def _judge(mutant: Mutant) -> Verdict:
    assert _bench is not None, "workers are given the bench when they start"
    return _bench.judge(mutant)


def shown(finding: Finding) -> str:
    """``SW201 at train.py:57``."""
    location = finding.location
    return finding.code if location is None else f"{finding.code} at {location.file.rpartition('/')[2]}:{location.line}"


def _words(mode: str, errors: Sequence[Finding]) -> Said:
    return Said(mode, tuple(dict.fromkeys(map(shown, errors))))


def errors_of(found: Sequence[Finding]) -> list[Finding]:
    """What rejects a program: warnings do not."""
    return [finding for finding in found if finding.severity is Severity.ERROR]


def _values(run: RankRun) -> tuple[torch.Tensor, ...]:
    """Everything of a rank's run that was copied and is no promise: promises may be renamed."""
    records = [entry for entry in run.entries if isinstance(entry, Record)]
    return tuple(one.value for one in records if one.value is not None and one.key.kind != "declared")


def _claims(run: RankRun) -> Claims:
    records = [entry for entry in run.entries if isinstance(entry, Record)]
    return {_name(one): one.type for one in records if one.key.kind in ("loss", "value")}


def _claimed(ranks: Sequence[RankRun], claims: Sequence[Claims]) -> list[RankRun]:
    """The runs, with the types that the same losses and values have in the program without the mistake."""
    return [
        replace(run, entries=[_typed(entry, known) for entry in run.entries])
        for run, known in zip(ranks, claims, strict=True)
    ]


def _typed(entry: Record | Draw, claims: Claims) -> Record | Draw:
    if isinstance(entry, Draw) or (type := claims.get(_name(entry))) is None:
        return entry
    return replace(entry, type=type)


def _name(record: Record) -> tuple[str, str, int]:
    """What it is called whatever line it stands on."""
    return record.key.kind, record.key.name, record.key.nth


def _identical(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )


def _told(found: ValueDisagreement) -> str:
    return f"{found.key}: {found.said}"
