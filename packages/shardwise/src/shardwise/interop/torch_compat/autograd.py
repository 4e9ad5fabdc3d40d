"""The autograd engine: the pass that runs, the nodes of Python functions, and functions of torch itself."""

from __future__ import annotations

import torch

from .registry import patch_point, private

RUN_BACKWARD = patch_point(
    "torch.autograd._engine_run_backward",
    purpose="every backward pass goes through it; typed before and after",
    lost="types of gradients",
)
RUN_FUNCTION_BACKWARD = patch_point(
    "torch.autograd.function.BackwardCFunction.apply",
    purpose="runs the backward of a Python function; its types are compared with what was declared",
    lost="the backward of declared autograd functions",
)
BACKWARD_HOOK_FUNCTION = "torch.nn.modules._functions.BackwardHookFunction"
POST_BACKWARD_FUNCTION = "torch.distributed.fsdp._fully_shard._fsdp_param_group.RegisterPostBackwardFunction"
DDP_SINK = "torch.nn.parallel.distributed._DDPSink"
MASK_INDEXING = "torch._dynamo._trace_wrapped_higher_order_op.ModIndex"
FUNCTIONAL_COLLECTIVES = "torch.distributed._functional_collectives"


@private(
    "torch._C._current_graph_task_id",
    lost="hooks in backward, told from code outside of it",
)
def in_backward() -> bool:
    """True while autograd runs a backward pass on this thread."""
    return torch._C._current_graph_task_id() != -1


@private("torch.autograd.function.BackwardCFunction:_forward_cls", lost="the backward of declared autograd functions")
def forward_class(node: object) -> type | None:
    """The ``autograd.Function`` that made this node of the graph; None for nodes of PyTorch's own operators."""
    found: type | None = getattr(node, "_forward_cls", None)
    return found


def saved_by(node: object, name: str) -> object:
    """What the node of an operator keeps for backward: ``other`` of a division, ``total_weight`` of a loss; else None.

    PyTorch's notes on autograd give the prefix; which names an operator has is nowhere said. A graph that is used up
    keeps nothing.
    """
    try:
        saved: object = getattr(node, f"_saved_{name}", None)
    except RuntimeError:
        return None
    return saved
