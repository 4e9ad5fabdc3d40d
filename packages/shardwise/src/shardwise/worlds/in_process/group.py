"""How does PyTorch talk to ranks that are threads? Through a process group that lays out each call for the meeting.

The methods are those of ``torch.distributed.ProcessGroup``, called by ``torch.distributed``'s functions and, for
functional collectives and DDP, from C++. A call returns at once; only waiting for its work passes the turn on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from shardwise.interop.torch_compat import Work, no_modes

from .exchange import REDUCTIONS, GroupCall, contiguous, elements, memory, room
from .meeting import Arrival, GroupKey, Meetings
from .turns import Turns

# Typed loosely: the stubs list ways to call a method that nothing uses on a subclass.
ProcessGroup: Any = dist.ProcessGroup


class Host(Protocol):
    """What a group needs of the world it is in."""

    turns: Turns
    meetings: Meetings


class PendingWork(Work):  # type: ignore[misc]
    """A collective that this rank has come to; ``wait`` lets the others run until they have."""

    def __init__(self, host: Host, arrival: Arrival, result: list[Tensor]) -> None:
        super().__init__()
        self._host, self._arrival, self._result = host, arrival, result

    def wait(self, timeout: object = None) -> bool:
        """True, once every rank has come. Time-outs are the world's."""
        self._host.meetings.wait(self._host.turns, self._arrival)
        return True

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """Lets the others run first, so that a program may poll."""
        if not self._arrival.done:
            self._host.turns.offer(self._arrival.rank)
        return self._arrival.done

    def is_success(self) -> bool:
        return self._arrival.done

    def exception(self) -> None:
        return None

    def result(self) -> list[Tensor]:
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """The rank of the group that a received message came from."""
        self.wait()
        assert self._arrival.partner is not None, "only messages have a source"
        return self._arrival.key.ranks.index(self._arrival.partner)

    def _source_rank(self) -> int:
        return self.source_rank()

    def get_future(self) -> object:
        """A future that is complete: C++ waits for one without passing the turn on, so the waiting is done here."""
        self.wait()
        future: Any = torch.futures.Future()
        future.set_result(self._result)
        return future


class CoalescedWork:
    """The handle of all calls that have been made in one block of ``_coalescing_manager``."""

    def __init__(self, works: Sequence[PendingWork]) -> None:
        self._works = works

    def wait(self, timeout: object = None) -> bool:
        return all(work.wait(timeout) for work in self._works)

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)


