"""What does this rank ask of the others? A dispatch mode sees each collective, wherever it is issued.

That is below autograd, so those of a backward pass are seen too, as are those that DDP and FSDP issue from C++. What
is seen goes to a ``Link``: the process that compares the ranks. Small values come back over it (``delivery.py``), so
that a program which agrees on something with the other ranks does agree. Nothing here is loaded unless ranks are
compared.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.source import user_location
from shardwise.host.attribute_patch import patched
from shardwise.interop.running.session import paused, this_thread
from shardwise.interop.tensors.tagging import sizes_of, type_of
from shardwise.interop.torch_compat import (
    DispatchMode,
    fake_work,
    group_named,
    groups_in_order,
    groups_watched,
    no_torch_function,
    operator_parameters,
    schema_name,
    storage_key,
    unboxed_group,
    unboxed_work,
)
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.types.notation import TypedShape
from shardwise.worlds.imagined_exchange import rows_for_none
from shardwise.worlds.receive_source import sent_by

from .c10d_calls import Reading, reader_of
from .calls import TracedCall, TracedGroup, Wait
from .delivery import deliver, is_small, parcel
from .expression_recorder import ExpressionRecorder
from .expressions import EqualValue
from .object_collectives import recording_objects
from .transitions_told import transitions_told

_FUNCTIONAL = "_c10d_functional"
_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")
"""Names of the reductions, by their number in ``torch.distributed.ReduceOp.RedOpType``."""


_Complete = Callable[[], "int | None"]
"""Fills in what comes; gives the sender of a receive from anybody, by position in the group."""
_Remember = Callable[[Any, int, _Complete], None]
_Begun = dict[int, tuple[Any, int, _Complete]]


class Link(Protocol):
    """The way to the process that compares."""

    def post(self, event: TracedCall | Wait, parcel: bytes | None = None, fetches: bool = False) -> int:
        """Tell of an event; its position in this rank's trace. ``fetches``: ``fetch`` will be called for it."""

    def fetch(self, position: int) -> Mapping[int, bytes] | None:
        """The parcels of the ranks that have met in this call; waits until all have come. None if they do not fit."""

    def mesh(self, sizes: Sequence[int]) -> None:
        """The program has made a device mesh of these sizes."""

    def tell(self, what: EqualValue | Finding) -> None:
        """Something that is known of this rank, for the end."""


@functools.lru_cache(maxsize=8)
def _group_of_all(ranks: int) -> TracedGroup:
    """One for all calls: a mesh of many ranks makes thousands of groups, and each is made by all."""
    return TracedGroup(tuple(range(ranks)))


