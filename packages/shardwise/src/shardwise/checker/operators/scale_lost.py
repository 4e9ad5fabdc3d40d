"""Where a gradient has lost its scale: the calls by which a number of unknown origin came into a loss or a gradient.

``loss / 8`` may divide by a batch or by a number of ranks. Nothing is reported of what nobody knows, so where such a
gradient is stepped with, by an optimizer or by hand, the report says at which lines its scale was lost. A call that
loses it marks the node that autograd makes for it; a backward pass whose root is of unknown scale collects the marks
that it starts from. Calls that keep the scale do nothing for this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from shardwise.diagnostics.source import Site, user_site
from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.calls.located_call import axis_text
from shardwise.interop.tensors.tagging import Tag, tag_of
from shardwise.interop.torch_compat import no_torch_function, takes_gradient
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.regions import exponent_over
from shardwise.op_rules.propagation.call_types import Outcome
from shardwise.op_rules.propagation.operand import WHOLE, Bound, exponent_along
from shardwise.op_rules.schema import OpRule
from shardwise.op_rules.vocabulary.degrees import JOINED, NOT_HOMOGENEOUS
from shardwise.types.placement import R
from shardwise.types.tensor_type import Exponent, TensorType

from ..state.session import CheckSession

_MARK = "shardwise"
"""The entry of a node's metadata: the axes along which the scale is lost in it, and where."""
_JOINED = "shardwise joined"
"""As ``_MARK``: where a term whose scale is lost was added to others, by which the sum has one."""
SCALE_OVER = "the scale over "
"""How what is listed as lost begins."""
_OF_GRADIENTS = (" takes, ", " of a gradient, ")
OF_MESSAGES = "the scale of what is sent as one message, of which each number has its own"
"""What is listed as lost where a mean loss and a count of hits are joined."""
_CURVED = frozenset(name.replace("_", "") for name in NOT_HOMOGENEOUS)


def is_of_gradients(what: str) -> bool:
    """Is ``what`` is listed as lost the scale of a gradient that is stepped with?"""
    return what.startswith(SCALE_OVER) and any(words in what for words in _OF_GRADIENTS)


def axes_lost(operands: Sequence[Bound], values: Sequence[object], outcome: Outcome) -> tuple[MeshAxis, ...]:
    """The axes along which the result is of unknown scale though all that it can have a gradient of is not.

    Another operand must be: that local types know no scale of a mean of what varies is no secret of the program's.
    """
    known = [
        operand.type
        for operand, value in zip(operands, values, strict=True)
        if isinstance(operand.type, TensorType) and (operand.grad or gradient_origin(tag_of(value)) is not None)
    ]
    return _lost(may_be_lost(operands, outcome), known)


def may_be_lost(operands: Sequence[Bound], outcome: Outcome) -> tuple[MeshAxis, ...]:
    """The axes along which it depends on what has a gradient, or is made of one, whether a scale is lost."""
    types = [operand.type for operand in operands if isinstance(operand.type, TensorType)]
    return tuple(
        axis
        for axis, exponent in outcome.type.scale.items()
        if exponent is None
        and any(_exponent(type, axis) is not None for type in types)
        and any(
            (_exponent(one.type, axis) if isinstance(one.type, TensorType) else exponent_along(axis, one, one.type))
            is None
            for one in operands
        )
    )


def _exponent(type: TensorType, axis: MeshAxis) -> Exponent:
    """That of an operand along an axis of its result, which may be said with axes of another view of the mesh."""
    return exponent_over(axis, {one: type.exponent(one) for one in type.axes})


def axes_joined(
    session: CheckSession, rule: OpRule, operands: Sequence[Bound], outcome: Outcome
) -> tuple[MeshAxis, ...]:
    """The axes along which the call adds a term of unknown scale that has a gradient to others: the sum has theirs.

    Local types know none of a mean of what varies.
    """
    if session.local or outcome.refusals or rule.op in NOT_HOMOGENEOUS or len(rule.terms) < 2:
        return ()
    unknown = [
        operand.type
        for operand in operands
        if operand.grad and isinstance(operand.type, TensorType) and None in operand.type.scale.values()
    ]
    known = [axis for axis in outcome.type.axes if outcome.type.exponent(axis) is not None]
    return tuple(axis for axis in known if any(axis in type and type.exponent(axis) is None for type in unknown))


def note_joined(result: object, axes: Sequence[MeshAxis]) -> None:
    """The call that is running has made ``result`` by adding such a term."""
    with no_torch_function():
        node: Any = result.grad_fn if isinstance(result, torch.Tensor) else None
    if node is not None:
        node.metadata.setdefault(_JOINED, {}).update(dict.fromkeys(axes, user_site()))


def beside_ranks(session: CheckSession, operands: Sequence[Bound], outcome: Outcome) -> tuple[MeshAxis, ...]:
    """The axes along which a number that grows with the ranks is combined with what has no known scale, so that nobody
    can say whether it belongs there. Local types know no scale of a mean of what varies, and positions have none.
    """
    if session.local or outcome.refusals:
        return ()
    numbers = [one.type for one in operands if one.number is not None and isinstance(one.type, TensorType)]
    types = [one.type for one in operands if one.dtype not in WHOLE and isinstance(one.type, TensorType)]
    return tuple(
        axis
        for axis in dict.fromkeys(axis for type in numbers for axis in type.scale)
        if any(type.get(axis) is R and type.exponent(axis) != 0 for type in numbers)
        and any(type.exponent(axis) is None for type in types)
        and len(types) > len(numbers)
    )


