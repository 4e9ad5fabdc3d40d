"""What is under test when a rule is checked numerically? A function, its global arguments, and the grid of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdArgumentError
from shardwise.interop.annotations.annotating import asserted_type
from shardwise.interop.autograd.forward_args import bind_forward_args, named_tensors, positional
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.current import set_current_mesh
from shardwise.oracle.reassemble import Grid
from shardwise.types.tensor_type import TensorType


class RuleSubject:
    """The function under test with its global arguments, and the grid that it is tested on."""

    def __init__(
        self, cls: type, args: Sequence[object], placements: Mapping[str, object] | None, mesh: Mapping[str, int] | None
    ) -> None:
        self.cls = cls
        self.bound = bind_forward_args(cls, args)
        self.tensors = dict(named_tensors(self.bound))
        strings = sorted({leaf for leaf in tree_leaves(self.bound) if isinstance(leaf, str)})
        if mesh is None:
            if placements is not None:
                raise SpmdArgumentError("rulecheck with explicit placements needs mesh=", help=('mesh={"tp": 2}',))
            if len(strings) > 1:
                raise SpmdArgumentError(
                    f"rulecheck cannot tell which of {', '.join(map(repr, strings))} are mesh axes without mesh=",
                    help=(f'mesh={{"{strings[0]}": 2}}',),
                )
            mesh = {strings[0] if strings else "shard": 2}
        self.sizes = dict(mesh)
        self.grid = Grid.of(self.sizes)
        self.group_names = [name for name in strings if name in self.sizes]

    def check_covered(self, placements: Mapping[str, object]) -> None:
        """Errors: TypeError if an argument or an axis is missing, or a name is none."""
        unknown = [name for name in placements if name not in self.tensors]
        missing = [name for name in self.tensors if name not in placements]
        if unknown or missing:
            raise SpmdArgumentError(
                f"placements must name the tensor arguments {', '.join(self.tensors)}; "
                f"missing {missing}, unknown {unknown}"
            )
        with set_current_mesh(dict(self.grid.axes)):
            for name in self.tensors:
                type = self.type_of(name, placements)
                for axis_name, axis in self.grid.axes.items():
                    if axis.size() > 1 and axis not in type:
                        raise SpmdArgumentError(f"the placement of {name} does not cover the mesh axis {axis_name!r}")

    def type_of(self, name: str, case: Mapping[str, object]) -> TensorType:
        return asserted_type((case[name],), self.tensors[name].ndim)

    def arguments(self, leaves: Mapping[str, torch.Tensor], groups: Mapping[str, object]) -> list[object]:
        """The arguments of ``apply`` with other tensors and with groups in place of axis names."""
        return positional(
            self.cls, {name: _replaced(name, value, leaves, groups) for name, value in self.bound.items()}
        )

    @property
    def has_backward(self) -> bool:
        plain = torch.autograd.Function
        cls: Any = self.cls
        return cls.backward is not plain.backward or cls.vjp is not plain.vjp


def _replaced(path: str, value: Any, leaves: Mapping[str, torch.Tensor], groups: Mapping[str, object]) -> object:
    if path in leaves:
        return leaves[path]
    if isinstance(value, str):
        return groups.get(value, value)
    if type(value) in (list, tuple):
        return type(value)(_replaced(f"{path}[{at}]", item, leaves, groups) for at, item in enumerate(value))
    if type(value) is dict:
        return {key: _replaced(f"{path}[{key!r}]", item, leaves, groups) for key, item in value.items()}
    inside = [name for name in leaves if name.startswith((f"{path}.", f"{path}["))]
    if inside:
        raise SpmdArgumentError(
            f"rulecheck cannot replace tensors inside {path}, a {type(value).__name__}; use lists, tuples and dicts"
        )
    return value
