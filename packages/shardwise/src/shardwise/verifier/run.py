"""How is a program verified? It runs on every rank of the mesh and on one rank alone, in real processes, under the
checker; then the two are compared.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError
from shardwise.diagnostics.printing.limits import counted
from shardwise.diagnostics.source import add_internal_prefix
from shardwise.interop.running.recording import Record
from shardwise.interop.running.session import Partials
from shardwise.worlds.failures import RankFailure, RankTimeout

from .comparison.compare import compare
from .comparison.notes import with_feed, with_notes
from .distance.numbers import Numbers
from .distance.spread import NoneMoved, Spread, is_low, outputs_of, rounding_to_measure, spread_of
from .distance.steadiness import forget_unsteady
from .layouts.initial_weights import InitialWeights, put_together
from .records.failure import Failure
from .records.intervention import Intervention
from .records.options import TIMEOUT_S, VerifyOptions
from .records.record import RankRun, initial_parameters
from .records.reference import Reference, compare_only_common
from .records.references import DECIDE, References, save
from .records.subject import Function, Subject
from .runs.crash import crash_among, lost, unreadable
from .runs.one_rank import merged_types, shown_mesh, with_derivatives
from .runs.own_pieces import with_own_pieces
from .runs.plain_parameters import is_update
from .runs.processes import alone_again, run_both, run_ranks, with_batches_of
from .text import Verdict

STARTED = "the ranks draw other initial weights than one rank does: it was given theirs, put together"
MOVED = 3
"""How often the run on one rank is repeated with roundings."""
FED = (
    "the roundings of the modules before hid this: it was found in a run in which every module was given what those "
    "before it give on one rank"
)


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
    """The verdict on ``subject``; ``stage`` is told what is being done.

    ``references``  a file with the run on one rank, which is then not run again.
    ``against``     what the mesh is compared with in place of the program's own run on one rank.
    """
    for name, size in mesh.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise SpmdValueError(f"axis {name} has size {size!r}, which is not a number of ranks", code="SW903")
    if not mesh:
        raise SpmdValueError("a mesh needs at least one axis, got none", code="SW903", help=('mesh={"dp": 2}',))
    add_internal_prefix(os.path.dirname(os.path.abspath(torch.__file__)) + os.sep)
    started_s = time.perf_counter()
    shown = shown_mesh(mesh)
    runs, failure = run_both(subject, mesh, options, stage, references)
    own = runs[-1] if runs else None
    if failure is None and options.feed:
        options = replace(options, changed=with_batches_of(runs[:-1], options.changed))
    if failure is None and own is not None and options.changed is not None and not _keeps(options.changed, own):
        failure = Failure("on one rank", "its parameters are not updates of the weights that it was given")
    if failure is None and against is not None and own is not None:
        against = replace(against, parameters=initial_parameters(own))
        runs, failure = _against(against, runs, mesh, options, stage)
    if failure is not None:
        types = merged_types([run.types for run in runs])
        return Verdict(str(subject), shown, types, failure=failure, duration_s=time.perf_counter() - started_s)
    stage("comparing")
    *ranks, alone = runs
    types = with_derivatives(merged_types([run.types for run in ranks]), alone.types)
    numbers = compare(ranks, alone, rtol=options.rtol, mesh=mesh, spread=None if references else NoneMoved())
    drawn_alike = any(one.key.kind == "input" for one in numbers.disagreements)  # no feed makes that right
    free = numbers.parting is not None and not drawn_alike and not references and against is None
    if free and not numbers.disagreements and options.changed is None:
        weights = put_together(ranks, alone, mesh)
        started = None if weights is None else _started(weights, subject, mesh, options, stage)
        if started is not None and not started.numbers.questions:
            return replace(started, duration_s=time.perf_counter() - started_s)
        if started is not None:
            numbers = replace(numbers, questions=started.numbers.questions)
    if free and options.feed is None:
        fed = _fed(subject, mesh, options, ranks, numbers, stage)
        if fed is not None and ((fed.numbers is not None and fed.numbers.disagreements) or not numbers.disagreements):
            return replace(fed, duration_s=time.perf_counter() - started_s)
    if free and not numbers.disagreements and options.changed is None:
        cut = with_own_pieces(subject, mesh, options, numbers, stage)
        if cut is not None:
            return Verdict(str(subject), shown, types, cut, duration_s=time.perf_counter() - started_s)
    if not references and any(one.key.kind == "read" for one in numbers.disagreements):
        again = alone_again(against or subject, mesh, options, stage, "running once more on one rank")
        forget_unsteady(alone, again)
        numbers = compare(ranks, alone, rtol=options.rtol, mesh=mesh, spread=NoneMoved())
    if numbers.disagreements and not references:
        rounding = rounding_to_measure(runs, numbers, options)
        if rounding is not None:
            spread = _spread(against or subject, mesh, options, alone, rounding, stage)
            numbers = compare(ranks, alone, rtol=options.rtol, mesh=mesh, spread=spread)
        if options.narrow and against is None:
            numbers = _closer(subject, mesh, options, rounding, numbers, stage)
    numbers = with_notes(numbers, ranks, alone)
    if options.feed:
        numbers = with_feed(numbers, ranks, alone)
    if against is not None and own is not None:
        numbers = replace(numbers, notes=(*numbers.notes, _compared_with(against, numbers, own, alone)))
    if numbers.cause is not None and any(numbers.cause.code == one.code for one in types.findings):
        numbers = replace(numbers, cause=None)  # it has been said
    return Verdict(str(subject), shown, types, numbers, duration_s=time.perf_counter() - started_s)


def _fed(
    subject: Subject,
    mesh: Mapping[str, int],
    options: VerifyOptions,
    ranks: Sequence[RankRun],
    numbers: Numbers,
    stage: Callable[[str], None],
) -> Verdict | None:
    """The verdict where one rank is given what all ranks draw; None if they draw nothing, or the runs part still."""
    drawn = numbers.parting is not None and numbers.parting.key.kind in ("drawn", "input")
    if not drawn and not any(run.batches.iterated for run in ranks):
        return None
    try:
        fed = verify_subject(subject, mesh, replace(options, feed=True, show=False), stage=stage)
    except SpmdValueError:  # what the ranks draw makes no global batch
        return None
    return None if fed.numbers is None or fed.numbers.parting is not None else fed


def _started(
    weights: InitialWeights,
    subject: Subject,
    mesh: Mapping[str, int],
    options: VerifyOptions,
    stage: Callable[[str], None],
) -> Verdict | None:
    """The verdict where one rank starts from the ranks' weights; None if it does not keep them, or the runs part still.

    What disagrees is no more than a question if it is not certain how shards lie.
    """
    options = replace(options, changed=Intervention(weights=weights.values), show=False)
    started = verify_subject(subject, mesh, options, stage=stage)
    numbers = started.numbers
    if started.failure is not None or numbers.parting is not None or not numbers.equal:
        return None
    if numbers.disagreements and not weights.certain:
        first = numbers.disagreements[0]
        what = f"{first.key.kind} {first.key.name} {first.said}"
        asked = f"where one rank starts from the ranks' weights, one after the other, {what}"
        return replace(started, numbers=replace(numbers, questions=(asked,)))
    return replace(started, numbers=replace(numbers, notes=(*numbers.notes, STARTED)))


def _keeps(changed: Intervention, alone: RankRun) -> bool:
    """Does it train the weights that it was given, and not copies of its own that were made before?"""
    ends = {one.key.name: one.value for one in alone.entries if isinstance(one, Record) and one.key.kind == "trained"}
    return all(
        end is None or name not in changed.weights or is_update(changed.weights[name], end)
        for name, end in ends.items()
    )


def _against(
    against: Reference,
    runs: list[RankRun],
    mesh: Mapping[str, int],
    options: VerifyOptions,
    stage: Callable[[str], None],
) -> tuple[list[RankRun], Failure | None]:
    """The runs on the mesh with that of the reference behind them, in place of the program's own; or why not.

    Which random numbers either draws is no business of the other, nor what modules it has that take the data.
    """
    *ranks, own = runs
    stage(f"running {against}")
    where = f"of {against}"
    try:
        (alone,) = run_ranks(against, dict.fromkeys(mesh, 1), replace(options, show=False))
    except SyntaxError as error:
        return ranks, unreadable(error)
    except (RankFailure, RankTimeout) as error:
        return ranks, lost(error, where)
    failure = crash_among([alone], where, 1)
    if failure is None and not {*initial_parameters(alone)} & {*initial_parameters(own)}:
        here, there = (", ".join(list(initial_parameters(run))[:3]) or "none" for run in (own, alone))
        text = f"it has no parameter of the program: its parameters are {there}; those of the program are {here}"
        failure = Failure(where, text)
    if failure is not None:
        return ranks, failure
    compare_only_common(ranks, own, alone)
    return [*ranks, alone], None


def _compared_with(against: Reference, numbers: Numbers, own: RankRun, alone: RankRun) -> str:
    """What is meant by one rank, and whether the program's own run on one rank disagrees too."""
    said = f"one rank is {against}, in place of the program's own run on one rank"
    if not numbers.disagreements:
        return said
    same = compare([own], alone, rtol=None, mesh={"rank": 1}, spread=None).disagreements
    return said + (
        "; that disagrees with it too, so the mistake is not one of the mesh" if same else "; that agrees with it"
    )


