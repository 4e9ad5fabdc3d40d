"""What more do further runs say of numbers that disagree: are they roundings, and where does what is wrong begin?"""

from __future__ import annotations

from dataclasses import replace

import torch

from .distance.numbers import Numbers
from .distance.spread import NoneMoved, is_low, outputs_of, rounding_to_measure
from .records.intervention import Intervention
from .records.record import RankRun
from .records.rounded import Spread
from .roundings import measured
from .runs.one_rank import merged_types
from .verification import Compared, Verification

FED = (
    "the roundings of the modules before hid this: it was found in a run in which every module was given what those "
    "before it give on one rank"
)
_SAYS_TOO_LITTLE = ("SW408", "SW411")
"""Codes of a type that says too little, which explains no wrong number."""


def beyond_roundings(asked: Verification, seen: Compared) -> Compared:
    """``seen`` without what roundings explain, and with the place where the rest begins."""
    rounding = rounding_to_measure([*seen.ranks, seen.alone], seen.numbers, asked.options)
    if rounding is not None:
        seen = seen.again(asked, _spread(asked, seen.alone, rounding))
    wrong, low = bool(seen.numbers.disagreements), rounding is not None and is_low(rounding)
    if not asked.options.narrow or asked.against is not None or not (wrong or low):
        return seen
    closer = _looked_at_closely(asked, seen, rounding, wrong=wrong, low=low)
    if closer is None:
        return seen
    return seen.with_numbers(_narrowed(seen.numbers, closer) if wrong else _uncovered(seen.numbers, closer.numbers))


def _looked_at_closely(
    asked: Verification, seen: Compared, rounding: torch.dtype | None, *, wrong: bool, low: bool
) -> Compared | None:
    """Both runs once more, with what every module gives; where something is wrong also with all results and with global
    types. None where they do not come to their end.

    ``rounding``  of the dtype that has been measured. Where that is coarse (``low``), modules get what those before
                  them give on one rank, so that roundings do not pile up; what is wrong then is wrong, though it was
                  lost in them.
    """
    options = replace(asked.options, every=wrong, local=asked.options.local and not wrong, modules=True, show=False)
    asked = asked.with_options(options)
    runs, failure = asked.run_both(fed=low)
    if failure is not None:
        return None
    *ranks, alone = runs
    spread: Spread | None = NoneMoved()
    if rounding is not None:
        changed = replace(options.changed or Intervention(), fed=outputs_of(alone) if low else {})
        spread = _spread(asked.with_options(replace(options, changed=changed)), alone, rounding)
        if spread is None and not wrong:
            return None
    types = merged_types([run.types for run in ranks])
    return Compared(ranks, alone, seen.own, types, asked.compared(ranks, alone, spread))


def _uncovered(numbers: Numbers, closer: Numbers) -> Numbers:
    """``numbers``, of runs that seem to agree, with what roundings have hidden."""
    near = (closer.module,) if closer.module is not None and closer.module.near else ()
    found = near + closer.disagreements
    if not found:
        return numbers
    return replace(numbers, disagreements=found, module=closer.module, notes=(*numbers.notes, FED))


def _narrowed(numbers: Numbers, closer: Compared) -> Numbers:
    """``numbers`` with the first result that disagrees when all are looked at, if it comes before everything else, with
    all that global types know; and with the first module whose output no layout explains.
    """
    first = next(iter(closer.numbers.disagreements), None)
    origin = first if first is not None and first.key.kind == "result" else None
    cause = next((error for error in closer.types.errors if error.code not in _SAYS_TOO_LITTLE), None)
    module = closer.numbers.module
    wrong_forward = module is not None or (first is not None and first.key.kind != "gradient")
    backward = None if wrong_forward else closer.numbers.backward
    return replace(numbers, origin=origin, module=module, backward=backward, cause=cause)


def _spread(asked: Verification, alone: RankRun, rounding: torch.dtype) -> Spread | None:
    """How far rounding moves what ``alone`` has recorded; None where such a run does not come to its end."""
    return measured(alone, asked.options, rounding, lambda options, said: asked.with_options(options).alone_again(said))
