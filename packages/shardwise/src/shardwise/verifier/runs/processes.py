"""Where does a verified program run? In real processes: one for every rank of the mesh, and one for the one rank."""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from shardwise.host.no_run import NoProgram
from shardwise.interop.running.recording import Recorder
from shardwise.mesh.entry import set_current_entry
from shardwise.mesh.program import MeshFollower
from shardwise.worlds.failures import RankFailure, RankTimeout
from shardwise.worlds.processes import run_processes
from shardwise.worlds.real_rank import real_world

from ..distance.spread import outputs_of
from ..records.batches import merged
from ..records.failure import Failure
from ..records.intervention import Intervention
from ..records.options import VerifyOptions
from ..records.record import RankRun
from ..records.references import load
from ..records.subject import Subject
from .crash import crash_among, lost, unreadable
from .one_rank import record_run, shown_mesh
from .warming import warm_up


def run_both(
    subject: Subject,
    mesh: Mapping[str, int],
    options: VerifyOptions,
    stage: Callable[[str], None],
    references: str = "",
    *,
    fed: bool = False,
) -> tuple[list[RankRun], Failure | None]:
    """What the ranks of the mesh recorded, and behind them the one rank; or what there is of it, and why not.

    ``fed``  the modules of the mesh give what they give on one rank, once it is recorded what they would have given.

    Errors: SW903 for what is no mesh; SW905 for a file that holds no references of such a run.
    """
    runs: list[RankRun] = []
    if references:
        reference = load(references)
        reference.require(options)
        runs = [reference.run]
    parts = [("on one rank", dict.fromkeys(mesh, 1)), ("on the mesh", dict(mesh))]
    mesh_first = options.feed and (options.changed is None or options.changed.batches is None)
    for where, sizes in reversed(parts) if mesh_first else parts[len(runs) :]:
        stage(f"running {where}")
        if runs and (fed or mesh_first):
            changed = options.changed or Intervention()
            given = replace(changed, fed=outputs_of(runs[0])) if fed else with_batches_of(runs, changed)
            options = replace(options, changed=given)
        try:
            ranks = run_ranks(subject, sizes, options)
        except SyntaxError as error:
            return [], unreadable(error)
        except (RankFailure, RankTimeout) as error:
            return [], lost(error, where)
        failure = crash_among(ranks, where, math.prod(sizes.values()))
        if failure is not None:
            return (ranks if runs else []), failure
        runs = [*runs, *ranks] if mesh_first else [*ranks, *runs]
    return runs, None


def run_ranks(subject: Subject, sizes: Mapping[str, int], options: VerifyOptions) -> list[RankRun]:
    """What every rank of a mesh of these sizes records, in rank order; also how the program crashed, if it did: then
    ranks that wait for those that crashed are left out.

    Errors: NoProgram or SyntaxError if it cannot be read, RankFailure for a process that dies, RankTimeout for a hang.
    """
    warm_up()
    run = subject.prepare(sizes)
    world_size = math.prod(sizes.values())
    try:
        return run_processes(
            _run_rank,
            world_size,
            run,
            sizes,
            options,
            str(subject),
            free_port("127.0.0.1"),
            subject.joined,
            timeout_s=options.timeout_s,
            still_s=options.still_s,
            ended_early=lambda came: came.crash is not None,
        )
    except RankFailure as error:
        if isinstance(error.__cause__, NoProgram):
            raise error.__cause__ from None
        raise


def alone_again(
    subject: Subject, mesh: Mapping[str, int], options: VerifyOptions, stage: Callable[[str], None], said: str
) -> RankRun | None:
    """Another run on one rank; None where it does not come to its end."""
    stage(said)
    try:
        (run,) = run_ranks(subject, dict.fromkeys(mesh, 1), replace(options, show=False))
    except (RankFailure, RankTimeout):
        return None
    return run if run.crash is None else None


def with_batches_of(ranks: Sequence[RankRun], changed: Intervention | None) -> Intervention:
    """``changed``, where the run on one rank gets the batches, and the random numbers, that the ranks have drawn."""
    batches = merged([run.batches for run in ranks])
    return replace(changed or Intervention(), batches=batches, draws=[run.draws for run in ranks])


def _run_rank(
    run: Callable[[object], object],
    sizes: Mapping[str, int],
    options: VerifyOptions,
    name: str,
    port: int,
    joined: bool,
) -> RankRun:
    """What one rank records; runs in its own process."""
    place = dist.get_rank(), dist.get_world_size()
    world = _current(sizes, port, joined=joined)
    return record_run(run, world, options, Recorder(), place=place, name=name, mesh=shown_mesh(sizes))


@contextlib.contextmanager
def _current(sizes: Mapping[str, int], port: int, *, joined: bool) -> Iterator[Any]:
    """The real world; a mesh of these sizes is current in it until the program makes one of its own."""
    follower = MeshFollower()
    with real_world(command="verify", port=port, on_mesh=follower.made, joined=joined):
        mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        follower.start(mesh)
        try:
            yield mesh
        finally:
            set_current_entry(None)


def free_port(address: str) -> int:
    """A port of this machine that nobody listens at, on ``address`` (empty: on any)."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
