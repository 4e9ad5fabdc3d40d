"""What a wrapper says of what it wraps: parameters that it keeps equal, and losses whose gradients it averages.

``DistributedDataParallel`` starts all ranks from the same parameters and averages their gradients, so that these are R
over the ranks of its group; ``fully_shard`` and FSDP1 do so over the ranks that they split parameters over. Each rank
starts backward from the loss of its own batch there, which is no mistake: the wrapper takes the mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.tagging import Origin, tag_of
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import R
from shardwise.types.tensor_type import TensorType

from ..state.session import CheckSession
from .inputs import put_type


def replicated(session: CheckSession, wrapper: Any) -> None:
    """The parameters that a ``DistributedDataParallel`` has just wrapped, where nobody has typed them."""
    ignored = set(wrapper.parameters_to_ignore)
    own = (parameter for name, parameter in wrapper.module.named_parameters() if name not in ignored)
    equal(session, own, wrapper.process_group, "DistributedDataParallel")


def equal(session: CheckSession, parameters: Iterable[torch.Tensor], group: object, by: str) -> None:
    """These parameters are kept equal ``by`` a wrapper, which averages their gradients over ``group``."""
    axis = MeshAxis.of(group)
    averaged(session, [axis])
    if axis.size() == 1:
        return
    origin = Origin(user_site(), f"kept equal by {by}")
    for parameter in parameters:
        if _is_untyped(parameter):
            put_type(parameter, TensorType.of({axis: R}), origin)


def averaged(session: CheckSession, axes: Iterable[MeshAxis]) -> None:
    """A wrapper averages gradients over these axes."""
    session.averaged |= {axis for axis in axes if axis.size() > 1}


def _is_untyped(parameter: torch.Tensor) -> bool:
    return not is_dtensor(parameter) and tag_of(parameter) is None
