"""What the checker remembers of one check, beside what everybody may know of it (``interop/running/session.py``)."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from shardwise.diagnostics.result import Collector
from shardwise.diagnostics.source import Site
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.running.session import Partials, Session
from shardwise.interop.tensors.own_references import by_tensor
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import CurrentMesh, here
from shardwise.op_rules.propagation.placer import Scope
from shardwise.op_rules.transition_types import parts_of
from shardwise.planner.links import NamedLinks
from shardwise.types.tensor_type import TensorType


class CheckSession(Session):
    """The state of one check on one thread.

    ``dry``         the mode of tensors without data, while a function runs on those; else None.
    ``diverging``   where the ranks have parted ways, in the branch that is being checked.
    ``mode``        what shows this session the calls; code inside a backward pass gets it back.
    ``passes``      the backward passes that are running, innermost last; see ``gradients``.
    ``observe``     wrappers and torch's own marks give types to what nobody has typed.
    ``averaged``    the axes over which some wrapper averages gradients.
    ``derivatives`` the backward of the program's autograd functions is compared with their forward.
    ``probed``      what was found of autograd functions that nobody has declared, by class and arguments.
    ``in_flight``   what was started and has not been waited for, by the memory that it reads or writes.
    ``here``        where the thread keeps its current mesh.
    ``gathering``   the calls of the coalescing manager that is open.
    ``rows_moved``  an exchange has left rows in another order or pieces in a list; ``row_orders``, ``listed_pieces``.
    ``addends_sent``  the axes along which addends of a pending sum have been sent to a neighbour.
    ``passed_on``, ``open_findings``  what goes round in rings, and what waits for that; see ``passed_pieces``.
    ``sums_not_owed``  findings on sums of equal gradients, by parameter and axis; see ``averaged_later``.
    ``beside``, ``alone``, ``owners``  by memory: the parameters that share it; where one has it for itself; and which
                    one, once somebody asked. See ``shared_memory``.
    ``stacked``     what was gathered along a dim that is not its own, None before the first; see ``stacked_rows``.
    ``cuts``        cuts into micro-batches by where and of what; see ``micro_batches``.
    ``numbers_left``  numbers that ranks do not share have gone to numpy; see ``foreign_numbers``.
    ``keeps_numbers``  what reads a tensor gives its number a type; see ``number_calls``.
    ``links``       what connects the ranks of each axis: repairs are ordered by it.
    ``replicas``    the wrappers seen, and whether each sums gradients in the next backward pass; see ``replicas``.
    ``kept_elsewhere``  parameters whose gradients a wrapper moves and sums while backward runs, out of sight.
    ``stepped``     gradients with which a step has been taken, as long as nothing is zeroed.
    ``conflicts``   by parameter what was added to such a gradient that had been summed already, until it is used again.
    ``scale_lost``, ``scale_sought``, ``scale_told``  by axis, where gradients lost their scale; which backward passes
                    have been asked; what has been listed. See ``scale_lost``.
    ``scale_joined``   the axes along which that was in one term of a loss, whose other terms have a scale.
    ``scale_stepped``  the axes of the gradients that optimizers have taken.
    ``compared``    by axis, the lines that have compared numbers which differ along it; see ``rank_branches``.
    ``exchanged``   the axes over which numbers have been exchanged, and whether all, some or none had a type there.
    ``data``        what data parallel models have been called with, if that is asked for; see ``own_data``.
    ``unjudged``    of the gradients that steps take, how many are unknown along an axis, of how many; at the most.
    ``untyped``     the values that rest on parameters or exchanges without a type, if that is asked for; see
                    ``untyped_sources``.
    ``own_elements``  what is done with single elements of shards, a sentence each; see ``own_elements``.
    ``own_reductions``  losses that are no mean of a rank's samples, a sentence each; see ``loss``.
    ``constants_read``  where Python has read values, and whether all were made of constants alone; see ``value_reads``.
    """

    def __init__(
        self,
        *,
        strict: bool = True,
        local: bool = True,
        partials: Partials = "infer",
        collector: Collector | None = None,
        observe: bool = False,
    ) -> None:
        super().__init__(strict=strict, local=local, partials=partials, collector=collector)
        self.here = here()
        self.dry: Any = None
        self.diverging: tuple[Any, ...] = ()
        self.mode: Any = None
        self.passes: list[Any] = []
        self.observe = observe
        self.averaged: frozenset[MeshAxis] = frozenset()
        self.derivatives = False
        self.probed: dict[Any, Any] = {}
        self.in_flight: dict[int, list[Any]] = {}
        self.gathering: Any = None
        self.rows_moved = False
        self.addends_sent: set[MeshAxis] = set()
        self.passed_on: set[tuple[MeshAxis, int]] = set()
        self.open_findings: list[Any] = []
        self.sums_not_owed: list[tuple[Any, MeshAxis, Any]] = []
        self.beside: dict[int, list[weakref.ref[Any]]] = {}
        self.alone: set[int] = set()
        self.owners: dict[int, Any] = {}
        self.stacked: Any = None
        self.cuts: dict[Any, Any] = {}
        self.numbers_left = False
        self.keeps_numbers = False
        self.links = NamedLinks()
        self.replicas: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.kept_elsewhere = by_tensor()
        self.stepped = by_tensor()
        self.conflicts = by_tensor()
        self.scale_lost: dict[MeshAxis, dict[Site | None, None]] = {}
        self.scale_sought: set[Site | None] = set()
        self.scale_joined: set[MeshAxis] = set()
        self.scale_stepped: set[MeshAxis] = set()
        self.scale_told: set[tuple[MeshAxis, Site | None]] = set()
        self.compared: dict[MeshAxis, set[tuple[str, int]]] = {}
        self.exchanged: dict[MeshAxis, set[bool]] = {}
        self.data: Any = None
        self.unjudged: dict[MeshAxis, tuple[int, int]] = {}
        self.untyped: Any = None
        self.own_elements: dict[str, None] = {}
        self.own_reductions: dict[str, None] = {}
        self.constants_read: dict[Site, bool] = {}

    @property
    def only_observed(self) -> bool:
        """No type is the program's own word, so it does not say either what is for its log alone."""
        return self.observe and not self.says_types

    def scope(self, mesh: CurrentMesh | None) -> Scope:
        """How far global typing reaches, if the session is in global mode."""
        partials, observed = self.partials != "explicit", self.only_observed
        if mesh is None:
            return Scope(partials=partials, observed=observed)
        return Scope(mesh.local_axes, partials, mapped=mesh.mapped_axes, observed=observed)

    def lose(self, what: str, location: SourceLocation | Site | None) -> None:
        super().lose(what, location)
        if self.untyped is not None:
            self.untyped.losing = True

    def averages(self, axis: MeshAxis) -> bool:
        """Whether a wrapper averages gradients over ``axis``, or over one that it is part of: the whole world, say."""
        return any(axis <= one for one in self.averaged)

    def note_exchange(self, axis: MeshAxis, types: Iterable[TensorType]) -> None:
        """Tensors of these types have gone over ``axis``."""
        self.exchanged.setdefault(axis, set()).add(any_known(axis, types))

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Inside the block calls are checked, from within the handler of a call too."""
        paused, self.paused = self.paused, False
        try:
            with self.mode:
                yield
        finally:
            self.paused = paused


def any_known(axis: MeshAxis, types: Iterable[TensorType]) -> bool:
    """Something is known of a tensor of one of ``types`` along ``axis`` or a part of it."""
    return any(not type.get(part).is_unknown for type in types for part in parts_of(axis, type) if part in type)
