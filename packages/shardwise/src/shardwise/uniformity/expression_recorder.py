"""What does this rank compute that should be equal on others, and how? A function mode above the checker's sees it.

Every tensor that a call makes carries a digest of its expression: the operator, its plain arguments, the state of the
generator, and the digests of its operands. What has been communicated is not known any more, and neither are Python's
numbers once one was read of values that the inert collectives of a fake world have not made.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.source import is_internal, user_location
from shardwise.interop.calls.op_names import op_name
from shardwise.interop.communication.process_groups import communicator
from shardwise.interop.running.recording import Recorder, has_values, heard_by, is_heard
from shardwise.interop.running.session import this_thread
from shardwise.interop.tensors.bits import bytes_of
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_call import TorchFunction
from shardwise.interop.torch_compat import no_torch_function, storage_key, tree_leaves
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import normalize_axis
from shardwise.op_rules.registry import lookup
from shardwise.op_rules.schema import Kind
from shardwise.types.placement import PerMeshAxisLocalSpmdType as Placed
from shardwise.types.placement import Shard

from .expressions import TAKEN_BY, UNKNOWN, EqualValue, TakenTensor

_DIGEST = "_shardwise_expression"
_FRAMES = 12
LIMIT = 20_000
"""Expressions told by one rank; what comes later is not compared."""
_UNWRITTEN = "unwritten"
"""The digest of memory that nobody has written yet."""
_IN_PART = "?"
"""What the digest of an expression begins with, of which some operand is not known: its values are not compared."""
_OVERWRITE = ("fill_", "zero_", "copy_", "zeros_", "ones_", "constant_")
_COPIES = ("clone", "copy_", "detach")
_READS = ("item", "tolist", "__int__", "__float__", "__bool__", "__index__", "numpy", "__array__", "nonzero")
_PLAIN = (int, float, complex, bool, str, type(None), slice, type(...), torch.dtype, torch.Size, Placed, Shard)


class ExpressionRecorder(TorchFunctionMode):
    """Tells of each value of this thread that is typed R or I.

    ``tell``        takes an expression.
    ``is_unreal``   whether a collective of this rank has been left undone: what follows from it has other values.
    """

    def __init__(self, tell: Callable[[EqualValue], object], is_unreal: Callable[[], bool]) -> None:
        super().__init__()
        self._tell = tell
        self._is_unreal = is_unreal
        self._blind = ""
        self._told = 0
        self._groups: dict[Any, tuple[str, tuple[int, ...]] | None] = {}
        self._exchanges = 0
        self._communicated: dict[int, int] = {}  # by storage, the number of the last exchange

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Inside the block this thread's calls and declarations are told."""
        with heard_by(_Declarations(self)), self:
            yield

    def communicated(self, tensors: Sequence[torch.Tensor]) -> None:
        """These are being sent, received or reduced: how they came about is not known any more."""
        with no_torch_function():
            self._exchanges += 1
            self._communicated.update(dict.fromkeys(map(storage_key, tensors), self._exchanges))

    def __torch_function__(
        self,
        func: TorchFunction,
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        named = kwargs or {}
        name = op_name(func)
        if not is_heard() or self._told >= LIMIT or name.prop is not None:
            return func(*args, **named)
        shown = name.shown
        if shown in _READS and not self._blind and self._is_unreal():
            self._blind = _key()
        leaves = tree_leaves((list(args), dict(named)))
        if not any(isinstance(leaf, torch.Tensor) for leaf in leaves) and not _makes_tensors(func):
            return func(*args, **named)
        state = _state(named.get("generator")) if _is_random(func) else ""
        read = tree_leaves(_without_templates(func, args, named))
        operands = [(leaf, self._digest(leaf)) for leaf in read if isinstance(leaf, torch.Tensor)]
        result = func(*args, **named)
        with no_torch_function():
            self._made(func, shown, args, named, state, operands, result)
        return result

    def declared(self, x: torch.Tensor, by: str) -> None:
        """``x`` has been given its type on somebody's word."""
        before = self._digest(x)
        groups = self._equal(x)
        if before == _UNWRITTEN or not groups:
            return
        with no_torch_function():
            known = before != UNKNOWN and not before.startswith(_IN_PART) and not self._is_unreal()
            known = known and not is_dtensor(x) and has_values(x)
            value = _hash(bytes_of(x)) if known else ""
        digest = _hash(f"declared {by} {value}".encode())
        self._put(x, digest if known else UNKNOWN)
        if known:
            at, op = user_location(1), f"declared by {by}"
            self._say(EqualValue(_key(), at, groups, op, value=value, digest=digest, blind=self._blind))

    def placed_alike(self, x: torch.Tensor, axes: Sequence[object], by: str) -> None:
        """``x``, which may have no type, is taken for equal along ``axes``: told if it is known how it came about."""
        digest = self._digest(x)
        groups = tuple(group for axis in axes if (group := self._group(axis)) is not None)
        if groups and digest not in (UNKNOWN, _UNWRITTEN) and not digest.startswith(_IN_PART) and has_values(x):
            with no_torch_function():
                value = _hash(bytes_of(x))
            by = f"{TAKEN_BY}{by}"
            told = _hash(f"{by} {value}".encode())
            self._say(EqualValue(_key(), user_location(1), groups, by, value=value, digest=told, blind=self._blind))

    def stepped(self, step: str, operands: Iterable[tuple[str, torch.Tensor]]) -> None:
        """What ``step`` takes is used as equal where its type says so, and nobody else may have said how it came about.

        Only steps with as many tensors are compared: each rank may have an optimizer for parameters of its own.
        """
        session = this_thread()
        marked = frozenset() if session is None else session.equal_by_marks
        taken: dict[tuple[str, tuple[int, ...]], list[TakenTensor]] = {}
        for name, x in operands:
            digest = self._digest(x)
            for group in self._equal(x, marked):
                taken.setdefault(group, []).append(TakenTensor(name, UNKNOWN if digest == _UNWRITTEN else digest))
        for group, tensors in taken.items():
            key, digest = f"{_key()} {len(tensors)}", _hash("|".join([step, *(one.digest for one in tensors)]).encode())
            told = tuple(tensors)
            self._say(
                EqualValue(key, user_location(1), (group,), step, operands=told, digest=digest, blind=self._blind)
            )

    def _made(
        self,
        func: TorchFunction,
        op: str,
        args: Sequence[object],
        named: Mapping[str, object],
        state: str,
        operands: Sequence[tuple[torch.Tensor, str]],
        result: object,
    ) -> None:
        written = _destination(op, args, named)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if written is not None:
            outputs = [written]
        if _communicates(func):
            for one in (*outputs, *(leaf for leaf, _ in operands)):
                self._put(one, UNKNOWN)
            self._collective(func, args, named)
            return
        if op.startswith(("empty", "new_empty")):
            for one in outputs:
                self._put(one, _UNWRITTEN)
            return
        plain = "" if self._blind else _text((list(args), dict(named)))
        # What is overwritten as a whole is no operand.
        gone = written if state or op in _OVERWRITE else None
        known = [digest for leaf, digest in operands if digest != _UNWRITTEN and leaf is not gone]
        digest = _hash("|".join((op.rstrip("_"), plain, state, *known)).encode())
        if any(one == UNKNOWN or one.startswith(_IN_PART) for one in known):
            digest = _IN_PART + digest
        if op in _COPIES and len(known) == 1 and not plain.strip("; "):
            digest = known[0]  # what is put away, and back later, is what it was
        for at, one in enumerate(outputs):
            self._put(one, f"{digest}.{at}" if len(outputs) > 1 else digest)
        # The noise of ``randn_like(x)`` follows no value of x, and is meant for it.
        leaves = tree_leaves((list(args), dict(named))) if state or op == "backward" else ()
        groups = self._told_equal(outputs, next((leaf for leaf in leaves if isinstance(leaf, torch.Tensor)), None))
        # Without autograd ranks may share out work on gradients, each with other ones at the same line.
        shared_out = digest.startswith(_IN_PART) and not torch.is_grad_enabled()
        if groups and not shared_out:
            told = tuple(TakenTensor(f"argument {at}", one) for at, (_, one) in enumerate(operands, 1))
            plain = "" if op == "backward" else plain
            self._say(
                EqualValue(_key(), user_location(1), groups, op, plain, state, "", told, digest, blind=self._blind)
            )

    def _collective(self, func: TorchFunction, args: Sequence[Any], named: Mapping[str, Any]) -> None:
        """A typed collective, whose plain arguments must agree over its axis; sizes of pieces may differ."""
        op = getattr(func, "__shardwise_op__", "")
        axis = args[1] if len(args) > 1 else named.get("axis")
        if not op or axis is None or self._blind:
            return
        try:
            group = self._group(normalize_axis(axis))
        except SpmdTypeError:
            return
        if group is not None:
            plain = _text(([], {name: value for name, value in named.items() if not name.endswith("sizes")}))
            digest = _hash(f"{op} {plain}".encode())
            self._say(EqualValue(_key(), user_location(1), (group,), op, plain, digest=digest, made=False))

    def _say(self, expression: EqualValue) -> None:
        self._told += 1
        self._tell(expression)

    def _digest(self, x: torch.Tensor) -> str:
        with no_torch_function():
            digest, memory = getattr(x, _DIGEST, (UNKNOWN, None))
            return str(digest) if memory == self._memory(x) else UNKNOWN

    def _put(self, x: torch.Tensor, digest: str) -> None:
        with no_torch_function(), contextlib.suppress(AttributeError, RuntimeError):
            setattr(x, _DIGEST, (digest, self._memory(x)))

    def _memory(self, x: torch.Tensor) -> tuple[int, int]:
        """The storage of ``x``, and the number of the last exchange that it has taken part in."""
        key = 0 if _is_wrapped(x) else storage_key(x)
        return key, self._communicated.get(key, 0)

    def _told_equal(
        self, outputs: Sequence[torch.Tensor], first: torch.Tensor | None
    ) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The axes along which a call makes what is equal on all ranks, and somebody but marks of a library says so.

        ``first``  the operand that a draw is for: where it is refused, its result has no type. Attention may draw as
                   well; of what all ranks have and what varies it makes what varies.
        """
        session = this_thread()
        marked = frozenset() if session is None else session.equal_by_marks
        equal = [group for one in outputs for group in self._equal(one, marked)]
        if first is not None:
            types = [type_of(one) for one in outputs]
            known = {axis for type in types for axis in type.axes if not type.get(axis).is_unknown}
            equal += self._equal(first, known | marked)
        return tuple(dict.fromkeys(equal))

    def _equal(self, x: torch.Tensor, told: Set[object] = frozenset()) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The axes along which ``x`` is R or I, but for those of ``told``, with the ranks that share it."""
        type = type_of(x)
        if type.ground.is_constant:
            return ()
        found = []
        for axis, place in zip(type.axes, type.placements, strict=True):
            if place.is_equal and axis not in told:
                group = self._group(axis)
                if group is not None:
                    found.append(group)
        return tuple(found)

    def _group(self, axis: object) -> tuple[str, tuple[int, ...]] | None:
        """The name of ``axis`` and its ranks, this one among them; None if it is alone, or no axis is meant."""
        if axis not in self._groups:
            try:
                ranks = _ranks_along(axis)
            except (SpmdTypeError, ValueError, RuntimeError):
                return None
            self._groups[axis] = (repr(axis), ranks) if len(ranks) > 1 else None
        return self._groups[axis]


def _ranks_along(axis: object) -> tuple[int, ...]:
    try:
        return tuple(torch.distributed.get_process_group_ranks(communicator(axis).group))  # type: ignore[arg-type]
    except (
        SpmdTypeError
    ):  # without a current mesh an axis has no group, as that of all ranks that a wrapper averages over
        if not isinstance(axis, MeshAxis):
            raise
        return axis.layout.fiber(torch.distributed.get_rank())


class _Declarations(Recorder):
    """Hears of values that are given a type on somebody's word, and keeps no copies."""

    takes_copies = False

    def __init__(self, recorder: ExpressionRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def hear(self, kind: str, name: str, x: object) -> None:
        if kind == "declared" and type(x) in (torch.Tensor, torch.nn.Parameter):
            self._recorder.declared(x, name)  # type: ignore[arg-type]

    def placed_alike(self, x: torch.Tensor, axes: Sequence[object], by: str) -> None:
        self._recorder.placed_alike(x, axes, by)

    def stepped(self, step: str, operands: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._recorder.stepped(step, operands)

    def overwritten(self, tensors: Iterable[torch.Tensor]) -> None:
        self._recorder.communicated([x for x in tensors if not _is_wrapped(x)])


def _is_wrapped(x: torch.Tensor) -> bool:
    """A tensor without a storage of its own that could be asked for."""
    return type(x) not in (torch.Tensor, torch.nn.Parameter) or x.layout is not torch.strided


def _makes_tensors(func: object) -> bool:
    rule = op_name(func).find(lookup)
    return rule is not None and rule.kind in (Kind.RANDOM, Kind.CONSTANT, Kind.ZERO, Kind.EMPTY)


def _without_templates(func: object, args: Sequence[object], named: Mapping[str, object]) -> list[object]:
    """The arguments but for those that give a shape or a dtype alone, as ``other`` of ``type_as``: no value follows.

    The memory that a call writes into stays: what it held may be part of the result.
    """
    rule = op_name(func).find(lookup)
    shapes = frozenset[str]() if rule is None or op_name(func).shown.endswith("_") else rule.templates
    if rule is None or not shapes:
        return [*args, *named.values()]
    names = [one.lstrip("~") for one in rule.parameters]
    kept = [one for at, one in enumerate(args) if at >= len(names) or names[at] not in shapes]
    return [*kept, *(value for name, value in named.items() if name not in shapes)]


def _is_random(func: object) -> bool:
    rule = op_name(func).find(lookup)
    return rule is not None and rule.kind is Kind.RANDOM


def _communicates(func: object) -> bool:
    module = getattr(func, "__module__", "") or ""
    return hasattr(func, "__shardwise_op__") or module.startswith("torch.distributed") or "c10d" in str(func)


def _destination(op: str, args: Sequence[object], named: Mapping[str, object]) -> torch.Tensor | None:
    """The tensor that a call writes into."""
    out = named.get("out")
    if isinstance(out, torch.Tensor):
        return out
    writes = (op.endswith("_") and not op.endswith("__")) or op in ("setitem", "__setitem__")
    first = args[0] if args else named.get("tensor")
    return first if writes and isinstance(first, torch.Tensor) else None


def _text(structure: Any) -> str:
    """The plain arguments, told apart by where they stand; an object of the program is its type."""
    parts: list[str] = []

    def add(value: object, name: str) -> None:
        if isinstance(value, torch.Tensor):
            return
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            for item in value:
                add(item, name)
        elif isinstance(value, dict):
            for key, item in value.items():
                add(item, f"{key}=" if isinstance(key, str) else name)
        elif isinstance(value, _PLAIN):
            parts.append(f"{name}{value!r}")

    args, named = structure
    add(args, "")
    add(named, "")
    return "; ".join(parts)


def _state(generator: object) -> str:
    own = generator if isinstance(generator, torch.Generator) else torch.default_generator
    with no_torch_function():
        return _hash(bytes_of(own.get_state()))


def _hash(what: bytes) -> str:
    return hashlib.blake2b(what, digest_size=8).hexdigest()


def _key() -> str:
    """The program's own frames by file and line, the innermost first."""
    frame, parts = sys._getframe(2), list[str]()
    while frame is not None and len(parts) < _FRAMES:
        if not is_internal(frame.f_code):
            parts.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(parts)
