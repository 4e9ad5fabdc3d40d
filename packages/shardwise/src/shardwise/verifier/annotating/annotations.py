"""Which annotations go where: the types that a run has shown, brought to the places from which its tensors are reached.

One line of source makes many tensors, so a place is good only if everything that is reached from there under one name
has one type; where it has not (a helper that makes weights of any layout), the calling function is asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..records.annotation_sites import AnnotationSites, Held, Place, Reach
from .inference import InferredType

EITHER = "R or I"
"""How a type is written whose gradients tell nothing."""
DEFAULT = "R"
Written = tuple[tuple[str, str], ...]
"""A type as it is written: keys of a dict, and placements."""


@dataclass(frozen=True)
class Annotation:
    """One claim at one place.

    ``expressions``  what is annotated, in program order.
    ``type``         the keys are Python: a name in quotes, or what a process group is called.
    ``held``         of a parameter: whether a module has it, and else where it is used.
    ``unwrapped``    the same expressions where the name is not bound to a wrapper yet.
    ``call``         of an input that has no name: the call that it is given to, and its position among the arguments.
    """

    place: Place
    bound: str
    line: int
    expressions: tuple[str, ...]
    type: Written
    is_input: bool = False
    call: tuple[int, int, int, int] | None = None
    argument: int = 0
    held: Held = Held.BY_A_MODULE
    unwrapped: tuple[str, ...] = ()


@dataclass
class AnnotationPlan:
    """What to write, and what there is to say about it.

    ``choices``  tensors of which the run leaves open whether they are R or I, with the axis.
    ``unnamed``  axes for which the program has neither a name nor a process group where they are written.
    ``left``     tensors that get no annotation, with the reason.
    """

    annotations: list[Annotation] = field(default_factory=list)
    choices: list[tuple[str, str]] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)


def plan_annotations(types: Sequence[InferredType], ranks: Sequence[AnnotationSites]) -> AnnotationPlan:
    """What to write so that the program says ``types``; ``ranks`` is what each rank tells of its source."""
    plan = AnnotationPlan()
    reached: dict[tuple[str, int], tuple[Reach, ...]] = {}
    wanted: dict[tuple[str, int], Mapping[str, str] | None] = {}
    for one in types:
        if one.kind not in ("parameter", "buffer"):
            continue
        for rank in one.ranks:
            reached[one.name, rank] = ranks[rank].parameters.get(one.name, ())
            wanted[one.name, rank] = one.axes
    reached = dict(_shared(reached))
    chosen = _chosen(reached, wanted)
    said: dict[str, str] = {}
    groups: dict[tuple[Place, str, Written], list[Reach]] = defaultdict(list)
    holders = _Holders(reached, ranks)
    buffers = {one.name for one in types if one.kind == "buffer"}
    kept_out = {one.name: one.kept_out for one in types if one.kept_out}
    for (name, rank), reach in chosen.items():
        axes = wanted[name, rank]
        if name in buffers and (reach is None or not axes or any(place.startswith("P") for place in axes.values())):
            continue  # what a rank counts for itself
        if axes is None:
            said[name] = "no layout explains its values"
        elif not axes:
            said[name] = "only one rank has it"
        elif name in kept_out:
            said[name] = kept_out[name]
        elif reach is None:
            said[name] = "no statement of the program's own reaches it (DTensors and what FSDP has split have types)"
        elif name in buffers and not holders.all_have(reach):
            said[name] = "not every module that is made there has it"
        else:
            type = _written(axes, reach, ranks[rank])
            if not type:
                continue
            own = ranks[rank].names
            plan.choices += [(name, own.get(axis, axis)) for axis, place in axes.items() if place == EITHER]
            groups[reach.place, reach.bound, type].append(reach)
    plan.annotations += (_claim(place, bound, type, ways, holders) for (place, bound, type), ways in groups.items())
    plan.annotations += _of_inputs(types, ranks, said)
    plan.left += said.items()
    names = {axis for rank in ranks for axis in rank.names.values()}
    written = {key for annotation in plan.annotations for key, _ in annotation.type}
    plan.unnamed = sorted(key for key in written if key.startswith('"') and key.strip('"') not in names)
    plan.choices = list(dict.fromkeys(plan.choices))
    return plan


class _Holders:
    """The modules that code at each place has under a name, on all ranks, and which of them have which parameter.

    Two stages are made by one ``__init__``, and only the last has a head: ``self.head.weight`` would stop the other.
    """

    def __init__(self, reached: Mapping[tuple[str, int], Sequence[Reach]], ranks: Sequence[AnnotationSites]) -> None:
        self._made: dict[tuple[Place, str], set[tuple[int, int]]] = defaultdict(set)
        self._having: dict[tuple[Place, str], set[tuple[int, int]]] = defaultdict(set)
        for rank, sites in enumerate(ranks):
            for place, modules in sites.made.items():
                self._made[place, "self"].update((rank, module) for module in modules)
        for (_, rank), ways in reached.items():
            for way in ways:
                if way.path:
                    self._made[way.place, way.bound].add((rank, way.holder))
                    self._having[way.place, way.expression].add((rank, way.holder))

    def all_have(self, way: Reach) -> bool:
        having = self._having[way.place, way.expression]
        return not way.path or self._made[way.place, way.bound] <= having


def _claim(place: Place, bound: str, type: Written, ways: Sequence[Reach], holders: _Holders) -> Annotation:
    """One annotation of everything that one name leads to and that has one type."""
    expressions = tuple(dict.fromkeys(way.expression for way in ways))
    unwrapped = tuple(dict.fromkeys(way.unwrapped for way in ways if way.unwrapped))
    if not all(map(holders.all_have, ways)):
        paths = ", ".join(f'"{path}"' for path in dict.fromkeys(way.path for way in ways))
        own = f"({paths})" if len(expressions) > 1 else f"({paths},)"
        expressions, unwrapped = (f"[p for name, p in {bound}.named_parameters() if name in {own}]",), ()
    elif len(expressions) == min(way.whole for way in ways) and len(expressions) > 2:
        by_module = ways[0].held is Held.BY_A_MODULE
        expressions, unwrapped = (f"list({bound}.parameters())" if by_module else bound,), ()
    line = max(way.line for way in ways)
    return Annotation(place, bound, line, expressions, type, held=ways[0].held, unwrapped=unwrapped)


def _shared(
    reached: Mapping[tuple[str, int], tuple[Reach, ...]],
) -> Iterator[tuple[tuple[str, int], tuple[Reach, ...]]]:
    """Of each tensor the places that all ranks have which have it: where one is too early on a rank, it is on all."""
    places: dict[str, list[set[Place]]] = defaultdict(list)
    for (name, _), ways in reached.items():
        places[name].append({way.place for way in ways})
    for (name, rank), ways in reached.items():
        common = set.intersection(*places[name])
        yield (name, rank), tuple(way for way in ways if way.place in common) or ways


def _chosen(
    reached: Mapping[tuple[str, int], tuple[Reach, ...]], wanted: Mapping[tuple[str, int], Mapping[str, str] | None]
) -> dict[tuple[str, int], Reach | None]:
    """For each tensor of a rank the innermost place where its name stands for one type only."""
    level = dict.fromkeys(reached, 0)
    while True:
        at: dict[tuple[Place, str], set[tuple[str, int]]] = defaultdict(set)
        for which, ways in reached.items():
            if level[which] < len(ways):
                at[ways[level[which]].place, ways[level[which]].expression].add(which)
        torn = [which for those in at.values() if len({_frozen(wanted[one]) for one in those}) > 1 for which in those]
        if not torn:
            break
        for which in torn:
            level[which] += 1
    return {which: ways[level[which]] if level[which] < len(ways) else None for which, ways in reached.items()}


def _frozen(axes: Mapping[str, str] | None) -> object:
    return None if axes is None else tuple(axes.items())


def _written(axes: Mapping[str, str], reach: Reach, rank: AnnotationSites) -> Written:
    """The type with its axes as code at that place says them, without those that it has said already."""
    said = {**dict(reach.groups), **{axis: f'"{name}"' for axis, name in rank.names.items()}}
    return tuple(
        (said.get(axis, f'"{axis}"'), place.replace(EITHER, DEFAULT))
        for axis, place in axes.items()
        if axis not in reach.declared
    )


def _of_inputs(
    types: Iterable[InferredType], ranks: Sequence[AnnotationSites], said: dict[str, str]
) -> Iterator[Annotation]:
    written: set[tuple[Place, tuple[str, ...]]] = set()
    absent = set[str]().union(*(rank.absent for rank in ranks))
    for one in types:
        if one.kind != "input":
            continue
        rank = ranks[one.ranks[0]]
        reach = rank.inputs.get(one.name)
        if one.axes is None:
            said[one.name] = "no layout explains its values"
        elif one.kept_out:
            said[one.name] = one.kept_out
        elif one.name in absent:
            said[one.name] = "it is no tensor in some calls: annotate it where it is one"
        elif one.merged or (one.dealt_out and reach is not None and not reach.expression):
            # Of labels.flatten() in a call, S(0) would claim an order that the rows have only on one device.
            said[one.name] = "its rows may be merged of dims of which an inner one is cut: annotate it before that"
        elif one.axes and reach is not None:
            type = _written(one.axes, reach, rank)
            path = one.name.partition(" ")[0]
            expressions = (reach.expression,) if reach.expression else ()
            if not expressions and not path.isdigit():
                said[one.name] = "it has no name where the module is called"
                continue
            argument = int(path) if path.isdigit() else 0
            if expressions and (reach.place, expressions) in written:
                continue  # it is a companion of another one as well
            written.add((reach.place, expressions))
            yield Annotation(reach.place, reach.bound, reach.line, expressions, type, True, reach.call, argument)
