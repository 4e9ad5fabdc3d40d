"""Which sums does a training step owe, who makes each, and have they been made when the optimizer takes over?

A contract is read from a model once and needs no types afterwards: it works with checking off, where it makes the sums
that are the step's own and nothing else, and with ``SHARDWISE_ERASE=1`` if ``types`` says what annotations would.
With checking on it compares every gradient with what is owed.
Source: docs/semantics.md section 6.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, shown
from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.printing.printable import columns
from shardwise.diagnostics.source import user_location, user_site
from shardwise.interop.autograd.gradient_origin import gradient_now
from shardwise.interop.autograd.gradients import gradient_type, waive
from shardwise.interop.calls.boundary import boundary
from shardwise.interop.fixes.gradient_sums import sum_before, without_sum
from shardwise.interop.running import session
from shardwise.interop.running.session import paused
from shardwise.interop.tensors.dtensors import local_part
from shardwise.interop.tensors.tagging import Origin, set_type
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import current_entry, mesh_of
from shardwise.mesh.normalize import axis_argument
from shardwise.types.aliases import MeshArgument, PerMeshAxisSpmdTypesArg
from shardwise.types.placement import PerMeshAxisLocalSpmdType, R, Shard, to_local_type
from shardwise.types.tensor_type import Ground

from .owners import STEP, ContractLine, Patterns, by_parameter, owners_of, with_wrappers, wrappers_of
from .pieces import ParameterPieces, outermost_first, pieces_of
from .refusing import gradients, listed, refuse
from .sums import Owing, make_sums


class TrainingContract:
    """Per parameter and mesh axis, who owes the sum of its gradient.

    ``model``     the model, as wrapped by DistributedDataParallel if it is. Types are read now, wrappers when the
                  contract is first used: make it before ``fully_shard``, which keeps no types.
    ``owed``      by pattern of names and by axis, who sums the gradient of a parameter that is R there: "step"
                  (``finalize`` does), "module" (a hook, or a collective in backward), "wrapper" (one that is not
                  seen), "program" (code between backward and ``finalize``; the default). Later patterns override.
    ``types``     by pattern and axis, R, I, V or S(i), where parameters carry no types.
    ``wrappers``  DistributedDataParallel modules that are not inside ``model``.
    ``meshes``    further meshes that parameters have types on, as experts have: for their process groups and names.

    A parameter that is I along an axis owes nothing there, its sum is made inside the module by ``convert(I, R)``; V
    and S(i) owe nothing, each rank has its own piece; so does what needs no gradient. ``str`` gives a table.
    Errors: SW612 if two would sum, or one where nothing is pending; SW613 if nothing is declared along an axis of the
    current mesh; SW905 for what cannot be meant.

    Example:
        >>> model = nn.Linear(4, 4)
        >>> print(TrainingContract(model, {"weight": {"tp": "step"}}, types={"*": {"dp": R, "tp": R}}))
        parameter  dp          tp
        weight     R: program  R: step
        bias       R: program  R: program
    """

    @boundary
    def __init__(
        self,
        model: nn.Module,
        owed: Mapping[str, Mapping[str, str]] | Mapping[str, Mapping[MeshAxis, str]] | None = None,
        *,
        types: Mapping[str, PerMeshAxisSpmdTypesArg] | None = None,
        wrappers: Sequence[nn.Module] = (),
        meshes: Sequence[MeshArgument] = (),
    ) -> None:
        if not isinstance(model, nn.Module):
            raise SpmdArgumentError(f"a contract is made of a module, got {shown(model)}", code="SW905")
        entry = current_entry()
        self._model = model
        self._wrappers = (model, *wrappers)
        self._axes: tuple[MeshAxis, ...] = () if entry is None else entry.ordered_axes
        named = {} if entry is None else dict(entry.all_names)
        others = [mesh_of(mesh) for mesh in meshes]
        foreign = {name: axis for other in others for name, axis in other.all_names.items() if name not in named}
        self._groups = {axis: group for other in others for axis, group in other.groups.items()}
        self._axis_names = {axis: name for name, axis in {**foreign, **named}.items()}
        self._owed, self._types = Patterns("owed", owed, foreign), Patterns("types", types, foreign)
        found = list(by_parameter(model))
        names = [name for names, _ in found for name in names]
        self._owed.check_used(names)
        self._types.check_used(names)
        self._declared = {names[0]: pieces_of(parameter) for names, parameter in found}
        self._lines: tuple[ContractLine, ...] | None = None
        self._by_id: dict[int, ContractLine] = {}

    @property
    def lines(self) -> tuple[ContractLine, ...]:
        """One per parameter, in the order of the model. Errors: SW612, SW613, SW905 at the first use."""
        if self._lines is None:
            wrappings = wrappers_of(self._wrappers)
            lines = [self._line(names, one, wrappings.get(id(one), ())) for names, one in by_parameter(self._model)]
            self._check_declared(lines)
            self._lines = tuple(lines)
            self._by_id = {id(line.parameter): line for line in lines}
        return self._lines

    def _line(self, names: tuple[str, ...], parameter: Tensor, wrappings: Sequence[Any]) -> ContractLine:
        declared, now, said = self._declared.get(names[0]), pieces_of(parameter), self._types.of(names)
        before = {} if declared is None else declared.places
        places = {**before, **{axis: _place(names[0], axis, one) for axis, one in said.items()}, **now.places}
        pieces = with_wrappers(ParameterPieces(places, {**self._groups, **now.groups}), wrappings)
        owners = owners_of(names, parameter, pieces, wrappings, self._owed.of(names))
        return ContractLine(names, parameter, pieces, owners)

    def _check_declared(self, lines: Sequence[ContractLine]) -> None:
        for axis in self._axes:
            silent = [line.name for line in lines if not line.frozen and line.pieces.undeclared([axis])]
            if silent:
                along = axis_argument(axis)
                raise SpmdTypeError(
                    f"nothing is declared of {listed(silent)} along {axis!r}",
                    code="SW613",
                    help=(
                        f"assert_type({silent[0]}, {{{along}: R}}) or I or S(i), where it is made",
                        f'TrainingContract(model, types={{"{silent[0]}": {{{along}: R}}}})',
                    ),
                )

    def pieces(self, parameter: Tensor) -> ParameterPieces | None:
        """How the ranks hold ``parameter``; None if the model does not have it."""
        return self._by_id[id(parameter)].pieces if self.lines and id(parameter) in self._by_id else None

    def name(self, parameter: Tensor) -> str | None:
        """The path of ``parameter``; None if the model does not have it."""
        return self._by_id[id(parameter)].name if self.lines and id(parameter) in self._by_id else None

    @boundary
    def finalize(self, *, bucket_bytes: int = 64 * 2**20) -> None:
        """Make the sums that the step owes; with checking on, see to it that no sum is missing or doubled.

        To be called once per step, after the last backward and before clipping and the optimizer, on all ranks.
        Gradients are summed in place, in buffers of at most ``bucket_bytes`` bytes or one parameter. A parameter
        without a gradient counts as zeros if other ranks have one, and stays without if none has.
        Types: along the axes that the step owes, P -> R.
        Errors: SW611 for a gradient that is still a pending sum where another owes it, or nobody; SW612 for one that
        the step is about to sum although it has been summed.
        """
        lines = self.lines
        running = session.current()
        if running is not None:
            self._check(running)
        owing = [Owing(line.parameter, axes, line.pieces.groups) for line in lines if (axes := line.owed_by(STEP))]
        with contextlib.nullcontext() if running is None else paused(running), torch.no_grad():
            make_sums(owing, bucket_bytes)
        if running is not None:
            for one in owing:
                _retype(one.parameter, one.axes)

    def _check(self, running: session.Session) -> None:
        missing: dict[tuple[MeshAxis, str], list[ContractLine]] = {}
        doubled: dict[MeshAxis, list[ContractLine]] = {}
        for line in self.lines:
            type = gradient_type(line.parameter)
            for axis, place in type.local.items():
                owner = line.owners.get(axis, "")
                if place.is_partial and owner != STEP:
                    missing.setdefault((axis, owner), []).append(line)
                if place.is_equal and owner == STEP and type.ground is Ground.ABSENT:
                    doubled.setdefault(axis, []).append(line)
        running.checked += 1
        for (axis, owner), lines in sorted(missing.items(), key=lambda item: item[0][0].sort_key):
            _tell_missing(axis, owner, lines)
        for axis in outermost_first(doubled):
            _tell_doubled(axis, doubled[axis])
        for lines in (*missing.values(), *doubled.values()):
            for line in lines:
                waive(line.parameter)

    def __str__(self) -> str:
        axes = outermost_first({axis for line in self.lines for axis in line.pieces.places})
        rows = [("parameter", *(self._axis_names.get(axis, repr(axis)) for axis in axes))]
        for line in self.lines:
            cells = (_cell(line, axis) for axis in axes)
            rows.append((" = ".join(line.names) + (" (frozen)" if line.frozen else ""), *cells))
        return "\n".join(columns(rows))


def _place(name: str, axis: MeshAxis, given: object) -> PerMeshAxisLocalSpmdType:
    if not isinstance(given, PerMeshAxisLocalSpmdType | Shard) or given.is_partial:
        raise SpmdArgumentError(
            f"types says of {name} along {axis!r} R, I, V or S(i), got {shown(given)}", code="SW905"
        )
    return to_local_type(given)


def _cell(line: ContractLine, axis: MeshAxis) -> str:
    place, owner = line.pieces.places.get(axis), line.owners.get(axis)
    return "-" if place is None else repr(place) if owner is None else f"{place!r}: {owner}"


def _retype(parameter: Tensor, axes: frozenset[MeshAxis]) -> None:
    type = gradient_type(parameter)
    known = {axis: R for axis in axes if axis in type.local}
    if parameter.grad is not None and known:
        origin = gradient_now(parameter, Origin(user_site(), "R since this finalize"))
        set_type(local_part(parameter.grad), type.with_placements(known), origin)


_WHO = {
    "": "and the contract lets nobody sum it",
    "wrapper": "which a wrapper owes",
    "module": "which the module owes",
    "program": "which the program owes before finalize",
}


def _tell_missing(axis: MeshAxis, owner: str, lines: Sequence[ContractLine]) -> None:
    names = [line.name for line in lines]
    along = axis_argument(axis)
    help_lines = [
        f'TrainingContract(model, owed={{"{names[0]}": {{{along}: "step"}}}}), and finalize makes the sum',
        f"dist.all_reduce(p.grad, group=mesh.get_group({along})) after backward",
    ]
    if owner == "wrapper":
        help_lines.insert(0, "run the last backward of the step outside no_sync()")
    said = Diagnosis(
        "SW611",
        f"{gradients(names)} {'is' if len(names) == 1 else 'are'} not summed over {axis!r}, {_WHO[owner]}",
        (f"each of the {axis.size()} ranks would step with its own addend",),
        tuple(help_lines),
    )
    parameters = [line.parameter for line in lines]
    said = replace(said, fixes=sum_before(user_location(), parameters, axis, help_lines[-1]))
    refuse("finalize", axis, said, parameters=parameters, names=names)


def _tell_doubled(axis: MeshAxis, lines: Sequence[ContractLine]) -> None:
    names = [line.name for line in lines]
    said = Diagnosis(
        "SW612",
        f"finalize sums {gradients(names)} over {axis!r}, over which {'it has' if len(names) == 1 else 'they have'} "
        "been summed",
        (f"summing {axis.size()} equal values multiplies them by {axis.size()}",),
        (
            f'leave {axis_argument(axis)} out of owed for "{names[0]}"',
            f"or leave out the sum over {axis_argument(axis)} before finalize",
        ),
    )
    parameters = [line.parameter for line in lines]
    said = replace(said, fixes=without_sum(parameters[0].grad, axis, said.help[-1]))
    refuse("finalize", axis, said, parameters=parameters, names=names)
