"""The page of one op rule: its law, its labels on an example, and what it admits along one mesh axis.

Everything is derived as the checker derives it, from the rule: nothing on a page is written by hand but the law.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardwise.diagnostics.printing.printable import columns
from shardwise.op_rules.propagation.dim_labels import Call, Labelling, Shape
from shardwise.op_rules.propagation.local import Given, Refusal, local_rules
from shardwise.op_rules.propagation.sharded import Sharded, not_pending, sharded_rule
from shardwise.op_rules.schema import Each, Kind, OpRule, Result
from shardwise.types.placement import P, PerMeshAxisLocalSpmdType, PerMeshAxisSpmdType, R, Shard, V, to_local_type

from .dim_fates import FATES, from_front, words
from .example_calls import call_of
from .joining_page import joining

Places = tuple[PerMeshAxisSpmdType, ...]
_Sizes = tuple[tuple[int, ...], ...]
_ALIKE: _Sizes = ((4, 6, 8), (4, 6), (4, 6, 8, 10))
_MEETING: _Sizes = ((4, 6, 8), (4, 6), (6, 8), (8, 6), (8,), (6,), (4,), (10, 6, 8), (4, 8, 6))
_SQUARE: _Sizes = ((6, 6), (4, 6, 6), (2, 4, 6, 8, 10))
ARGUMENTS = {
    "normalized_shape": (8,),
    "shape": (4, 48),
    "size": (4, 48),
    "sizes": (2, 2),
    "pad": (1, 1),
    "dims": (0, 2, 1),
}
"""What an example gives for parameters that dims depend on."""
_EACH = {
    Each.APART: "one per tensor, each as if alone",
    Each.SHAPED: "one per tensor, in a shape that follows from all",
}
_MOST = 4
NO_GRADIENT = "-"
"""Whole numbers, masks and what is overwritten have none, and neither has what is detached."""
_NUMBERS = frozenset({"alpha", "beta", "dim", "value", "scale", "p", "eps", "dtype", "shape", "size", "dims"})
"""Parameters that may hold a tensor and hardly ever do."""


@dataclass(frozen=True)
class Example:
    """A call of the operator on tensors of our choosing: what the page is about.

    ``given``    its other arguments.
    ``results``  the shapes that torch gives, where it was called; else they follow from the labels.
    ``gradients``  the operands that have a gradient, where it was called; None: nobody knows.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    labelling: Labelling
    given: Mapping[str, object] = field(default_factory=dict)
    results: tuple[tuple[int, ...], ...] = ()
    gradients: frozenset[str] | None = None

    def result_sizes(self, number: int, cut: str | None = None) -> list[object]:
        """Of a result, or of its shard where the dims labelled ``cut`` are halved; ``-`` and ``?`` are not known."""
        dims = self.labelling.results[number]
        if not self.results:
            return extents(self, dims, cut)
        return [
            size // 2 if label is not None and label == cut else size
            for label, size in zip(dims, self.results[number], strict=True)
        ]

    @property
    def sizes(self) -> dict[str, int]:
        """The extent of every label."""
        pairs = zip(self.labelling.operands, self.shapes, strict=True)
        found = [(label, n) for dims, shape in pairs for label, n in zip(dims, shape, strict=True) if label is not None]
        return {label: max(n for other, n in found if other == label) for label, _ in found}

    @property
    def is_complete(self) -> bool:
        """Every dim of the results has the extent of some operand's."""
        return all(label in self.sizes for dims in self.labelling.results for label in dims if label is not None)


@dataclass(frozen=True)
class RuleLine:
    """One choice of placements: the results', or why it is refused."""

    operands: Places
    results: Places = ()
    refused: str = ""


def render(rule: OpRule, example: Example | None) -> str:
    """The page, as plain text."""
    parts = [_head(rule)]
    if rule.kind is Kind.CONTROL:
        parts.append(joining(rule))
    elif example is not None:
        lines = list(placements(rule, example))
        parts.append(_dims(example))
        parts.append(_table(example, lines))
        shown = next((line for line in lines if line.results and line.results != (P,) and P not in line.operands), None)
        if shown is not None:
            parts.append(_picture(rule, example, shown))
    else:
        parts.append(_local_only(rule))
    return "\n\n".join(parts)


