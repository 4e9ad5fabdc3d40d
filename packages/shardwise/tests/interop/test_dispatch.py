"""Does a watching mode see our calls by their op, with the caller's arguments, and can it let them through?"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise.interop.torch_compat import fake_world


class Watch(TorchFunctionMode):
    """Notes the ops of typed calls and lets everything through."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        op = getattr(func, "__shardwise_op__", None)
        if op is not None:
            self.seen.append((op, kwargs or {}))
        return func(*args, **(kwargs or {}))


X = torch.zeros(2, 2)
CALLS = [
    ("all_reduce", lambda: spmd.all_reduce(X, "tp", dst=R)),
    ("all_gather", lambda: spmd.all_gather(X, "tp", src=S(0), dst=R)),
    ("unshard", lambda: spmd.unshard(X, "tp", src=S(0), dst=R)),
    ("reduce_scatter", lambda: spmd.reduce_scatter(X, "tp", dst=S(0))),
    ("all_to_all", lambda: spmd.all_to_all(X, "tp", src=S(0), dst=S(1))),
    ("convert", lambda: spmd.convert(X, "tp", src=I, dst=R)),
    ("shard", lambda: spmd.shard(X, "tp", src=I, dst=S(0))),
    ("invariant_to_replicate", lambda: spmd.invariant_to_replicate(X, "tp")),
    ("reinterpret", lambda: spmd.reinterpret(X, "tp", src=V, dst=P)),
    ("all_reduce", lambda: spmd.redistribute(X, "tp", src=P, dst=I)),
    ("partial_linear", lambda: spmd.linear(X, X, out_partial_axes="tp")),
    ("partial_matmul", lambda: spmd.matmul(X, X, out_partial_axes="tp")),
    ("partial_einsum", lambda: spmd.einsum("ij,jk->ik", X, X, out_partial_axes="tp")),
    ("partial_sum", lambda: spmd.sum(X, "tp", src=S(0), dst=P)),
]


@pytest.mark.parametrize(("op", "call"), CALLS)
def test_a_mode_sees_one_typed_call(op: str, call: Any):
    with fake_world(0, 2):
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        with spmd.set_current_mesh(mesh):
            with Watch() as watch:
                watched = call()
            assert watched.shape == call().shape
    assert [seen for seen, _ in watch.seen] == [op]


def test_a_mode_gets_the_arguments_as_the_caller_wrote_them():
    with fake_world(0, 2), spmd.set_current_mesh([torch.distributed.group.WORLD]), Watch() as watch:
        spmd.all_gather(X, torch.distributed.group.WORLD, src=S(-1), dst=R)
    assert watch.seen == [("all_gather", {"src": S(-1), "dst": R})]


def test_our_autograd_functions_are_marked():
    from shardwise.collectives.functions import TransitionFunction, TransitionFunctionInPlace

    assert TransitionFunction.__shardwise_internal__
    assert TransitionFunctionInPlace.__shardwise_internal__
