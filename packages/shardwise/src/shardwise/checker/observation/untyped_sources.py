"""What a loss without a type rests on: data that nobody typed, or more than data?

loss = cross_entropy(ddp(x), y)         data without a type: whose it is, is said of what the model is called with
loss = mse_loss(ddp(x), teacher(x))     parameters without a type: they may differ between ranks
kl = ref.mean(); dist.all_reduce(kl)    an exchange of what has no type: it may be missing, or be a sum for a mean
h = Fused.apply(x)                      the type of what is made is lost: nobody knows what its backward gives

What has no type is unknown, and no finding rests on it. Nor may a verdict: of a loss that is computed from one of the
last three nobody knows what its gradients are gradients of. So such values are followed from call to call, and a loss
that is one of them is said not to be judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shardwise.diagnostics.finding import in_brackets
from shardwise.diagnostics.source import Site, user_location, user_site
from shardwise.interop.calls.op_names import OpName
from shardwise.interop.running.recording import has_values
from shardwise.interop.tensors.derived_types import derived_type
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.own_references import by_tensor
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import is_flattened, no_torch_function, tree_leaves
from shardwise.mesh.axis import MeshAxis

from ..call.cache_key import flat_arguments

_FEW = 16
"""Of so many numbers at most each may be a count."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a value without a type comes from.

    ``what``  a clause that names it, without its place.
    ``site``  the first call that takes it.
    """

    what: str
    site: Site | None


class UntypedSources:
    """The values of one run that rest on parameters or exchanges without a type, or on a type that was lost.

    ``losing``  a type has been lost since this was set to False, before the call that is followed.
    ``losses``  those of such values that backward has started from, a sentence each.
    ``shared``  whole numbers that ranks have added up: a rank that runs alone has its own there.
    """

    def __init__(self) -> None:
        self.losing = False
        self._sources: Any = by_tensor()
        self.losses: dict[str, None] = {}
        self.shared: set[float] = set()

    def exchanged(self, op: str, received: Iterable[torch.Tensor]) -> None:
        """A collective has left in ``received`` what no type says anything of."""
        self._mark(received, _Source(f"what {op} exchanges", user_site(1)))

    def reduced(self, received: Iterable[torch.Tensor]) -> None:
        """A collective has left in ``received`` what ranks have together."""
        with no_torch_function(), torch.no_grad():
            for x in received:
                if x.numel() <= _FEW and has_values(x) and not x.is_complex():
                    self.shared.update(number for number in x.flatten().tolist() if number % 1 == 0)

    def lost(self, name: str, made: Iterable[torch.Tensor]) -> None:
        """Of what the function ``name`` has made the type is lost."""
        self._mark(made, _Source(f"what {name} makes", user_site(1)))

    def follow(self, name: OpName, args: Sequence[object], kwargs: Mapping[str, object], result: object) -> None:
        """The call of an operator has come back."""
        with no_torch_function():
            source = next(self._found(flat_arguments(args, kwargs)), None)
            if source is None and self.losing:
                source = _Source(f"what {name.shown} makes", user_site(1))
            if source is not None:
                written = args[:1] if name.in_place or name.prop == "set" else ()
                leaves = [leaf for leaf in tree_leaves((written, result)) if isinstance(leaf, torch.Tensor)]
                self._mark((one for one in leaves if not isinstance(one, torch.nn.Parameter)), source)

    def take_loss(self, loss: torch.Tensor, axes: Iterable[MeshAxis]) -> None:
        """Backward starts from ``loss``; ``axes`` are those over which the gradients of it have types."""
        type, source = derived_type(loss), self._sources.get(loss)
        known = [axis for axis in type.axes if not type.get(axis).is_unknown]
        if source is None or not any(all(axis.isorthogonal(one) for one in known) for axis in axes):
            return
        place = in_brackets(user_location())
        of = in_brackets(None if source.site is None else source.site.location())
        self.losses[f"the loss{place}, which rests on {source.what} without a type{of}"] = None

    def _mark(self, made: Iterable[torch.Tensor], source: _Source) -> None:
        for tensor in made:
            if not _is_known(tensor):
                self._sources[tensor] = source

    def _found(self, values: Iterable[object]) -> Iterator[_Source]:
        for value in values:
            if isinstance(value, torch.Tensor) and not is_dtensor(value):
                known = self._sources.get(value)
                if known is not None and not _is_known(value):
                    yield known
                elif isinstance(value, torch.nn.Parameter) and not type_of(value).axes and not is_flattened(value):
                    yield _Source("parameters", user_site(1))


def _is_known(x: torch.Tensor) -> bool:
    """Something is known of ``x`` along every axis that its type names."""
    type = type_of(x)
    return bool(type.axes) and not any(type.get(axis).is_unknown for axis in type.axes)