def _head(rule: OpRule) -> str:
    facts = [
        ("spellings", ", ".join(rule.spellings)),
        ("parameters", rule.params),
        ("kind", rule.kind.value),
        ("law", rule.law),
        ("linear", _polynomial(rule.linear)),
        *((f"result {number}", _of(other)) for number, other in enumerate(rule.others, start=1)),
        ("results", "" if rule.each is None else _EACH[rule.each]),
        ("labels", signature(rule)),
        ("source", rule.source),
        ("view", "shares memory with its first operand" if rule.view else ""),
    ]
    return "\n".join([rule.op, *(f"  {name:<11}{text}" for name, text in facts if text)])


def _polynomial(linear: str) -> str:
    return linear or "in nothing: no operand may be a pending sum"


def _of(result: Result) -> str:
    """A result with a law of its own."""
    return f"{_polynomial(result.linear)}; follows from {' and '.join(result.of.split()) or 'all operands'}"


def signature(rule: OpRule) -> str:
    """The rule's labels as text; a labeller that is a function of shapes says so."""
    if rule.labels is None:
        return ""
    name = getattr(rule.labels, "__name__", "")
    return name if "->" in name else "computed from shapes and arguments"


def examples_of(rule: OpRule) -> Iterator[Example]:
    """Plain calls that the rule can label, with other tensors each."""
    if rule.labels is None:
        return
    if (known := call_of(rule)) is not None:
        example = _labelled(rule, tuple(known.sizes), tuple(known.sizes.values()), known.given)
        assert example is not None, f"the rule labels the call of {rule.op} that was written for its page"
        yield replace(example, given=known.given)
        return
    tensors = [name for name in rule.parameters if not name.startswith("~")]
    usual = [name for name in tensors if name not in _NUMBERS]
    for names in dict.fromkeys((tuple(usual), tuple(tensors))):
        if names:
            yield from _examples_with(rule, names)


def _examples_with(rule: OpRule, names: Sequence[str]) -> Iterator[Example]:
    """Those in which every dim of the results has the extent of an operand's first."""
    factors = [factor.lstrip("*^") for term in rule.terms for factor in term.factors]
    linear = [name for name in names if name == names[0] or name.lstrip("*") in factors]
    fewer = [linear[:-1], names[:2], names[:1], names[:3], names[:4]]
    candidates = [_tensors(one) for one in (linear, *fewer)] if rule.each is not Each.APART else [["tensors0"]]
    given = dict.fromkeys(tuple(one) for one in candidates if one)
    for complete in (True, False):
        for chosen in given:
            made = (_labelled(rule, chosen, shapes) for shapes in _shapes(len(chosen)))
            found = next((one for one in made if one is not None and (one.is_complete or not complete)), None)
            if found is not None:
                yield found
    # What torch takes of square matrices alone is labelled of any shape.
    squares = (_labelled(rule, chosen, (_SQUARE[1],) * len(chosen)) for chosen in given)
    yield from filter(None, squares)


def _tensors(names: Sequence[str]) -> list[str]:
    return [part for name in names for part in ((f"{name[1:]}0", f"{name[1:]}1") if name[0] == "*" else (name,))]


def _shapes(count: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    for shape in _ALIKE:
        yield (shape,) * count
    yield from itertools.islice(itertools.product(_MEETING, repeat=count), 1000)
    for shape in _SQUARE:
        yield (shape,) * count


def _labelled(
    rule: OpRule, names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...], given: Mapping[str, object] = ARGUMENTS
) -> Example | None:
    tensors = tuple(Shape(shape, _parameter(rule, name)) for name, shape in zip(names, shapes, strict=True))
    given = {name: value for name, value in given.items() if name in {one.lstrip("~") for one in rule.parameters}}
    arguments = dict(given)
    for name, tensor in zip(names, tensors, strict=True):
        if is_listed(rule, name):
            arguments[tensor.param] = tuple(one for one in tensors if one.param == tensor.param)
        else:
            arguments[tensor.param] = tensor
    assert rule.labels is not None, "only rules with labels have an example"
    try:
        labelling = rule.labels(Call(tensors, arguments))
    except (LookupError, TypeError, ValueError, AttributeError):
        return None  # not a call that the operator takes
    if labelling is None or [len(dims) for dims in labelling.operands] != [tensor.ndim for tensor in tensors]:
        return None
    example = Example(names, shapes, labelling, given)
    agree = all(
        label is None or n in (1, example.sizes[label])
        for dims, shape in zip(labelling.operands, shapes, strict=True)
        for label, n in zip(dims, shape, strict=True)
    )
    return example if agree else None