class RankGroup(ProcessGroup):  # type: ignore[misc]
    """The process group ``key`` as rank ``rank`` of the job sees it."""

    def __init__(self, host: Host, key: GroupKey, rank: int, desc: str = "undefined") -> None:
        super().__init__(key.ranks.index(rank), len(key.ranks))
        self._host, self._key, self._global_rank, self._desc = host, key, rank, desc
        self._coalesced: list[PendingWork] | None = None
        """The calls since coalescing has started."""

    group_name = property(lambda self: self._key.name)
    group_desc = property(lambda self: self._desc)
    _device_types = property(lambda self: [torch.device("cpu")])  # since torch 2.14 monitored_barrier asks

    def getBackendName(self) -> str:
        return "gloo"

    def name(self) -> str:
        return "gloo"

    def _get_backend(self, device: torch.device) -> RankGroup:
        """Which backend moves tensors of ``device``: this group, one message at a time."""
        return self

    def new_group(
        self,
        ranks: Sequence[int],
        timeout: object = None,
        pg_options: object = None,
        group_name: str = "",
        group_desc: str | None = None,
        backend: object = None,
    ) -> RankGroup | None:
        """The group of these ranks of the job; None on a rank that is not among them. ``backend``: since torch 2.14."""
        if self._global_rank not in ranks:
            return None
        key = GroupKey(str(group_name), tuple(ranks))
        return RankGroup(self._host, key, self._global_rank, group_desc or "undefined")

    # Collectives on one tensor per rank

    def allreduce(self, tensors: list[Tensor], opts: object = None) -> PendingWork:
        opts = dist.AllreduceOptions() if opts is None else opts
        return self._in_place("all_reduce", tensors, op=_op(opts))

    def allreduce_coalesced(self, tensors: list[Tensor], opts: object = None) -> PendingWork:
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: list[Tensor], opts: dist.ReduceOptions) -> PendingWork:
        return self._in_place("reduce", tensors, op=_op(opts), root=opts.rootRank)

    def broadcast(self, tensors: list[Tensor], opts: dist.BroadcastOptions) -> PendingWork:
        return self._in_place("broadcast", tensors, root=opts.rootRank)

    def barrier(self, opts: object = None) -> PendingWork:
        return self._in_place("barrier", [])

    def monitored_barrier(self, timeout: object = None, wait_all_ranks: bool = False) -> None:
        self._in_place("barrier", []).wait()

    # Collectives that gather and scatter: outputs, then inputs

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: object = None) -> PendingWork:
        return self._join("all_gather", inputs, [x for gathered in outputs for x in gathered])

    def allgather_coalesced(
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: object = None
    ) -> PendingWork:
        return self._join("all_gather", inputs, [rank[k] for k in range(len(inputs)) for rank in outputs])

    def all_gather_single(self, output: Tensor, given: Tensor, opts: object = None) -> PendingWork:
        return self.all_gather_single_coalesced([output], [given], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: object = None
    ) -> PendingWork:
        return self._join("all_gather", inputs, outputs, output_parts=self.size())

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: dist.GatherOptions) -> PendingWork:
        return self._join("gather", inputs, [x for gathered in outputs for x in gathered], root=opts.rootRank)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: dist.ScatterOptions) -> PendingWork:
        with no_modes():
            given = [memory(x) for scattered in inputs for x in scattered]
            filled = [memory(x) for x in outputs]
        return self._arrive(GroupCall("scatter", given, filled, "", opts.rootRank, outputs), outputs)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: object = None) -> PendingWork:
        opts = dist.ReduceScatterOptions() if opts is None else opts
        return self._join("reduce_scatter", [x for given in inputs for x in given], outputs, op=_op(opts))

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: object = None) -> PendingWork:
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: object = None
    ) -> PendingWork:
        opts = dist.ReduceScatterOptions() if opts is None else opts
        return self._join("reduce_scatter", inputs, outputs, op=_op(opts), input_parts=self.size())

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: object = None) -> PendingWork:
        return self._join("all_to_all", inputs, outputs)

    def all_to_all_single(
        self,
        output: Tensor,
        given: Tensor,
        output_rows: list[int] | None = None,
        input_rows: list[int] | None = None,
        opts: object = None,
    ) -> PendingWork:
        n = self.size()
        with no_modes():
            outputs, inputs = _rows(output, output_rows, n), _rows(given, input_rows, n)
        return self._arrive(GroupCall("all_to_all", inputs, outputs, shown=[given]), [output])

    alltoall_base = all_to_all_single

    # Messages

    def send(self, tensors: list[Tensor], partner: int, tag: int = 0) -> PendingWork:
        (x,) = tensors
        to = self._key.ranks[partner]
        with no_modes():
            given = contiguous(x)
        arrival = self._host.meetings.send(self._global_rank, self._key, given, x, to, tag)
        return self._begun(PendingWork(self._host, arrival, []))

    def recv(self, tensors: list[Tensor], partner: int, tag: int = 0) -> PendingWork:
        return self._receive(tensors, self._key.ranks[partner], tag)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> PendingWork:
        return self._receive(tensors, None, tag)

    def _receive(self, tensors: list[Tensor], whom: int | None, tag: int) -> PendingWork:
        (x,) = tensors
        with no_modes():
            output = contiguous(x)
        arrival = self._host.meetings.receive(self._global_rank, self._key, output, x, whom, tag)
        return self._begun(PendingWork(self._host, arrival, tensors))

    def _start_coalescing(self, device: object = None) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: object = None) -> CoalescedWork:
        works, self._coalesced = self._coalesced or [], None
        return CoalescedWork(works)

    # What a group of threads has no use for

    def _set_sequence_number_for_group(self) -> None: ...

    def set_timeout(self, timeout: object, device: object = None) -> None: ...

    def shutdown(self) -> None: ...

    def abort(self) -> None: ...

    def _in_place(self, kind: str, tensors: Sequence[Tensor], *, op: str = "", root: int = 0) -> PendingWork:
        with no_modes():
            held = [memory(x) for x in tensors]
        return self._arrive(GroupCall(kind, held, held, op, root, tensors), tensors)

    def _join(
        self,
        kind: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        *,
        op: str = "",
        root: int = 0,
        input_parts: int = 1,
        output_parts: int = 1,
    ) -> PendingWork:
        with no_modes():
            given = [part for x in inputs for part in _parts(elements(x), input_parts)]
            if output_parts == 1:
                filled = [room(x) for x in outputs]
            else:
                filled = [part for x in outputs for part in _parts(contiguous(x), output_parts)]
        return self._arrive(GroupCall(kind, given, filled, op, root, inputs), outputs)

    def _arrive(self, call: GroupCall, result: Sequence[Tensor]) -> PendingWork:
        arrival = self._host.meetings.join(self._global_rank, self._key, call)
        return self._begun(PendingWork(self._host, arrival, list(result)))

    def _begun(self, work: PendingWork) -> PendingWork:
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work


def _op(opts: Any) -> str:
    for name in REDUCTIONS:
        if opts.reduceOp == getattr(dist.ReduceOp, name):
            return name
    raise ValueError(f"ranks in one process reduce by {', '.join(REDUCTIONS)}, not by {opts.reduceOp}")


def _parts(x: Tensor, n: int) -> Sequence[Tensor]:
    """``n`` equal pieces of a tensor of one dim."""
    if x.numel() % n:
        raise ValueError(f"a tensor of {x.numel()} elements has no {n} equal parts")
    return torch.split(x, x.numel() // n) if x.numel() else [x] * n


def _rows(x: Tensor, rows: list[int] | None, n: int) -> Sequence[Tensor]:
    """The elements of ``x``, cut into ``rows`` rows of dim 0 for each of ``n`` ranks, evenly if none are given."""
    if not rows:
        return _parts(contiguous(x), n)
    if len(rows) != n or sum(rows) != x.shape[0]:
        raise ValueError(f"{rows} rows for {n} ranks do not cut dim 0 of shape {tuple(x.shape)}")
    row = x[0].numel() if x.shape[0] else 0
    return torch.split(contiguous(x), [count * row for count in rows])