class CollectiveRecorder(DispatchMode):  # type: ignore[no-untyped-call]
    """Tells a ``Link`` of each collective that this thread issues."""

    def __init__(self, link: Link, rank: int) -> None:
        super().__init__()
        self.link = link
        self.rank = rank
        self.paused = False
        self.transition = ""
        self.unreal = False
        """A collective has been left undone, so values that follow from it are not those of the job."""
        self.expressions = ExpressionRecorder(link.tell, lambda: self.unreal)
        self._groups: dict[int, tuple[Any, TracedGroup]] = {}
        self._works: _Begun = {}
        self._pending: _Begun = {}

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Everything that this thread asks of other ranks inside the block is told to ``link``."""
        work = fake_work()
        with contextlib.ExitStack() as stack:
            stack.enter_context(patched(work, "wait", self.waiting(work.wait)))
            stack.enter_context(groups_watched(self.new_group))
            stack.enter_context(recording_objects(self))
            stack.enter_context(transitions_told(self._during))
            for module in (dist, device_mesh):
                made = _telling_of_meshes(module.init_device_mesh, self.link)
                stack.enter_context(patched(module, "init_device_mesh", made))
            stack.enter_context(self)
            stack.enter_context(self.expressions.recording())
            yield

    def found(self, finding: Finding) -> None:
        """The check of this rank has found something: told at once, in case that the rank dies."""
        self.link.tell(finding)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func.namespace not in ("c10d", _FUNCTIONAL):
            # A subclass goes first, so that what it issues inside is seen.
            return NotImplemented if any(map(_takes_apart, types)) else _unchecked(func, args, kwargs)
        if self.paused:
            return func(*args, **kwargs)
        if any(map(_takes_apart, types)):
            return NotImplemented
        name = schema_name(func)
        if name == "wait_tensor":
            self._wait_for(self._pending, storage_key(args[0]))
            return func(*args, **kwargs)
        reader = reader_of(func.namespace, name)
        if reader is None:
            return func(*args, **kwargs)
        given = {**dict(zip(operator_parameters(func), args, strict=False)), **kwargs}
        functional = func.namespace == _FUNCTIONAL
        process_group = group_named(given["group_name"]) if functional else unboxed_group(given["process_group"])
        group = self.group(process_group)
        size, me = len(group.ranks), group.ranks.index(self.rank)
        if functional:
            result = func(*args, **kwargs)
            reading = reader({**given, "result": result}, size, me)
            self._issue(reading, group, str(given.get("reduce_op", "")).lower(), self._remember_tensors(result))
            return result
        reading = reader(given, size, me)
        op = _OPS[given["reduce_op"].op()] if "reduce_op" in given else ""
        blocking = given.get("async_op") is False or name == "monitored_barrier_"
        run = functools.partial(func, *_with_rows(name, args), **kwargs)
        return self._issue(reading, group, op, None if blocking else self._remember_work, run=run)

    def group(self, process_group: Any) -> TracedGroup:
        """The group as all of its members know it."""
        known = self._groups.get(id(process_group))
        if known is None:
            ranks = tuple(dist.get_process_group_ranks(process_group))
            before = 0
            for other in groups_in_order():
                if other is process_group:
                    break
                before += tuple(dist.get_process_group_ranks(other)) == ranks
            known = process_group, TracedGroup(ranks, before, _name(process_group))
            self._groups[id(process_group)] = known
        return known[1]

    def issue(self, call: TracedCall, parcel: bytes | None, fetches: bool = True) -> Mapping[int, bytes] | None:
        """Tell of a call that is not an operator; what the others handed in."""
        position = self.link.post(call, parcel, fetches)
        return self.link.fetch(position) if fetches else None

    def new_group(self, ranks: tuple[int, ...]) -> None:
        """A group is about to be made by all ranks."""
        world = _group_of_all(dist.get_world_size())
        self.link.post(TracedCall("new_group", world, user_location(1), members=ranks, blocking=False))

    def reduced_by_wrapper(self, buffer: torch.Tensor, process_group: object) -> None:
        """A wrapper's reducer would sum ``buffer`` over a group; it does not, in a fake world."""
        self.unreal = True
        group = self.group(dist.group.WORLD if process_group is None else process_group)
        with no_torch_function():
            self.link.post(self._call(Reading("all_reduce", [buffer]), group, "sum", blocking=False))

    def waiting(self, original: Callable[..., object]) -> Callable[..., object]:
        """``Work.wait`` that is told of."""

        def wait(work: object, *args: object, **options: object) -> object:
            done = original(work, *args, **options)
            source = self._wait_for(self._works, id(work))
            if source is not None:
                sent_by(work, source)
            return done

        return wait

    def _issue(
        self,
        reading: Reading,
        group: TracedGroup,
        op: str,
        remember: _Remember | None,
        run: Callable[[], object] = lambda: None,
    ) -> object:
        """Tell of a call, run it, and fill in what comes: now, or with ``remember`` when it is waited for."""
        from_anybody = reading.kind == "recv" and reading.peer is None
        # Behind a barrier ranks read what another has written before it, as a file.
        fetches = from_anybody or reading.kind == "barrier" or (reading.kind != "send" and is_small(reading))
        sent = parcel(reading.sent) if is_small(reading) else None
        self.unreal |= sent is None and reading.kind != "barrier"
        arriving = [*reading.given, *(reading.reduced or ()), *(one for some in reading.received or () for one in some)]
        self.expressions.communicated(arriving)
        call = self._call(reading, group, op, blocking=remember is None)
        position = self.link.post(call, sent, fetches)
        result = run()

        def complete() -> int | None:
            parcels = (self.link.fetch(position) if fetches else None) or {}
            members = {group.ranks.index(rank): given for rank, given in parcels.items()}
            brought = {member: given for member, given in members.items() if given}
            if brought:
                deliver(reading, op, brought, group.ranks.index(self.rank))
            return next(iter(members), None) if from_anybody else None

        if remember is None:
            complete()
        else:
            remember(result, position, complete)
        return result

    def _call(self, reading: Reading, group: TracedGroup, op: str, blocking: bool) -> TracedCall:
        first = reading.given[0] if reading.given else None
        ranks = group.ranks
        return TracedCall(
            kind=reading.kind,
            group=group,
            location=user_location(1),
            shapes=tuple(tuple(map(int, one.shape)) for one in reading.given),
            dtypes=tuple(_dtype(one) for one in reading.given),
            typed="" if first is None else _typed(first),
            op=op,
            root=None if reading.root is None else ranks[reading.root],
            sends=_sizes(reading.sent),
            receives=_sizes([reading.reduced] * len(ranks) if reading.reduced is not None else reading.received),
            peer=None if reading.peer is None else ranks[reading.peer],
            tag=reading.tag,
            blocking=blocking,
            transition=self.transition,
        )

    @contextlib.contextmanager
    def _during(self, transition: str) -> Iterator[None]:
        before, self.transition = self.transition, transition
        try:
            yield
        finally:
            self.transition = before

    def _remember_work(self, result: object, position: int, complete: _Complete) -> None:
        work = unboxed_work(result[-1] if isinstance(result, tuple) else result)
        if work is not None:
            self._works[id(work)] = work, position, complete

    def _remember_tensors(self, result: torch.Tensor) -> _Remember:
        def remember(_: object, position: int, complete: _Complete) -> None:
            for tensor in [result] if isinstance(result, torch.Tensor) else result:
                self._pending[storage_key(tensor)] = tensor, position, complete

        return remember

    def _wait_for(self, begun: _Begun, key: int) -> int | None:
        """Finish a call that was begun; from whom a receive from anybody has received."""
        known = begun.pop(key, None)
        if known is None:
            return None
        _, position, complete = known
        self.link.post(Wait((position,), user_location(1)))
        return complete()


