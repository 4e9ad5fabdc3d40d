"""Who owes the sum of a parameter's gradient, along which mesh axis? A wrapper, the module, the step, or nobody.

A gradient is a pending sum along the axes on which its parameter is R, and only there: an I parameter has had its sum
inside the module, and pieces are not added to one another. What is seen of the wrappers and what the program says of
the rest are put together here, and refused where both would sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, SpmdValueError, shown
from shardwise.interop.running.wrappers import plain_name
from shardwise.interop.torch_compat import hook_tables
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument, normalize_axis
from shardwise.mesh.regions import axes_inside
from shardwise.types.placement import Placement, R, V

from .pieces import ParameterPieces, outermost_first, pieces_of

WRAPPER: Final = "wrapper"
MODULE: Final = "module"
STEP: Final = "step"
PROGRAM: Final = "program"
OWNERS: Final = (WRAPPER, MODULE, STEP, PROGRAM)

_NO_NAMES: Mapping[str, MeshAxis] = {}


@dataclass(frozen=True, slots=True)
class ContractLine:
    """One parameter of a contract.

    ``names``   its paths in the model; more than one if it is tied.
    ``pieces``  how the ranks hold it.
    ``owners``  axis -> who owes the sum over it; axes along which no sum is owed are not there.
    """

    names: tuple[str, ...]
    parameter: Tensor
    pieces: ParameterPieces
    owners: Mapping[MeshAxis, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]

    @property
    def frozen(self) -> bool:
        """It gets no gradient."""
        return not self.parameter.requires_grad

    def owed_by(self, owner: str) -> frozenset[MeshAxis]:
        """The axes over which ``owner`` sums."""
        return frozenset(axis for axis, one in self.owners.items() if one == owner)


def by_parameter(model: nn.Module) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    """Every parameter of ``model`` once, with all of its names."""
    names: dict[int, list[str]] = {}
    parameters: dict[int, Tensor] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        parameters[id(parameter)] = parameter
        names.setdefault(id(parameter), []).append(plain_name(name))
    for key, one in parameters.items():
        yield tuple(dict.fromkeys(names[key])), one


class Patterns:
    """What a program says of parameters by name, ``{"*.router.*": {"ep": ...}}``; later patterns override.

    ``names``  axes that the current mesh has no name for.
    """

    def __init__(
        self, what: str, given: Mapping[str, object] | None, names: Mapping[str, MeshAxis] = _NO_NAMES
    ) -> None:
        self._what = what
        self._read: dict[str, dict[MeshAxis, Any]] = {}
        for pattern, said in (given or {}).items():
            if not isinstance(pattern, str) or not isinstance(said, Mapping):
                raise SpmdArgumentError(
                    f"{what} maps patterns of names to dicts from mesh axes, got {shown(pattern)}: {shown(said)}",
                    code="SW905",
                )
            self._read[pattern] = {
                names[axis] if isinstance(axis, str) and axis in names else normalize_axis(axis): value
                for axis, value in said.items()
            }

    def of(self, names: Sequence[str]) -> dict[MeshAxis, object]:
        """What is said of the parameter with these names. Errors: SW905 if it depends on the name."""
        said = [self._of_name(name) for name in names]
        if any(one != said[0] for one in said):
            raise SpmdValueError(
                f"{names[0]} and {names[-1]} are one tied parameter, and the patterns of {self._what} say different "
                f"things of its names",
                code="SW905",
                help=(f'{self._what}={{"{names[0]}": {{...}}, "{names[-1]}": {{...}}}} with the same on both',),
            )
        return said[0]

    def _of_name(self, name: str) -> dict[MeshAxis, object]:
        found: dict[MeshAxis, Any] = {}
        for pattern, said in self._read.items():
            if fnmatchcase(name, pattern):
                found.update(said)
        return {axis: value for axis, value in found.items() if axis.size() > 1}

    def check_used(self, names: Sequence[str]) -> None:
        """Errors: SW905 for a pattern that is the name of nothing."""
        for pattern in self._read:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise SpmdValueError(
                    f"the pattern {pattern!r} of {self._what} matches no parameter; there are {', '.join(names[:3])} .."
                    if names
                    else f"the pattern {pattern!r} of {self._what} matches no parameter: the model has none",
                    code="SW905",
                )


@dataclass(frozen=True, slots=True)
class Wrapping:
    """The axes over which a wrapper sums the gradient of one parameter, and what it is called."""

    name: str
    axis: MeshAxis


def wrappers_of(modules: Sequence[nn.Module]) -> dict[int, list[Wrapping]]:
    """By id of the parameter, what ``DistributedDataParallel`` does for it."""
    found: dict[int, list[Wrapping]] = {}
    for root in modules:
        for module in root.modules():
            if isinstance(module, DistributedDataParallel):
                axis = MeshAxis.of(module.process_group)
                for name, parameter in module.module.named_parameters():
                    if name not in module.parameters_to_ignore and parameter.requires_grad and axis.size() > 1:
                        found.setdefault(id(parameter), []).append(Wrapping("DistributedDataParallel", axis))
    return found


def with_wrappers(pieces: ParameterPieces, wrappings: Sequence[Wrapping]) -> ParameterPieces:
    """What DistributedDataParallel copies to all ranks is equal on them, if nothing else was declared."""
    places: dict[MeshAxis, Placement] = dict(pieces.places)
    for wrapping in wrappings:
        if pieces.undeclared([wrapping.axis]):
            places[wrapping.axis] = R
    return ParameterPieces(places, pieces.groups)


def owners_of(
    names: tuple[str, ...],
    parameter: Tensor,
    pieces: ParameterPieces,
    wrappings: Sequence[Wrapping],
    said: Mapping[MeshAxis, Any],
) -> dict[MeshAxis, str]:
    """Who owes what of one parameter. Errors: SW612 where two would sum, or one where nothing is pending; SW905."""
    owners: dict[MeshAxis, str] = {}
    for axis, owner in said.items():
        if owner not in OWNERS:
            raise SpmdValueError(
                f"owed lets {shown(owner)} sum the gradient of {names[0]} over {axis!r}; it is one of "
                f"{', '.join(map(repr, OWNERS))}",
                code="SW905",
            )
        if axis not in pieces.places:
            raise SpmdValueError(
                f"owed says who sums the gradient of {names[0]} over {axis!r}, along which nothing is declared of it",
                code="SW905",
                help=(f"assert_type({names[0]}, {{{axis_argument(axis)}: R}}) where it is made",),
            )
        place = pieces.places[axis]
        if place is not R and owner in (STEP, WRAPPER, PROGRAM):
            _refuse_needless(names[0], axis, f"the {owner}", place)
    for wrapping in wrappings:
        for axis in (
            (wrapping.axis,) if wrapping.axis in pieces.places else axes_inside(wrapping.axis, pieces.places) or ()
        ):
            if pieces.places[axis].is_varying:
                _refuse_needless(names[0], axis, wrapping.name, V)
            if pieces.places[axis] is R:
                owners[axis] = WRAPPER
                if said.get(axis, WRAPPER) != WRAPPER:
                    _refuse_both(names[0], axis, wrapping.name, said[axis])
    hooked = any(hook_tables(parameter))
    placed = pieces_of(parameter).groups  # the axes of a DTensor
    for axis, place in pieces.places.items():
        if place is R and axis not in owners:
            usual = WRAPPER if axis in placed else MODULE if hooked else PROGRAM
            owners[axis] = said.get(axis, usual)
            if usual == WRAPPER and owners[axis] == STEP:
                _refuse_both(names[0], axis, "the DTensor or fully_shard that holds it", STEP)
    return {axis: owners[axis] for axis in outermost_first(owners)} if parameter.requires_grad else {}


def _refuse_both(name: str, axis: MeshAxis, wrapper: str, owner: str) -> None:
    raise SpmdTypeError(
        f"the gradient of {name} is summed over {axis!r} twice: by {wrapper}, and by the {owner}",
        code="SW612",
        help=(f'leave {axis_argument(axis)} out of owed for "{name}"', f"or take {name} out of what {wrapper} sums"),
    )


def _refuse_needless(name: str, axis: MeshAxis, by: str, place: Placement) -> None:
    pieces = place is V
    why = "of which each rank holds another piece" if pieces else "which is invariant there and owes no sum"
    raise SpmdTypeError(
        f"{by} sums the gradient of {name} over {axis!r}, {why}",
        code="SW612",
        help=(
            f"take {name} out of what is summed over {axis_argument(axis)}",
            f"or declare it R over {axis_argument(axis)}, if every rank holds the same and uses it in its own way",
        ),
    )