def is_listed(rule: OpRule, name: str) -> bool:
    """``tensors0`` is one of a list of tensors, which the parameter ``tensors`` takes."""
    return name not in rule.parameters and name.lstrip("~") not in {one.lstrip("~") for one in rule.parameters}


def _parameter(rule: OpRule, name: str) -> str:
    return name if name in rule.parameters else name.rstrip("01")


def placements(rule: OpRule, example: Example) -> Iterator[RuleLine]:
    """Every label sharded in all operands that have it, then every set of operands that may be pending sums.

    Where a whole term would be added once per rank, the line after that has it as the pending sum that may be added.
    """
    everyone = range(len(example.names))
    for label in example.sizes:
        dims = [own.index(label) if label in own else None for own in example.labelling.operands]
        cut = [Sharded(R if dim is None else V, dim) for dim in dims]
        operands: Places = tuple(R if dim is None else Shard(dim) for dim in dims)
        placed = sharded_rule(example.labelling, cut, partials=True)
        if isinstance(placed, Refusal):
            yield RuleLine(operands, refused=f"{placed.code}: {placed.reason}")
        elif placed.placement is P:
            found = None if placed.total else _not_pending(rule, example, operands)
            if found is not None:
                yield RuleLine(operands, refused=_reason(example, found))
                operands = tuple(P if found.others and at in found.culprits else one for at, one in enumerate(operands))
                found = _not_pending(rule, example, operands)
            if found is None:
                yield RuleLine(operands, _pending(example))
        else:
            yield RuleLine(operands, tuple(R if dim is None else Shard(dim) for dim in placed.dims))
    for size in range(1, len(example.names) + 1):
        for pending in itertools.combinations(everyone, size):
            places = tuple(P if at in pending else R for at in everyone)
            results = _locally(rule, example, places)
            if P in results:
                yield RuleLine(places, results)


def _pending(example: Example) -> Places:
    return tuple(P for _ in example.labelling.results or ((),))


def _not_pending(rule: OpRule, example: Example, operands: Places) -> Refusal | None:
    """Why a sum over the shards does not pass through the operator; None if it does."""
    cut = [at for at, place in enumerate(operands) if isinstance(place, Shard)]
    places = (P if place is P else R for place in operands)
    named = zip(example.names, places, strict=True)
    return not_pending(rule, [Given(_parameter(rule, name), place) for name, place in named], cut)


def _reason(example: Example, found: Refusal) -> str:
    whole = f"{example.names[found.culprits[0]]} would be added once per rank"
    return f"{found.code}: {whole if found.others else found.reason}"


def _locally(rule: OpRule, example: Example, places: Sequence[PerMeshAxisSpmdType]) -> Places:
    """The placement of every result by the local rule alone, empty if the rule refuses."""
    found = _verdict(rule, example.names, places)
    return found * len(example.labelling.results) if len(found) == 1 else found


def _verdict(rule: OpRule, names: Sequence[str], places: Sequence[PerMeshAxisSpmdType]) -> Places:
    givens = [Given(_parameter(rule, name), to_local_type(place)) for name, place in zip(names, places, strict=True)]
    verdict = local_rules(rule, givens)
    if isinstance(verdict, Refusal):
        return ()
    # Known operands make known results; one made of constants alone is the same on every rank.
    return tuple(place if isinstance(place, PerMeshAxisLocalSpmdType) else R for place in verdict)


def _dims(example: Example) -> str:
    lines, names = ["example"], from_front(example.labelling.operands)
    width = max(11, *(len(name) + 2 for name in example.names))
    for name, shape, dims in zip(example.names, example.shapes, example.labelling.operands, strict=True):
        lines.append(f"  {name:<{width}}{list(shape)!s:<18}{words(dims, names)}")
    lines += [
        f"  {'result':<{width}}{_list(example.result_sizes(number)):<18}{words(dims, names)}"
        for number, dims in enumerate(example.labelling.results)
    ]
    fates = example.labelling.fates.items()
    lines += [f"  {names.get(label, label)}: {FATES[fate]}" for label, fate in fates if label in example.sizes]
    lengths = {"shards of one length, or even=True": example.labelling.even}
    lengths["shards of whole groups"] = example.labelling.grouped
    for need, labels in lengths.items():
        lines += [f"  {names.get(label, label)}: {need}" for label in sorted(labels) if label in example.sizes]
    return "\n".join(lines)


