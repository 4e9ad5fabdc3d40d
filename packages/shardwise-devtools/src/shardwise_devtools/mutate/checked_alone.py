"""What does the checker say of one rank alone, as ``shardwise check`` runs it: the others are imagined?"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from shardwise.diagnostics.result import RunResult
from shardwise.interop.running.recording import Recorder
from shardwise.mesh.entry import set_current_entry
from shardwise.mesh.program import MeshFollower
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.runs.one_rank import record_run, shown_mesh
from shardwise.verifier.runs.warming import warm_up
from shardwise.worlds.fake import fake_world

from .substitute import Changed

TIMEOUT_S = 60.0
"""A program that comes to its end on real ranks may still wait for ever for what is imagined."""


def imagined_types(subject: Changed, mesh: Mapping[str, int], options: VerifyOptions) -> RunResult | None:
    """What it says of the first rank of a mesh; None if the program does not come to its end there."""
    warm_up()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(subject, mesh, options, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        found = ours.recv() if ours.poll(TIMEOUT_S) else None
    except EOFError:
        found = None
    finally:
        process.kill()
        process.join()
        ours.close()
    assert found is None or isinstance(found, RunResult), "nothing else is sent"
    return found


def _run(subject: Changed, mesh: Mapping[str, int], options: VerifyOptions, theirs: Connection) -> None:
    torch.set_num_threads(1)
    place, shown = (0, math.prod(mesh.values())), shown_mesh(mesh)
    run, world = subject.prepare(mesh), _imagined(mesh)
    came = record_run(run, world, options, Recorder(), place=place, name=str(subject), mesh=shown)
    theirs.send(came.types if came.crash is None else None)


@contextlib.contextmanager
def _imagined(sizes: Mapping[str, int]) -> Iterator[DeviceMesh]:
    follower = MeshFollower()
    with fake_world(0, math.prod(sizes.values()), joined=True, on_mesh=follower.made):
        mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        follower.start(mesh)
        try:
            yield mesh
        finally:
            set_current_entry(None)