def _with_rows(name: str, args: Sequence[object]) -> Sequence[object]:
    """The arguments with which the fake backend runs a call that hands in no rows and is to bring some."""
    match args:
        case torch.Tensor() as output, torch.Tensor() as input, group, list() as received, list() as sent, *rest:
            given, lengths = rows_for_none(output, input, received, sent)
            return (output, given, group, received, lengths, *rest) if name == "alltoall_base_" else args
    return args


def _telling_of_meshes(original: Callable[..., object], link: Link) -> Callable[..., object]:
    @functools.wraps(original)
    def init_device_mesh(device_type: str, mesh_shape: Sequence[int], *rest: object, **options: object) -> object:
        link.mesh(tuple(mesh_shape))
        return original(device_type, mesh_shape, *rest, **options)

    return init_device_mesh


def _unchecked(func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """Run ``func``; what torch has issued in C++ comes by the modes of this thread, and no program calls it.

    A call of the program has been judged before it came here. DDP's reducer, on the other hand, copies buckets of no
    type into the parameters and buffers that it keeps equal, and with one rank nobody sees that.
    """
    session = this_thread()
    if session is None or session.paused:
        return func(*args, **kwargs)
    with paused(session):
        return func(*args, **kwargs)


def _takes_apart(cls: Any) -> bool:
    """Is this a tensor subclass that turns one operator into several, DTensor for one?"""
    return bool(cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__) and cls.__name__ != "FakeTensor"


def _sizes(pieces: Sequence[Sequence[torch.Tensor]] | None) -> tuple[int, ...] | None:
    return None if pieces is None else tuple(sum(int(one.numel()) for one in some) for some in pieces)


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _typed(tensor: torch.Tensor) -> str:
    return str(TypedShape(_dtype(tensor), sizes_of(tensor), type_of(tensor)))


def _name(process_group: object) -> str:
    """The name of the mesh axis that a group belongs to; empty if it has none."""
    entry = current_entry()
    try:
        axis = MeshAxis.of(process_group)
    except SpmdTypeError:
        return ""
    names = [] if entry is None else sorted(name for name, one in entry.all_names.items() if one is axis)
    given = getattr(process_group, "group_desc", "")
    own = "" if given in ("", "undefined", "default_pg") else given.removeprefix("mesh_")
    return names[0] if names else own