def is_message(rule: OpRule, operands: Sequence[Bound], outcome: Outcome) -> bool:
    """Does the call join what is on several scales that are known, or with pending sums what all ranks have?"""
    if rule.op not in JOINED or outcome.refusals:
        return False
    types = [operand.type for operand in operands if isinstance(operand.type, TensorType)]
    return any(
        all(type.exponent(axis) is not None for type in types)
        or (any(type.is_partial(axis) for type in types) and any(type.is_equal(axis) for type in types))
        for axis, exponent in outcome.type.scale.items()
        if exponent is None
    )


def note_beside_ranks(session: CheckSession, op: str, result: object, axes: Sequence[MeshAxis]) -> None:
    """List what a call has made beside such a number; what has a gradient is listed where it is stepped with."""
    if isinstance(result, torch.Tensor) and not takes_gradient(result) and gradient_origin(tag_of(result)) is None:
        names = " and ".join(map(axis_text, axes))
        session.lose(f"{SCALE_OVER}{names} of what {op} makes, by a factor of unknown origin", user_site())


def lost_by_tags(
    axes: Sequence[MeshAxis], tensors: Sequence[torch.Tensor], tags: Sequence[Tag | None]
) -> tuple[MeshAxis, ...]:
    """``axes_lost`` of a known call on tensors with these tags."""
    recorded = torch.is_grad_enabled()
    known = [
        tag.current()
        for tensor, tag in zip(tensors, tags, strict=False)
        if tag is not None and ((recorded and takes_gradient(tensor)) or gradient_origin(tag) is not None)
    ]
    return _lost(axes, known)


def _lost(axes: Sequence[MeshAxis], known: Sequence[TensorType]) -> tuple[MeshAxis, ...]:
    if not known:
        return ()
    return tuple(axis for axis in axes if all(_exponent(type, axis) is not None for type in known))


def note(session: CheckSession, result: object, axes: Iterable[MeshAxis]) -> None:
    """The call that is running has made ``result``, whose scale along ``axes`` is lost."""
    if not isinstance(result, torch.Tensor):
        return
    with no_torch_function():
        node: Any = result.grad_fn
    site = user_site()
    if node is not None:
        node.metadata.setdefault(_MARK, {}).update(dict.fromkeys(axes, site))
    elif gradient_origin(tag_of(result)) is not None:
        for axis in axes:
            session.scale_lost.setdefault(axis, {})[site] = None


def collect(session: CheckSession, roots: Iterable[torch.Tensor], axes: Iterable[object]) -> None:
    """A backward pass starts from ``roots``, of which some are of unknown scale along ``axes``: remember where it was
    lost. What stands in a function that is not homogeneous has nothing to do with the scale of its result.
    """
    wanted, site = set(axes), user_site()
    if (not wanted and session.local) or site in session.scale_sought:
        return
    session.scale_sought.add(site)
    with no_torch_function():
        pending: list[Any] = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen = set(pending)
    while pending:
        node = pending.pop()
        marks: dict[MeshAxis, Site | None] = node.metadata.get(_MARK, {})
        for axis, place in marks.items():
            if axis in wanted:
                session.scale_lost.setdefault(axis, {})[place] = None
        for axis, place in node.metadata.get(_JOINED, {}).items():
            session.scale_lost.setdefault(axis, {})[place] = None
            session.scale_joined.add(axis)
        if type(node).__name__.partition("Backward")[0].lower() in _CURVED:
            continue
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                pending.append(following)


def tell_step(session: CheckSession, written: Iterable[object]) -> None:
    """A parameter is stepped by hand, with ``written``: list where the scale of the gradients in it was lost."""
    tags = (tag_of(value) for value in written)
    types = [tag.current() for tag in tags if tag is not None and gradient_origin(tag) is not None]
    _list(session, "a gradient", {axis for type in types for axis in type.axes if type.exponent(axis) is None})


def tell_unstepped(session: CheckSession) -> None:
    """The run is over. Where no optimizer has stepped with gradients of an axis, the program has used them by hand."""
    _list(session, "a gradient", set(session.scale_lost) - session.scale_stepped)


def tell(session: CheckSession, step: str, axes: Iterable[MeshAxis]) -> None:
    """Gradients whose scale along ``axes`` is not known enter ``step``: list where it was lost, each place once."""
    _list(session, f"what {step} takes", {*axes, *session.scale_joined})
    session.scale_joined.clear()


def _list(session: CheckSession, of: str, axes: Iterable[MeshAxis]) -> None:
    lost: dict[Site | None, list[str]] = {}
    for axis in sorted(axes, key=lambda axis: axis.sort_key):
        for site in session.scale_lost.pop(axis, {}):
            if (axis, site) not in session.scale_told:
                session.scale_told.add((axis, site))
                lost.setdefault(site, []).append(axis_text(axis))
    for site, names in lost.items():
        session.lose(f"{SCALE_OVER}{' and '.join(names)} of {of}, by a factor of unknown origin", site)
