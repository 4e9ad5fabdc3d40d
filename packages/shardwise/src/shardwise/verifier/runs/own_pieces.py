"""Where the runs part because every rank cuts the same piece: do they agree where each rank has its own?

A mesh of two ranks trains on ``images[:4]`` of eight, with noise added, so that the inputs of the model say nothing:

    recorded    images[:4] is piece 0 of 2 of what one rank has there, on both ranks
    run again   with rows 4 to 8 on rank 1, all that the mesh computes is what one rank computes

That proves the cut wrong; where the runs part all the same, or disagree, nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from shardwise.worlds.failures import RankFailure, RankTimeout

from ..comparison.compare import compare
from ..distance.numbers import Numbers
from ..distance.spread import NoneMoved
from ..layouts.shared_data import repeated_data
from ..records.intervention import Intervention
from ..records.options import VerifyOptions
from ..records.subject import Subject
from .processes import run_both, run_ranks

RECUT = "with a piece of its own on every rank, the ranks compute what one rank computes"


def with_own_pieces(
    subject: Subject, mesh: Mapping[str, int], options: VerifyOptions, numbers: Numbers, stage: Callable[[str], None]
) -> Numbers | None:
    """``numbers``, of runs that part, with a cut that is proven wrong in their place; None if none is."""
    options = replace(options, data=True, show=False)
    runs, failure = run_both(subject, mesh, options, stage)
    if failure is not None:
        return None
    *ranks, alone = runs
    found = repeated_data([run.data for run in ranks], alone.data, mesh)
    if not found:
        return None
    first = next(iter(found))
    for chosen in ([first], list(found)) if len(found) > 1 else ([first],):
        pieces = {key: own for source in chosen for key, own in found[source].pieces.items()}
        changed = replace(options.changed or Intervention(), pieces=pieces)
        stage("running on the mesh with a piece of its own on every rank")
        try:
            again = run_ranks(subject, dict(mesh), replace(options, changed=changed))
        except (RankFailure, RankTimeout):
            return None
        if any(run.crash is not None for run in again):
            continue
        made = compare(again, alone, rtol=options.rtol, mesh=mesh, spread=NoneMoved())
        if made.parting is None and not made.disagreements and made.equal > numbers.equal:
            return replace(made, disagreements=(found[first].wrong,), notes=(*made.notes, RECUT))
    return None
