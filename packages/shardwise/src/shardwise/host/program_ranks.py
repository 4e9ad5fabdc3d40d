"""Programs that start their ranks themselves: ``torch.multiprocessing.spawn(train, args, nprocs)``, or a ``Process``
for each rank.

In a world of ours every rank is there already, and this process is one of them: it runs the function with its own
number, and the processes of the others have ended as soon as they are started. In a world of one rank, arguments that
say how many ranks there are say one.

Example, on rank 2 of 4:
    mp.spawn(train, args=(4, config), nprocs=4)                           runs train(2, 4, config)
    for rank in range(4): mp.Process(target=train, args=(rank, 4)).start()   runs train(2, 4), once
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import functools
import importlib
import inspect
import multiprocessing
import multiprocessing.process
import multiprocessing.queues
import os
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch.multiprocessing

from shardwise.diagnostics.errors import SpmdValueError

from .attribute_patch import patched
from .no_run import StartsProcesses
from .number_calls import CARRYING
from .torchrun import TorchrunJob, more_ranks

_RANKS = {"rank", "local_rank", "global_rank", "gpu", "gpu_id", "device_id", "proc_id", "process_id", "worker_id"}
"""What programs call the number of a rank."""
_RANK_COUNTS = {"world_size", "worldsize", "nprocs", "n_procs", "num_procs", "nproc_per_node", "num_processes"}
_RANK_COUNTS |= {"n_ranks", "num_ranks", "n_gpus", "num_gpus", "ngpus", "ngpus_per_node", "num_gpus_per_node"}
"""What they call how many there are."""
_OF_FUNCTIONS = _RANK_COUNTS | {"size", "world", "ranks", "gpus", "procs", "processes"}
"""What they call it where it is the parameter of a function that gets a rank's number too."""
_PATIENCE_S = 5.0
"""How long this rank's own process may take to bring to a queue what it has put there."""


def own_rank() -> int:
    """The number of this process among the ranks; a check may know more of it (``CARRYING``)."""
    return int(os.environ["RANK"])


@contextlib.contextmanager
def ranks_of_program(world: TorchrunJob) -> Iterator[None]:
    """Processes that the program starts inside the block as its ranks are those of ``world``.

    Errors, where they are started: SW903 for another number of ranks, StartsProcesses for one that is no rank.
    """
    ranks = _Ranks(world)
    queues = multiprocessing.queues
    with contextlib.ExitStack() as stack:
        for module in (torch.multiprocessing, importlib.import_module("torch.multiprocessing.spawn")):
            stack.enter_context(patched(module, "start_processes", ranks.start_all))
        for module in (multiprocessing, torch.multiprocessing):
            # How processes start was settled when ours did.
            stack.enter_context(patched(module, "set_start_method", _settled))
        stack.enter_context(patched(multiprocessing.process.BaseProcess, "start", lambda process: ranks.start(process)))
        stack.enter_context(patched(queues.Queue, "get", ranks.getting(queues.Queue.get)))
        stack.enter_context(patched(queues.SimpleQueue, "get", ranks.getting_simply(queues.SimpleQueue.get)))
        yield


