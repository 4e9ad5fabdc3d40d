"""How is a program verified? It runs on every rank of the mesh and on one rank alone, in real processes, under the
checker; then the two are compared.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError
from shardwise.diagnostics.source import add_internal_prefix
from shardwise.interop.running.recording import Record
from shardwise.interop.running.session import Partials

from .comparison.notes import with_feed, with_notes
from .comparison.reading_by_size import with_reading_by_size
from .distance.numbers import Numbers
from .distance.spread import NoneMoved
from .distance.steadiness import forget_unsteady
from .narrowing import beyond_roundings
from .other_ways import is_open, other_ways
from .records.failure import Failure
from .records.intervention import Intervention
from .records.options import TIMEOUT_S, VerifyOptions
from .records.record import RankRun, initial_parameters
from .records.reference import Reference, compare_only_common
from .records.subject import Function, Subject
from .reference_runs import reference_note, reference_run
from .runs.one_rank import merged_types
from .runs.own_pieces import with_own_pieces
from .runs.plain_parameters import is_update
from .runs.processes import with_batches_of
from .text import Verdict
from .verification import Compared, Verification


def verify(
    program: Callable[..., object],
    mesh: Mapping[str, int],
    *,
    strict: bool = True,
    local: bool = True,
    partials: Partials = "infer",
    double: bool = False,
    rtol: float | None = None,
    timeout_s: float = TIMEOUT_S,
    every: bool = False,
    narrow: bool = True,
) -> Verdict:
    """Run ``program`` on every rank of ``mesh`` and on one rank, and compare what it computes.

    ``program``    a function that takes nothing, or the device mesh. Its axes are current while it runs. Tensors that
                   it returns are compared, like those it declares, its losses and its gradients.
    ``mesh``       axes with their sizes, outermost first.
    ``strict``, ``local``, ``partials``  as for ``shardwise check``.
    ``double``     floating-point factories make float64 unless told otherwise.
    ``rtol``       how far values may be apart, relative to the largest; left out, it follows from their dtypes.
    ``timeout_s``  for each of the runs.
    ``every``      compare the result of every operation that has a type, not only what is declared.
    ``narrow``     where something disagrees, run both once more to find the first operation whose result does.

    A run that fails or hangs is told in ``Verdict.failure``. Errors: SW905 for what is no function, SW903 for what is
    no mesh.

    Example:
        >>> def program():
        ...     return assert_type(torch.ones(4), {"tp": R}) * 2
        >>> print(verify(program, {"tp": 2}).exit_code)
        0
    """
    if not callable(program):
        raise SpmdArgumentError(f"verify takes a function, got one of type {type(program).__name__}", code="SW905")
    options = VerifyOptions(strict, local, partials, double, rtol, timeout_s, every, narrow)
    return verify_subject(Function(program), dict(mesh), options)


def verify_subject(
    subject: Subject,
    mesh: Mapping[str, int],
    options: VerifyOptions,
    *,
    references: str = "",
    against: Reference | None = None,
    stage: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """The verdict on ``subject``, asked as ``Verification`` says. Errors: SW903 for what is no mesh."""
    asked = Verification(subject, dict(mesh), options, references, against, stage)
    asked.require_mesh()
    add_internal_prefix(os.path.dirname(os.path.abspath(torch.__file__)) + os.sep)
    started_s = time.perf_counter()
    verdict = _verdict(asked)
    return replace(verdict, duration_s=time.perf_counter() - started_s)


def _verdict(asked: Verification) -> Verdict:
    asked, runs, failure = _first_runs(asked)
    if failure is not None:
        return asked.verdict(merged_types([run.types for run in runs]), failure=failure)
    own = runs[-1]
    if asked.against is not None:
        alone = reference_run(asked, asked.against, own)
        if isinstance(alone, Failure):
            return asked.verdict(merged_types([run.types for run in runs[:-1]]), failure=alone)
        runs = [*runs[:-1], alone]
        compare_only_common(runs[:-1], own, alone)
    asked.stage("comparing")
    seen = Compared.first(asked, runs, own)
    if is_open(asked, seen):
        seen, other = _run_otherwise(asked, seen)
        if other is not None:
            return other
    seen = _without_unsteady(asked, seen)
    if seen.numbers.disagreements and not asked.references:
        seen = beyond_roundings(asked, seen)
    return asked.verdict(seen.types, _told(asked, seen))


def _first_runs(asked: Verification) -> tuple[Verification, list[RankRun], Failure | None]:
    """The runs of the ranks and of one rank, and how the next ones are to be run; or why there are none."""
    runs, failure = asked.run_both()
    if failure is not None:
        return asked, runs, failure
    own, options = runs[-1], asked.options
    if options.feed:
        options = replace(options, changed=with_batches_of(runs[:-1], options.changed))
    if options.changed is not None and not _keeps(options.changed, own):
        failure = Failure("on one rank", "its parameters are not updates of the weights that it was given")
    against = asked.against and replace(asked.against, parameters=initial_parameters(own))
    return replace(asked, options=options, against=against), runs, failure


def _keeps(changed: Intervention, alone: RankRun) -> bool:
    """Does it train the weights that it was given, and not copies of its own that were made before?"""
    ends = {one.key.name: one.value for one in alone.entries if isinstance(one, Record) and one.key.kind == "trained"}
    return all(
        end is None or name not in changed.weights or is_update(changed.weights[name], end)
        for name, end in ends.items()
    )


def _run_otherwise(asked: Verification, seen: Compared) -> tuple[Compared, Verdict | None]:
    """``seen`` with the questions that other ways leave open, and the verdict of the first that has one."""
    for way in other_ways(asked, seen):
        try:
            verdict = _verdict(way.asked())
        except SpmdValueError:  # what the ranks draw makes no global batch
            continue
        answer = way.answer(verdict)
        if isinstance(answer, Verdict):
            return seen, answer
        if answer:
            seen = seen.with_numbers(replace(seen.numbers, questions=answer))
    if seen.numbers.disagreements or asked.options.changed is not None:
        return seen, None
    cut = with_own_pieces(asked.subject, asked.mesh, asked.options, seen.numbers, asked.stage)
    return seen, None if cut is None else asked.verdict(seen.types, cut)


def _without_unsteady(asked: Verification, seen: Compared) -> Compared:
    """``seen`` without numbers that the program reads and that are others in every run, as times are."""
    if asked.references or not any(one.key.kind == "read" for one in seen.numbers.disagreements):
        return seen
    forget_unsteady(seen.alone, asked.alone_again("running once more on one rank"))
    return seen.again(asked, NoneMoved())


def _told(asked: Verification, seen: Compared) -> Numbers:
    """The numbers, with what there is to say beside them."""
    numbers = with_notes(seen.numbers, seen.ranks, seen.alone)
    if asked.options.feed:
        numbers = with_feed(numbers, seen.ranks, seen.alone)
        if asked.before is not None:
            before = (*asked.before.ranks, asked.before.alone)
            numbers = with_reading_by_size(numbers, seen.ranks, before, asked.before.numbers.parting)
    if asked.against is not None:
        numbers = replace(numbers, notes=(*numbers.notes, reference_note(asked, seen)))
    said = numbers.cause is not None and any(numbers.cause.code == one.code for one in seen.types.findings)
    return replace(numbers, cause=None) if said else numbers
