"""How much of a program has a type: the parameters of the modules that it calls, what these are called with, and the
axes over which it exchanges numbers.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import torch

from shardwise.diagnostics.coverage import Coverage, UnjudgedGradients
from shardwise.diagnostics.finding import absolute_root, location_text
from shardwise.diagnostics.source import Site
from shardwise.host.module_calls import OuterModules, telling_calls
from shardwise.interop.tensors.dtensors import is_dtensor, local_part
from shardwise.interop.tensors.own_references import by_tensor
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import is_flattened, no_torch_function, tree_leaves
from shardwise.mesh.axis import MeshAxis

from ..state.session import CheckSession
from .own_data import DataSeen
from .untyped_sources import UntypedSources


@contextlib.contextmanager
def counting(tell: Callable[[Coverage], None], session: CheckSession, *, compares: bool = False) -> Iterator[None]:
    """At the end of the block ``tell`` gets what was counted: each parameter once, each argument of a module once.

    Counted are the outermost modules that the program calls, when it calls them for the first time. What has no type
    then and has one when the call is over, as where ``forward`` says what its arguments are, counts as typed.

    ``compares``  what data parallel models are called with will be compared with that of other ranks.
    """
    count = _Count()
    session.data = data = DataSeen(compares)
    session.untyped = untyped = UntypedSources()
    try:
        with telling_calls(count.called, last=True):  # when inputs have been typed by what is called
            yield
    finally:
        session.data = session.untyped = None
        said = count.coverage.has_modules or session.averaged or not session.only_observed
        # Where nobody says anything, what is known of one exchange may be what another has left behind, and no more.
        typed = {axis for axis, known in session.exchanged.items() if True in known and (said or False not in known)}
        unjudged = [axis for axis in session.exchanged if axis not in typed and not count.is_known(axis)]
        gradients = sorted(session.unjudged.items(), key=lambda one: one[0].sort_key)
        coverage = replace(
            count.coverage,
            unjudged_axes=tuple(map(repr, sorted(unjudged, key=lambda axis: axis.sort_key))),
            own_data=data.result(),
            unjudged_gradients=tuple(
                UnjudgedGradients(repr(axis), *counts) for axis, counts in gradients if axis not in unjudged
            ),
            unjudged_losses=tuple(untyped.losses),
            says_types=session.says_types,
            own_elements=tuple(session.own_elements),
            own_reductions=tuple(session.own_reductions),
            constants_read=tuple(_places(site for site, constant in session.constants_read.items() if constant)),
        )
        tell(coverage)


def _places(sites: Iterable[Site]) -> Iterator[str]:
    root = absolute_root(None)
    return (location_text(location, root) for site in sites if (location := site.location()) is not None)


class _Count:
    def __init__(self) -> None:
        self.coverage = Coverage()
        self._outer = OuterModules()
        self._parameters = by_tensor()
        self._axes: set[MeshAxis] = set()
        self._flattened = False

    def is_known(self, axis: MeshAxis) -> bool:
        """A parameter has a type along ``axis``, or along one that is part of it or that it is part of."""
        return self._flattened or any(not axis.isorthogonal(one) for one in self._axes)

    def called(self, module: torch.nn.Module, args: Mapping[str, object]) -> Callable[[], None] | None:
        """``module`` is about to be called; what is given back looks again at what has no type yet."""
        if not self._outer.is_new(module):
            return None
        untyped: list[tuple[str, torch.Tensor]] = []
        with no_torch_function():
            for parameter in module.parameters():
                if parameter not in self._parameters:
                    self._parameters[parameter] = True
                    self._flattened |= is_flattened(parameter)
                    untyped += self._count("parameters", parameter)
            for leaf in tree_leaves(dict(args)):
                if isinstance(leaf, torch.Tensor) and not leaf.requires_grad:
                    untyped += self._count("inputs", leaf)
        return functools.partial(self._ended, untyped) if untyped else None

    def _count(self, kind: str, x: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
        """Count ``x``; it comes back if it has no type."""
        self._add(kind)
        if not _is_typed(x):
            return [(kind, x)]
        self._typed(kind, x)
        return []

    def _ended(self, untyped: Iterable[tuple[str, torch.Tensor]]) -> None:
        with no_torch_function():
            for kind, x in untyped:
                if _is_typed(x):
                    self._typed(kind, x)

    def _typed(self, kind: str, x: torch.Tensor) -> None:
        self._add(f"typed_{kind}")
        if kind == "parameters":
            self._axes.update(_axes(x))

    def _add(self, field: str) -> None:
        self.coverage = replace(self.coverage, **{field: getattr(self.coverage, field) + 1})


def _is_typed(x: torch.Tensor) -> bool:
    if is_dtensor(x) or is_flattened(x):
        return True
    type = type_of(x)
    return bool(type.local) or type.ground.is_constant


def _axes(parameter: torch.Tensor) -> Iterator[MeshAxis]:
    """The axes along which a parameter has a type."""
    if is_dtensor(parameter):
        yield from map(MeshAxis.of, parameter.device_mesh.get_all_groups())  # type: ignore[attr-defined]
    type = type_of(local_part(parameter))
    yield from (axis for axis in type.axes if not type.get(axis).is_unknown)
