"""What happens to an object that is annotated? Its type is set or refined, or it stays as it was.

The deciding half is pure (``annotating``); this half reads and writes tags, remembers where a type came from, and
tells a running check. Works on tensors, on ``Scalar`` and on anything else with ``ndim`` and room for an attribute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, attach
from shardwise.diagnostics.fix import Fix
from shardwise.diagnostics.source import Site, user_site
from shardwise.mesh.axis import MeshAxis
from shardwise.types.elements import not_pending
from shardwise.types.spec import PartitionSpec, partition_spec_get_shard
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Ground, TensorType

from ..calls.located_call import LocatedCall
from ..calls.tracing import is_tracing, log_call
from ..fixes.annotations import moved_before, said_as_found, where_said
from ..fixes.pieces import piece_of_whole
from ..running.recording import declared
from ..running.session import current
from ..running.typing_rule_run import see
from ..tensors.dtensors import is_dtensor
from ..tensors.own_lengths import forget_lengths
from ..tensors.reordered import reordered_along
from ..tensors.tagging import ATTRIBUTE, Origin, Tag, set_tag, set_type, tag_of, type_of, typed_shape
from ..tensors.zeros import note_zeros
from ..torch_compat import no_torch_function
from .annotating import asserted_type, is_spec
from .refining import kept_value, overrule, refine, with_lengths


def annotate(x: object, types: tuple[object, ...], op: str = "assert_type", *, even: bool | None = None) -> None:
    """Set or refine the type of ``x``, or of every element of a list or tuple; nothing changes if any of it fails.

    ``even``: what is said about the lengths of the shards that ``types`` name, if anything is.
    While findings are collected, a failure is reported and the claim is believed from here on, so that one mistake
    makes one finding.
    """
    leaf = x
    steps = []
    try:
        if not types or (isinstance(types[0], tuple) and all(map(is_spec, types))):
            raise _no_claim(op)
        for leaf in leaves(x) if isinstance(x, (list, tuple)) else (x,):
            steps.append(_decide(leaf, types, op, even))
    except SpmdTypeError as error:
        if not settle(error, leaf, op, types):
            raise
        for leaf in leaves(x):
            _believe(leaf, types)
            declared(leaf, op)
        return
    sharding = len(types) > 1 and types[-1].__class__ is PartitionSpec
    for step in steps:
        _commit(*step, op)
        if sharding:
            _say_sharding(step[0])
        declared(step[0], op)
        if even:
            forget_lengths(step[0])


def _say_sharding(x: object) -> None:
    """It was said which dims of ``x`` are sharded, if only that none is."""
    tag = tag_of(x)
    for origin in () if tag is None else tag.origin if isinstance(tag.origin, tuple) else (tag.origin,):
        if origin is not None:
            origin.sharding = True


def _no_claim(op: str) -> SpmdArgumentError:
    return SpmdArgumentError(
        f"{op} requires at least one type argument that is not a PartitionSpec",
        code="SW132",
        help=('assert_type(x, {"tp": R})', "assert_type(x, {}, PartitionSpec(...))"),
    )


def leaves(x: object) -> Iterator[object]:
    """The elements of nested lists and tuples, or the one object that is neither."""
    if isinstance(x, (list, tuple)):
        for item in x:
            yield from leaves(item)
    else:
        yield x


def _decide(x: object, types: tuple[object, ...], op: str, even: bool | None) -> tuple[object, Tag | None, TensorType]:
    """``x``, the tag that it has, and the type that it is to get."""
    see(x)
    asserted = asserted_type(types, ndim_of(x))
    tag = tag_of(x)
    before = None if tag is None else tag.current()
    _check_order(x, asserted, op)
    after = asserted if before is None or before is asserted else _refined(x, before, asserted, op)
    if asserted.partial_axes:
        check_elements(x, after)
    return x, tag, after if even is None else with_lengths(after, asserted, even)


def check_elements(x: object, type: TensorType) -> None:
    """Refuse what elements like those of ``x`` cannot be over any axis. Errors: SW202."""
    with no_torch_function():
        dtype = str(getattr(x, "dtype", "")).removeprefix("torch.")
    wrong = not_pending(dtype, type)
    if wrong is not None:
        raise SpmdTypeError(wrong.message, code="SW202", help=wrong.help, axis=wrong.axis)


def _refined(x: object, before: TensorType, asserted: TensorType, op: str) -> TensorType:
    gradient_free = not requires_grad(x)
    try:
        return refine(before, asserted, gradient_free=gradient_free)
    except SpmdTypeError:
        pass
    # Once more for the words: what the tensor is called is only looked up when something is wrong.
    return refine(before, asserted, gradient_free=gradient_free, name=_located(x, op).name(0))


def _check_order(x: object, asserted: TensorType, op: str) -> None:
    """Refuse a claim that rows are a shard of a dim, though they are known to be in another order. Errors: SW131."""
    moved = reordered_along(x)
    for axis in sorted(moved, key=lambda axis: axis.sort_key):
        shard = partition_spec_get_shard(asserted.spec, axis)
        if shard is not None:
            name = _located(x, op).name(0)
            raise SpmdTypeError(
                f"{name} is said to be sharded on dim {shard.dim} over axis {axis!r}, but its rows are those of merged "
                "dims, of which an inner one is cut: joined in the order of the ranks they are another tensor",
                code="SW131",
                help=("keep the dims apart, or gather the inner one before they are merged",),
                axis=axis,
            )


def commit(x: object, after: TensorType, op: str) -> None:
    """Give ``x`` the type that was decided on."""
    _commit(x, tag_of(x), after, op)


def _commit(x: object, tag: Tag | None, after: TensorType, op: str) -> None:
    before = UNTYPED if tag is None else tag.current()
    if before.ground is not Ground.ABSENT or not before.axes or before.uneven - after.uneven:
        # Nobody has derived this: a constant or an untyped tensor is what the program says it is, and shards that
        # came out of split sizes are even only if it says so.
        session = current()
        if before.ground is Ground.ZERO and session is not None:
            note_zeros(x)
        if session is not None:
            site = user_site(2)
            session.trust(op, None if site is None else site.location())
            session.says_types = True
    if tag is None:
        set_tag(x, Tag(after, Origin(user_site(2), "asserted here")))
    elif before is not after:
        set_type(x, after, _origins(tag, after, user_site(2)))
    if is_tracing():
        log_call(user_site(2), op, [typed_shape(x, before)], typed_shape(x, after))


def _origins(tag: Tag, after: TensorType, site: Site | None) -> tuple[Origin | None, ...]:
    """Per axis: the old origin where nothing changed, this call where it did."""
    before = tag.type
    origins: list[Origin | None] = []
    for axis, place in zip(after.axes, after.placements, strict=True):
        old = tag.origin_of(axis)
        if before.get(axis) is place:
            origins.append(old)
        elif place.is_partial and old is not None:
            origins.append(Origin(site, "read as partial here", old))
        else:
            origins.append(Origin(site, "asserted here"))
    return tuple(origins)


def _believe(x: object, types: tuple[object, ...]) -> None:
    """Go on with the claim although it was refuted; with the unknown type if there is no telling what it claims."""
    if not isinstance(x, torch.Tensor) and tag_of(x) is None:
        return
    try:
        asserted = asserted_type(types, ndim_of(x))
    except SpmdTypeError:
        if tag_of(x) is None:
            set_tag(x, Tag(UNKNOWN_TYPE))
        return
    set_type(x, overrule(type_of(x), asserted), Origin(user_site(), "asserted here"))


def settle(error: SpmdTypeError, x: object, op: str, types: tuple[object, ...] = ()) -> bool:
    """Attach the finding about ``x``; True if it was collected and the program goes on, False if it is to be raised.

    ``types``  what was said of it.
    """
    if error.attached is None:
        axis = "" if error.axis is None else repr(error.axis)
        located = _located(x, op)
        contradicts = error.code in ("SW130", "SW131") and bool(types)
        fixes = _fixes(located, error.axis, x, types) if contradicts else ()
        place = where_said(located.location, error.axis) if contradicts and isinstance(error.axis, MeshAxis) else None
        attach(error, location=place, op=op, axis=axis, operands=[located.operand(0, error.axis)], fixes=fixes)
    session = current()
    if session is None or not session.collecting:
        return False
    session.report(error)
    return True


def is_unspoken(x: object) -> bool:
    """Nothing is checked or known of ``x``: an operator has made it, and no annotation of it can be right or wrong."""
    return current() is None and tag_of(x) is None


def _fixes(located: LocatedCall, axis: object, x: object, types: tuple[object, ...]) -> tuple[Fix, ...]:
    """The step after which ``x`` is what is said, where one keeps its value; and saying what it is."""
    if not isinstance(axis, MeshAxis):
        return ()
    type, said = type_of(x), asserted_type(types, ndim_of(x))
    found, wanted = type.get(axis), said.get(axis)
    shard = partition_spec_get_shard(type.spec, axis)
    op = None if found is wanted else kept_value(found, wanted, shard)
    src, dst = repr(shard or found), repr(partition_spec_get_shard(said.spec, axis) or wanted)
    moved = () if op is None else moved_before(located, op, axis, src, dst)
    cut = partition_spec_get_shard(said.spec, axis) if found.is_equal else None
    piece = () if cut is None else piece_of_whole(located.location, located.name(0), cut.dim)
    return (*piece, *moved, *said_as_found(located.location, axis, src))


def ndim_of(x: Any) -> int:
    """How many dims ``x`` has. Errors: TypeError for a DTensor and for what has no dims."""
    if x.__class__ is not torch.Tensor and is_dtensor(x):
        raise SpmdArgumentError(
            "annotations speak of local tensors, got a DTensor, which knows its own placements",
            help=("x.to_local()",),
        )
    try:
        if current() is None:
            ndim = x.ndim
        else:
            with no_torch_function():
                ndim = x.ndim
    except AttributeError:
        ndim = None
    if ndim.__class__ is not int or not _has_room(x):
        number = isinstance(x, (int, float, complex)) and not isinstance(x, bool)
        raise SpmdArgumentError(
            f"only tensors and objects with ndim and room for an attribute have a type, got "
            f"{x if number else 'one'} of type {type(x).__name__}",
            help=(f"Scalar({x!r}, ...) for a number",) if number else (),
        )
    return ndim


def _has_room(x: object) -> bool:
    return x.__class__ is torch.Tensor or hasattr(x, "__dict__") or hasattr(x.__class__, ATTRIBUTE)


def requires_grad(x: object) -> bool:
    """True if a gradient may be computed for ``x``."""
    with no_torch_function():
        return bool(getattr(x, "requires_grad", False))


def _located(x: object, op: str) -> LocatedCall:
    return LocatedCall(op, [("the tensor", x)])
