"""Do the calls trace into one graph, with one functional collective and one wait each?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch.distributed.device_mesh import init_device_mesh

from shardwise import (
    I,
    MeshAxis,
    P,
    R,
    S,
    V,
    all_gather,
    all_reduce,
    all_to_all,
    convert,
    linear,
    redistribute,
    reduce_scatter,
    reinterpret,
    set_current_mesh,
)

pytestmark = pytest.mark.usefixtures("tp")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def graphs_of(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[list[str], list[str], Tensor]:
    """The collectives in the forward and the backward graph, and the result."""
    seen: list[list[str]] = []

    def note(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
        seen.append([name.split(".")[1] for name in names if name.startswith("_c10d_functional.")])
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=note, bw_compiler=note)
    y = torch.compile(function, fullgraph=True, backend=backend)(x)
    y.sum().backward()
    return seen[0], seen[1], y


SUM, GATHER = ["all_reduce", "wait_tensor"], ["all_gather_into_tensor", "wait_tensor"]
SCATTER, EXCHANGE = ["reduce_scatter_tensor", "wait_tensor"], ["all_to_all_single", "wait_tensor"]

CASES: list[tuple[str, Callable[[Tensor, Any], Tensor], list[str], list[str]]] = [
    ("sum R", lambda x, a: all_reduce(x, a, src=P, dst=R), SUM, SUM),
    ("sum I", lambda x, a: all_reduce(x, a, src=P, dst=I), SUM, []),
    ("gather 0 R", lambda x, a: all_gather(x, a, src=S(0), dst=R), GATHER, SCATTER),
    ("gather 1 R", lambda x, a: all_gather(x, a, src=S(1), dst=R), GATHER, SCATTER),
    ("gather I", lambda x, a: all_gather(x, a, src=S(0), dst=I), GATHER, []),
    ("stack R", lambda x, a: all_gather(x, a, src=V, dst=R, gather_dim=1), GATHER, SCATTER),
    ("gather uneven", lambda x, a: all_gather(x, a, src=S(0), dst=R, split_sizes=[4, 8, 0, 1]), GATHER, SCATTER),
    ("scatter 0", lambda x, a: reduce_scatter(x, a, src=P, dst=S(0)), SCATTER, GATHER),
    ("scatter 1", lambda x, a: reduce_scatter(x, a, src=P, dst=S(1)), SCATTER, GATHER),
    ("unbind", lambda x, a: reduce_scatter(x, a, src=P, dst=V, scatter_dim=1), SCATTER, GATHER),
    ("exchange", lambda x, a: all_to_all(x, a, src=S(0), dst=S(1)), EXCHANGE, EXCHANGE),
    ("copy", lambda x, a: convert(x, a, src=I, dst=R), [], SUM),
    ("take", lambda x, a: convert(x, a, src=I, dst=S(0)), [], GATHER),
    ("pad", lambda x, a: convert(x, a, src=S(0), dst=P, expert_mode=True), [], []),
    ("read", lambda x, a: reinterpret(x, a, src=V, dst=P), [], []),
    ("move", lambda x, a: redistribute(x, a, src=S(1), dst=R), GATHER, SCATTER),
    ("linear", lambda x, a: all_reduce(linear(x, x, out_partial_axes=a), a, src=P, dst=R), SUM, SUM),
    (
        "half",
        lambda x, a: all_gather(
            x, a, src=S(0), dst=R, op_dtype=torch.bfloat16, backward_options={"op_dtype": torch.float32}
        ),
        GATHER,
        SCATTER,
    ),
]  # fmt: skip


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("call", "forward", "backward"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_a_call_is_one_collective_in_one_graph(call: Any, forward: list[str], backward: list[str]):
    x = torch.randn(8, 4, requires_grad=True)
    got = graphs_of(lambda x: torch.relu(call(x * 2, "tp")), x)
    assert got[:2] == (forward, backward)
    assert got[2].shape == call(x, "tp").shape


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("kind", ["name", "axis", "group"])
def test_every_way_to_say_the_axis_traces(kind: str):
    axis = {"name": "tp", "axis": MeshAxis.of(4, 1), "group": dist.group.WORLD}[kind]
    x = torch.randn(8, 4, requires_grad=True)
    assert graphs_of(lambda x: all_reduce(x * 2, axis, src=P, dst=R), x)[:2] == (SUM, SUM)


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("kind", ["name", "axis"])
def test_another_mesh_is_another_graph(kind: str):
    small = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    axis: Any = "tp" if kind == "name" else MeshAxis.of(2, 2)
    other = init_device_mesh("cpu", (2, 2), mesh_dim_names=("tp", "dp"))
    compiled = torch.compile(lambda x: all_gather(x, axis, src=S(0), dst=R), fullgraph=True, backend="eager")
    x = torch.zeros(2, 2)
    if kind == "name":
        assert compiled(x).shape == (8, 2)
    for mesh in (small, other):
        with set_current_mesh(mesh):
            assert compiled(x).shape == (4, 2)


def test_an_all_reduce_in_place_traces_where_no_gradient_is_needed():
    compiled = torch.compile(
        lambda x: all_reduce(x * 2, "tp", src=P, dst=R, inplace=True) + 1, fullgraph=True, backend="aot_eager"
    )
    assert compiled(torch.zeros(3)).tolist() == [1, 1, 1]


def test_sizes_may_be_dynamic():
    compiled = torch.compile(
        lambda x: reduce_scatter(x, "tp", src=P, dst=S(0)), fullgraph=True, backend="eager", dynamic=True
    )
    assert [compiled(torch.zeros(n, 3)).shape[0] for n in (8, 12, 20)] == [2, 3, 5]
