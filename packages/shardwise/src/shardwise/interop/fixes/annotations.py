"""What the program says of its tensors: another placement, an axis that is left open, and all where nothing is."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import torch

from shardwise.diagnostics.fix import Edit, Fix, Insert, Rewrite, Wrap
from shardwise.diagnostics.source_location import Hop, SourceLocation
from shardwise.diagnostics.syntax import location_in
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument

from ..calls.located_call import LocatedCall, provenance
from ..torch_compat import no_torch_function
from .collective_calls import typed_call
from .expressions import call_at, callee, is_path, node_text_is

_ANNOTATIONS = ("assert_type", "assert_local_type")


def moved_before(located: LocatedCall, op: str, axis: MeshAxis, src: str, dst: str) -> tuple[Fix, ...]:
    """The annotated operand taken through ``op`` first, so that it is what is said of it."""
    name, span = located.names[0]
    argument = axis_argument(axis)
    help = f"{op}({name}, {argument}, src={src}, dst={dst})"
    if located.location is not None and is_path(name):
        moved = typed_call(op, name, argument, src, dst)
        return (Fix(help, (Insert(located.location, (f"{name} = {moved}",)),)),)
    return () if span is None else (Fix(help, (Wrap(span, op, argument, src, dst),)),)


def moved_in_place(located: LocatedCall, op: str, argument: str, src: str, dst: str, options: str) -> tuple[Edit, ...]:
    """The operand that a call writes into taken through ``op`` before it, under its name; nothing of a parameter."""
    (name, _), value = located.names[0], located.values[0]
    with no_torch_function():
        is_parameter = isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf
    if located.location is None or not is_path(name) or is_parameter or name.endswith((".data", ".grad")):
        return ()
    copied = ".clone()" if op == "convert" else ""  # autograd takes no writes into a view that a function made
    return (Insert(located.location, (f"{name} = {typed_call(op, name, argument, src, dst, options)}{copied}",)),)


def said_as_found(location: SourceLocation | None, axis: MeshAxis, found: str) -> tuple[Fix, ...]:
    """The annotation at ``location`` says of the axis what was found."""
    said = _said(location, axis)
    if location is None or said is None:
        return ()
    help = f"{axis_argument(axis)}: {found} in the annotation, if that is what is meant"
    return (Fix(help, (Rewrite(location_in(location, said), f"spmd.{found}"),), choice=True),)


def where_said(location: SourceLocation | None, axis: MeshAxis) -> SourceLocation | None:
    """Where the annotation at ``location`` speaks of the axis: its value in a dict, else what all types come from.

    None where neither is written in the call.
    """
    said = _said(location, axis)
    if location is not None and said is None:
        call = call_at(location)
        alone = (
            call is not None and callee(location, call) in _ANNOTATIONS and len(call.args) == 2 and not call.keywords
        )
        said = call.args[1] if call is not None and alone else None
    return None if location is None or said is None else location_in(location, said)


def said_also(origin: Sequence[Hop], axis: MeshAxis, place: str, help: str) -> tuple[Fix, ...]:
    """The annotation that gave a tensor its type, one of ``origin``, says ``place`` of one more axis."""
    for hop in origin:
        for types in _types_of(hop.location):
            if types.keys and None not in types.keys:
                last = location_in(hop.location, types.values[-1])
                return (Fix(help, (Rewrite(last, f"{{}}, {axis_argument(axis)}: spmd.{place}"),), choice=True),)
    return ()


def said_first(located: LocatedCall, axis: MeshAxis, place: object, help: str) -> tuple[Fix, ...]:
    """What the call needs is said of its first operand: where that was annotated, else where it stands."""
    origin = provenance(located.values[0])
    return (
        said_also(origin, axis, str(place), help) if origin else said_of(located.names[0][1], {axis: str(place)}, help)
    )


def said_of(span: SourceLocation | None, places: Mapping[MeshAxis, str], help: str) -> tuple[Fix, ...]:
    """``assert_type(<expression>, {...})`` in the place of an expression."""
    if span is None or not places:
        return ()
    types = ", ".join(f"{axis_argument(axis)}: spmd.{place}" for axis, place in places.items())
    edit: Edit = Rewrite(span, f"spmd.assert_type({{}}, {{{types}}})")
    return (Fix(help, (edit,), choice=True),)


def _said(location: SourceLocation | None, axis: MeshAxis) -> ast.expr | None:
    """What the annotation at ``location`` says of an axis."""
    if location is None:
        return None
    for types in _types_of(location):
        for key, value in zip(types.keys, types.values, strict=True):
            if key is not None and node_text_is(location, key, axis_argument(axis)):
                return value
    return None


def _types_of(location: SourceLocation) -> Iterator[ast.Dict]:
    """The dicts from axes to types that an annotation is given."""
    call = call_at(location)
    if call is None or callee(location, call) not in _ANNOTATIONS:
        return
    yield from (one for one in call.args[1:] if isinstance(one, ast.Dict))
