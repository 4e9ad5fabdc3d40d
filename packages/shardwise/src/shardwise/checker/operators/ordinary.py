"""The handler of an ordinary operator: the hot path of the checker.

It builds a key from the operands' interned types, finds the verdict in the operator's own dictionary
(``known_calls.py``), runs the operator and hands the type on. Whatever it does not understand (typed scalars, nested
containers, new tensor classes, ``out=``, refusals) goes to ``first_calls.py``, which also fills the dictionary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from shardwise.interop.calls.tracing import anywhere
from shardwise.interop.tensors.tagging import ATTRIBUTE, Tag
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.types.tensor_type import UNTYPED

from ..call.arguments import Op
from ..call.cache_key import COUNT, extend, extend_named, full_key, gradient_bits, number_key
from ..propagation.results import origin_of_result
from ..state.session import CheckSession
from ..state.tensor_classes import NUMBERS, PLAIN, TENSORS
from .first_calls import FirstCalls
from .gradient_copies import COPYING, MOVING, follow, following
from .known_calls import SPLIT, CachedVerdict, KnownWrites
from .listed_pieces import handing_on
from .merged_rows import is_ordered

Handler = Callable[[CheckSession, Any, Sequence[Any], Mapping[str, Any]], Any]


def ordinary(op: Op) -> Handler:
    """The handler for operator ``op``."""
    verdicts: dict[tuple[object, ...], CachedVerdict] = {}
    writes = KnownWrites(op)
    is_view, slow = op.rule.view, FirstCalls(op, verdicts, writes).run
    moves = op.rule.op in MOVING
    may_copy = is_view and (moves or op.rule.op in COPYING)  # of what always copies, dispatch.py sees to it
    if may_copy and not op.in_place:
        slow = following(slow, moves)

    def handle(
        session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords, ordered: bool = False
    ) -> object:
        """``ordered``: the order of the operands' rows has been looked at."""
        if kwargs and writes_by_name(kwargs):
            return handle_write(session, func, args, kwargs)
        tags: list[Tag | None] = []
        key: list[Any] | None
        if session.local:
            mesh = session.here.entry
            key = [session.strict, None if mesh is None else mesh.reach]
            # The loop over args is written out, because this is where a checked call spends its time.
            value: Any
            for value in args:
                cls = value.__class__
                if cls is Tensor or cls in TENSORS:
                    tag = getattr(value, ATTRIBUTE, None)
                    tags.append(tag)
                    if tag.__class__ is Tag:
                        if tag.cell is None or tag.cell.writes is None:
                            key.append(tag.type)
                        elif tag.pieces is None:
                            key.append(tag.current())
                        else:
                            return slow(session, func, args, kwargs)
                    elif tag is None:
                        key.append(UNTYPED)
                    else:
                        return slow(session, func, args, kwargs)
                elif cls is int:
                    key.append(value == 0 if -2 < value < 2 else COUNT)
                elif cls in NUMBERS:
                    key.append(number_key(value))
                elif cls in PLAIN:
                    key.append(None)
                elif not extend(value if cls is tuple or cls is list else (value,), key, tags):
                    return slow(session, func, args, kwargs)
            if kwargs and not extend_named(kwargs, key, tags):
                return slow(session, func, args, kwargs)
        else:
            if session.rows_moved and not ordered:
                call = functools.partial(handle, session, func, args, kwargs, ordered=True)
                return handing_on(session, op, call, args, kwargs)
            if session.rows_moved and is_ordered(op, args):
                return slow(session, func, args, kwargs)
            key = full_key(session, args, kwargs, tags)
            if key is None:
                return slow(session, func, args, kwargs)
        found = tuple(key)
        verdict = verdicts.get(found)
        if verdict is SPLIT:
            found = (*found, *gradient_bits(args, kwargs))
            verdict = verdicts.get(found)
        if verdict is None or anywhere.blocks:
            return slow(session, func, args, kwargs, found)
        result = func(*args, **kwargs) if kwargs else func(*args)
        if result.__class__ is Tensor and not is_view and not verdict.results:
            type, reuse = verdict.type, verdict.reuse
            if verdict.checked:
                session.checked += 1
            else:
                session.unchecked += 1
                if type is UNTYPED:
                    return result
            tag = None if reuse is None else tags[reuse]
            if tag is None:
                result._shardwise = Tag(type, origin_of_result(verdict.sources, tags))  # type: ignore[attr-defined]
            else:
                result._shardwise = tag if tag.cell is None and tag.type is type else Tag(type, tag.origin)  # type: ignore[attr-defined]
        elif is_view and args and result.__class__ is Tensor and verdict.hand_on_view(result, args[0], tags):
            session.checked += 1
        else:
            verdict.hand_on(session, result, args, tags, is_view)
            if may_copy:
                follow(result, func, args, kwargs, moves)
        return result

    def handle_write(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        """A call that writes into its first operand."""
        if session.rows_moved and not session.local:
            call = functools.partial(slow, session, func, args, kwargs, writing=True)
            return handing_on(session, op, call, args, kwargs)
        key = writes.key(session, args, kwargs)
        known, result = writes.run(session, func, args, kwargs, key)
        return result if known else slow(session, func, args, kwargs, key, writing=True)

    return handle_write if op.in_place else handle


def writes_by_name(kwargs: Keywords) -> bool:
    """True if a keyword names a destination; activations pass ``inplace=False`` on every call."""
    return kwargs.get("out") is not None or bool(kwargs.get("inplace"))