def _spread(
    subject: Subject,
    mesh: Mapping[str, int],
    options: VerifyOptions,
    alone: RankRun,
    rounding: torch.dtype,
    stage: Callable[[str], None],
) -> Spread | None:
    """How far rounding moves what ``alone`` has recorded; None where such a run does not come to its end."""
    moved = []
    for seed in range(1, MOVED + 1):
        changed = replace(options.changed or Intervention(), rounding=rounding, seed=seed)
        said = f"measuring rounding, {seed} of {MOVED}"
        run = alone_again(subject, mesh, replace(options, changed=changed), stage, said)
        if run is None:
            return None
        moved.append(run)
    return spread_of(alone, moved)


def record_references(
    file: str, subject: Subject, sizes: Mapping[str, int], options: VerifyOptions
) -> tuple[Failure | None, str]:
    """Run on one rank and write what it computes into ``file``; why that failed, and what there is to say of it."""
    try:
        (alone,) = run_ranks(subject, sizes, options)
    except SyntaxError as error:
        failure: Failure | None = unreadable(error)
    except (RankFailure, RankTimeout) as error:
        failure = lost(error, "on one rank")
    else:
        failure = crash_among([alone], "on one rank", 1)
    if failure is not None:
        at = "" if failure.location is None else f" at {failure.location}"
        said = f"the run {failure.where} did not come to its end{at}: {failure.text}"
        return failure, "\n".join([said, *failure.details.splitlines()])
    made = References(str(subject), {name: getattr(options, name) for name in DECIDE}, alone)
    save(made, file)
    return None, f"{file}: {counted(len(alone.entries), 'record')} of the run on one rank, {made.nbytes / 1e6:.1f} MB"