class _Ranks:
    """The ranks that a program has started in one run."""

    def __init__(self, world: TorchrunJob) -> None:
        self.world = world
        self.started = False

    def start_all(
        self,
        fn: Callable[..., object],
        args: Sequence[object] = (),
        nprocs: int = 1,
        join: bool = True,
        *rest: object,
        **options: object,
    ) -> _Joined | None:
        """``torch.multiprocessing.start_processes``, to which ``spawn`` comes down."""
        self._require(nprocs, f"starts {nprocs} process{'' if nprocs == 1 else 'es'}")
        self._run(fn, (_known_rank(), *args), {}, nprocs)
        return None if join else _Joined()

    def start(self, process: multiprocessing.process.BaseProcess) -> None:
        """``Process.start``: runs the one of this rank. Which that is, its arguments say."""
        said = vars(process)
        target, args, kwargs = said["_target"], said["_args"], said["_kwargs"]
        if target is None or type(process).run is not multiprocessing.process.BaseProcess.run:
            raise _refused()
        named = _named(target, args, kwargs)
        own, rank = next(
            ((name, n) for name, n in named.items() if name.lower() in _RANKS and type(n) is int), ("", -1)
        )
        if rank < 0:
            raise _refused()
        ranks = next((n for name, n in named.items() if name.lower() in _OF_FUNCTIONS and type(n) is int), None)
        if ranks is not None:
            self._require(ranks, f"starts {ranks} ranks")
        said.update(_popen=_Ended(rank), _sentinel=-1)
        if rank == self.world.rank:
            at = list(named).index(own)
            if at < len(args):
                args = (*args[:at], _known_rank(), *args[at + 1 :])
            else:
                kwargs = {**kwargs, own: _known_rank()}
            self._run(target, args, kwargs, ranks)

    def getting(self, plain: Callable[..., object]) -> Callable[..., object]:
        """``Queue.get`` that does not wait for what another rank would have put there."""

        @functools.wraps(plain)
        def get(self: object, block: bool = True, timeout: float | None = None) -> object:
            if not ranks.started or not block or timeout is not None:
                return plain(self, block, timeout)
            try:
                return plain(self, True, _PATIENCE_S)
            except queue.Empty:
                raise _awaited() from None

        ranks = self
        return get

    def getting_simply(
        self, plain: Callable[[multiprocessing.queues.SimpleQueue[object]], object]
    ) -> Callable[..., object]:
        """``SimpleQueue.get``, likewise."""

        @functools.wraps(plain)
        def get(self: multiprocessing.queues.SimpleQueue[object]) -> object:
            until = time.monotonic() + _PATIENCE_S
            while ranks.started and self.empty():
                if time.monotonic() > until:
                    raise _awaited()
                time.sleep(0.01)
            return plain(self)

        ranks = self
        return get

    def _require(self, ranks: int, does: str) -> None:
        world = self.world
        if world.size in (1, ranks) or (ranks > 1 and world.adapt(ranks)):
            return
        raise SpmdValueError(
            f"the program {does}, but {world.command} runs with {world.size} ranks",
            code="SW903",
            help=(more_ranks(world, ranks),) if ranks > 1 else ("start more than one: with one nothing is shared",),
        )

    def _run(
        self, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object], ranks: int | None
    ) -> None:
        """Runs one of so many ranks, in a world of one as if it were the only one."""
        self.started = True
        if self.world.size == 1 and ranks is not None:
            names = list(_named(function, args, {}))
            args = [_alone(name, value, ranks) for name, value in zip(names, args, strict=False)] + list(
                args[len(names) :]
            )
            kwargs = {name: _alone(name, value, ranks) for name, value in kwargs.items()}
        function(*args, **kwargs)


class _Joined:
    """What ``spawn(join=False)`` gives: processes that have come to their end."""

    processes: Sequence[object] = ()

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        return True

    def pids(self) -> list[int]:
        return []


class _Ended:
    """A started process as ``multiprocessing`` keeps it, which has ended well."""

    def __init__(self, rank: int) -> None:
        self.pid = rank

    def poll(self, flag: int = 0) -> int:
        return 0

    def wait(self, timeout: float | None = None) -> int:
        return 0

    def terminate(self) -> None:
        """There is nothing to end."""

    kill = close = terminate


def _settled(method: str | None, force: bool = False) -> None:
    """``set_start_method``, where every process that counts is there. ValueError for a method that there is not."""
    multiprocessing.get_context(method)


def _known_rank() -> int:
    return CARRYING.get(own_rank, own_rank)()  # type: ignore[return-value]


def _named(function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """The arguments under the names of the function's parameters, the positional ones first."""
    try:
        parameters = [
            name
            for name, one in inspect.signature(function).parameters.items()
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        parameters = []
    return {**dict(zip(parameters, args, strict=False)), **kwargs}


def _alone(name: str, value: object, ranks: int) -> object:
    """An argument in a world of one rank: what says that there are ``ranks`` says one, also among other settings."""
    if type(value) is int:
        return 1 if value == ranks and name.lower() in _OF_FUNCTIONS else value
    if isinstance(value, dict):
        return {**value, **dict.fromkeys(_counts(value, ranks), 1)}
    if isinstance(value, argparse.Namespace) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        changed = copy.copy(value)
        for key in _counts(vars(value), ranks):
            object.__setattr__(changed, key, 1)
        return changed
    return value


def _counts(settings: Mapping[str, object], ranks: int) -> list[str]:
    """The names of the settings that say that there are ``ranks``."""
    return [
        key
        for key, value in settings.items()
        if isinstance(key, str) and key.lower() in _RANK_COUNTS and type(value) is int and value == ranks
    ]


def _refused() -> StartsProcesses:
    return StartsProcesses(
        "the program starts processes that are no ranks, as far as their arguments say; only this one is checked: "
        "check the function that one rank runs, or write the script for torchrun, which starts one process per rank"
    )


def _awaited() -> StartsProcesses:
    return StartsProcesses(
        "the program waits for what another of its ranks would put into a queue; only one runs in this process: "
        "let the ranks exchange it by a collective, or take it in the function that each of them runs"
    )
