"""Models of Megatron: parameters have their marks, and their memory, when the wrapper is made or they are called."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist

from shardwise.host.module_calls import OuterModules, telling_calls
from shardwise.interop.running.recording import is_recorded
from shardwise.interop.torch_compat import tree_leaves

from ..gradients.gradient_hooks import after_node
from ..observation import megatron
from ..state.session import CheckSession
from .patches import Patches, Plugin, checking_session

_WRAPPERS = "megatron.core.distributed.distributed_data_parallel"
_OPTIMIZER = "megatron.core.optimizer.distrib_optimizer"
_CLASS = "DistributedOptimizer"
_HOOKS = "_make_backward_post_hook"
"""Makes the hook that adds the gradient of a parameter to the buffer of all, on a node of the graph."""


def _install(patches: Patches) -> None:
    wrapper = sys.modules[_WRAPPERS].DistributedDataParallel
    patches.replace_attribute(wrapper, "__init__", _wrap_making)
    if _HOOKS in vars(wrapper):
        patches.replace_attribute(wrapper, _HOOKS, _wrap_hooks)
    told = contextlib.ExitStack()
    told.enter_context(telling_calls(functools.partial(_called, OuterModules())))
    patches.on_undo(told.close)


def _called(outer: OuterModules, module: torch.nn.Module, args: Mapping[str, object]) -> None:
    session = _observing()
    if session is not None:
        if outer.is_new(module):
            megatron.type_parameters(session, module)
        if module in outer and next(module.parameters(), None) is not None:
            megatron.type_inputs(session, tree_leaves(dict(args)))


def _wrap_making(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def __init__(self: torch.nn.Module, *args: object, **kwargs: object) -> None:
        plain(self, *args, **kwargs)
        session = _observing()
        if session is not None:
            megatron.type_parameters(session, self)

    return __init__


def _install_optimizer(patches: Patches) -> None:
    patches.replace_attribute(getattr(sys.modules[_OPTIMIZER], _CLASS), "__init__", _wrap_sharding)


def _wrap_sharding(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def __init__(self: object, *args: object, **kwargs: object) -> None:
        plain(self, *args, **kwargs)
        optimizer, group = (getattr(self, name, None) for name in ("optimizer", "data_parallel_group"))
        if _observing() is not None and isinstance(group, dist.ProcessGroup):
            groups = getattr(optimizer, "param_groups", ())
            megatron.type_shards((one for each in groups for one in each["params"]), group)

    return __init__


def _wrap_hooks(plain: Callable[..., Callable[..., object]]) -> object:
    @functools.wraps(plain)
    def make(self: object, parameter: torch.Tensor) -> Callable[..., object]:
        return after_node(parameter, plain(self, parameter))

    return make


def _observing() -> CheckSession | None:
    """The check of this thread, if it may type models.

    For global types it would have to be known which dims of its inputs are cut; where the numbers of all ranks are
    compared with those of one, how each of them has come to its weights and gradients, which lie in buffers.
    """
    session = checking_session()
    return session if session is not None and session.observe and session.local and not is_recorded() else None


MODELS = Plugin("models of Megatron", _install, is_ready=lambda: _WRAPPERS in sys.modules)
SHARDS = Plugin(
    "shards of Megatron's optimizer", _install_optimizer, is_ready=lambda: hasattr(sys.modules.get(_OPTIMIZER), _CLASS)
)