def _closer(
    subject: Subject,
    mesh: Mapping[str, int],
    options: VerifyOptions,
    rounding: torch.dtype | None,
    numbers: Numbers,
    stage: Callable[[str], None],
) -> Numbers:
    """``numbers`` with the first result that disagrees when all are looked at, with all that global types know of them;
    if it comes before everything else. And the first module whose output no layout explains.

    ``rounding``  of the dtype that has been measured. Where that is coarse, modules get what those before them give on
                  one rank, so that roundings do not pile up; what is wrong then is wrong, though it was lost in them.
    """
    low = rounding is not None and is_low(rounding)
    if not numbers.disagreements and not low:
        return numbers
    wrong = bool(numbers.disagreements)
    options = replace(options, every=wrong, local=options.local and not wrong, modules=True, show=False)
    runs, failure = run_both(subject, mesh, options, stage, fed=low)
    if failure is not None:
        return numbers
    *ranks, alone = runs
    spread: Spread | None = NoneMoved()
    if rounding is not None:
        changed = options.changed or Intervention()
        fed = replace(options, changed=replace(changed, fed=outputs_of(alone) if low else {}))
        spread = _spread(subject, mesh, fed, alone, rounding, stage)
    closer = compare(ranks, alone, rtol=options.rtol, mesh=mesh, spread=spread)
    if not wrong:
        near = closer.module is not None and closer.module.near
        if spread is None or not (closer.disagreements or near):
            return numbers
        found = ((closer.module,) if closer.module is not None and near else ()) + closer.disagreements
        return replace(numbers, disagreements=found, module=closer.module, notes=(*numbers.notes, FED))
    first = next(iter(closer.disagreements), None)
    origin = first if first is not None and first.key.kind == "result" else None
    # That a type says too little explains no wrong number.
    errors = merged_types([run.types for run in ranks]).errors
    cause = next((error for error in errors if error.code not in ("SW408", "SW411")), None)
    wrong_forward = closer.module is not None or (first is not None and first.key.kind != "gradient")
    backward = None if wrong_forward else closer.backward
    return replace(numbers, origin=origin, module=closer.module, backward=backward, cause=cause)
