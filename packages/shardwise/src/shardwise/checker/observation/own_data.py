"""What data parallel models are called with, for the verdict: does each rank train on data of its own?

Where a wrapper averages gradients, its input is taken for each rank's own (``inputs``). Nothing proves that but the
type of a batch that a sampler has dealt out, or the values themselves where several ranks are run. So it is with data
that have as many rows as what the model has made of them, and are computed with it:

    cross_entropy(ddp(x[rank::world]), y[: 8 // world])  the targets of the first rank's rows, on every rank
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from shardwise.diagnostics.coverage import OwnData
from shardwise.diagnostics.source import user_site
from shardwise.interop.calls.op_names import OpName
from shardwise.interop.running.recording import has_values
from shardwise.interop.tensors.bits import digest_of
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import no_torch_function, tree_leaves
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.regions import axes_inside, cut_along
from shardwise.types.tensor_type import UNTYPED, TensorType

from ..state.session import CheckSession
from .inputs import averaging_axes, is_assumed, is_constant

_CONTRACTIONS = frozenset({"matmul", "mm", "mv", "addmm", "linear", "einsum", "tensordot"})
"""The first dim of their second operand is no row of the first: a code book of as many codes as there are rows."""


@dataclass
class DataSeen:
    """The data that a run has handed to data parallel models, by argument and line.

    ``compares``  values are digested, since other ranks hand in theirs.
    ``own``       the axes over which a type says that each rank has its own.
    """

    compares: bool = False
    own: set[MeshAxis] = field(default_factory=set)
    _seen: dict[object, _Argument] = field(default_factory=dict)

    def called(self, session: CheckSession, module: torch.nn.Module, args: Mapping[str, object]) -> None:
        """``module``, whose gradients are averaged, is about to be called; before its inputs get a type by that."""
        trains = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in module.parameters())
        axes = averaging_axes(session)
        for name, value in args.items() if trains else ():
            for x in tree_leaves(value):
                if isinstance(x, torch.Tensor) and not is_dtensor(x) and x.numel() > 1 and not x.requires_grad:
                    known = type_of(x)
                    if is_constant(x) or any(known.is_equal(axis) for axis in axes):
                        continue  # it is meant to be equal
                    site = user_site()
                    key = (name, type(module).__name__, site)
                    groups = tuple(axis.layout.fiber(dist.get_rank()) for axis in axes)
                    seen = self._seen.setdefault(
                        key, _Argument(f"{name} of {type(module).__name__}", site, groups, False)
                    )
                    said = all(_varies(known, axis) for axis in axes) and not is_assumed(x)
                    if said:
                        self.own.update(known.varying_axes)
                    seen.add(x, said, self.compares)

    def met(self, session: CheckSession, op: OpName, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """An operator has come back: were there data without a type beside what each rank has of its own?"""
        if not (session.local and torch.is_grad_enabled()):
            return
        named = [*enumerate(args), *kwargs.items()]
        tensors = [(name, x) for name, x in named if isinstance(x, torch.Tensor) and not is_dtensor(x)]
        data = [(name, x) for name, x in tensors if not x.requires_grad and type_of(x) is UNTYPED and x.numel() > 1]
        if not data or len(tensors) < 2 or op.shown in _CONTRACTIONS:
            return
        axes = averaging_axes(session)
        made = (x for _, x in tensors if x.requires_grad and x.ndim)
        rows = {x.shape[0] for x in made if all(_varies(type_of(x), axis) for axis in axes)}
        for name, x in data:
            if x.ndim and x.shape[0] in rows:
                site = user_site()
                groups = tuple(axis.layout.fiber(dist.get_rank()) for axis in axes)
                what = f"{name} of {op.shown}"
                seen = self._seen.setdefault((what, site), _Argument(what, site, groups, True))
                seen.add(x, False, self.compares)

    def result(self) -> tuple[OwnData, ...]:
        """What has been seen, in order."""
        return tuple(one.result() for one in self._seen.values())


@dataclass
class _Argument:
    what: str
    site: Any
    groups: tuple[tuple[int, ...], ...]
    of_operator: bool
    said: bool = True
    compared: bool = True
    plain: bool = True
    hashed: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=16))

    def add(self, x: torch.Tensor, said: bool, compares: bool) -> None:
        self.said &= said
        self.compared &= compares and has_values(x) and x.layout is torch.strided
        if self.compared:
            with no_torch_function(), torch.no_grad():
                values = x.detach().flatten()
                self.plain &= bool((values == values[:1]).all())
            self.hashed.update(digest_of(x))

    def result(self) -> OwnData:
        # One value everywhere, as of a mask that hides nothing, is no data.
        said = self.said or (self.compared and self.plain)
        digest = self.hashed.hexdigest() if self.compared and not self.plain else ""
        return OwnData(self.what, self.site.location(), self.groups, said, digest, of_operator=self.of_operator)


def _varies(type: TensorType, axis: MeshAxis) -> bool:
    """Whether what has ``type`` is each rank's own over ``axis``: of it a part of an axis, or made of several."""
    type = cut_along(type, axis)
    return all(type.is_varying(part) for part in axes_inside(axis, type.axes) or (axis,))