def extents(example: Example, dims: Sequence[str | None], cut: str | None = None) -> list[object]:
    """Of dims by their labels; those labelled ``cut`` are halved."""
    sizes = example.sizes
    return ["-" if d is None else sizes[d] // (2 if d == cut else 1) if d in sizes else "?" for d in dims]


def _list(sizes: Sequence[object]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def _table(example: Example, lines: Sequence[RuleLine]) -> str:
    heads = [*example.names, "->", "result", "gradient arrives", *(f"d {name}" for name in example.names)]
    body = []
    for line in lines:
        given = [_text(place) for place in line.operands]
        if line.refused:
            body.append([*given, "->", f"refused, {line.refused}"])
            continue
        duals = [
            _text(to_dual(place)) if example.gradients is None or name in example.gradients else NO_GRADIENT
            for name, place in zip(example.names, line.operands, strict=True)
        ]
        arrives = NO_GRADIENT if example.gradients == frozenset() else _joined(list(map(to_dual, line.results)))
        body.append([*given, "->", _joined(line.results), arrives, *duals])
    return "\n".join(["along one mesh axis", *(f"  {row}" for row in columns([heads, *body]))])


def to_dual(place: PerMeshAxisSpmdType) -> PerMeshAxisSpmdType:
    """The placement that the gradient has."""
    return place.backward_type()


def _text(place: PerMeshAxisSpmdType) -> str:
    return repr(place)


def _joined(places: Sequence[PerMeshAxisSpmdType]) -> str:
    return ", ".join(dict.fromkeys(map(_text, places)))


def _picture(rule: OpRule, example: Example, line: RuleLine) -> str:
    """What two ranks hold, and what that means put together."""
    cut = next(
        dims[place.dim]
        for dims, place in zip(example.labelling.operands, line.operands, strict=True)
        if isinstance(place, Shard)
    )
    entries = []
    for name, dims, place in zip(example.names, example.labelling.operands, line.operands, strict=True):
        part = extents(example, dims, cut if isinstance(place, Shard) else None)
        entries.append((name, part, extents(example, dims), place))
    for number, place in enumerate(line.results):
        part = example.result_sizes(number, cut if isinstance(place, Shard) else None)
        name = rule.op if len(line.results) == 1 else f"{rule.op} [{number}]"
        entries.append((name, part, example.result_sizes(number), place))
    width = max(len(name) for name, *_ in entries) + 2
    lines = [f"two ranks\n  {'':<{width}}{'rank 0':<18}{'rank 1':<18}together"]
    for name, piece, complete, place in entries:
        own, whole = _list(piece), _list(complete)
        means = f"{whole}, pieces along dim {place.dim}" if isinstance(place, Shard) else f"{whole}, the same on both"
        lines.append(f"  {name:<{width}}{own:<18}{own:<18}{means}")
    return "\n".join(lines)


_SHARD = "\n  with global types, and the sizes of a shard (x.shape[0]): cut like the shard"
_MADE = {
    Kind.CONSTANT: "the same on every rank: read as R or as I, whichever the operands beside it need",
    Kind.ZERO: f"zeros: read as R, I or P, whichever the operands beside it need{_SHARD}",
    Kind.EMPTY: "no type: it takes that of what is written into it",
    Kind.RANDOM: f"no type, or R along axes on which the generator is synchronised{_SHARD}",
}
"""What is made of no operand, by kind."""


def _local_only(rule: OpRule) -> str:
    if rule.labels is not None:
        return "which dims can be sharded depends on arguments that an example does not have"
    names = _tensors([name for name in rule.parameters if not name.startswith("~")])[:_MOST]
    pending = [
        ", ".join(name for name, place in zip(names, places, strict=True) if place is P)
        for places in itertools.product((R, P), repeat=len(names))
        if P in places and P in _verdict(rule, names, places)
    ]
    if not names and rule.kind in _MADE:
        return f"result\n  {_MADE[rule.kind]}"
    lines = ["locally", "  replicate operands give a replicate result, a varying one makes it varying"]
    lines += [f"  pending sum in {text}: the result is one too" for text in pending]
    return "\n".join([*lines, "  no dims are known: a sharded operand is refused (SW411)"])
