"""Code that torch compiles inside a check: Dynamo traces the program, not the checker."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import shardwise as spmd
from shardwise import S, V
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector

from .helpers import make, place


def causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return query >= key


@pytest.mark.parametrize("letter", ["R", "I", "V"])
def test_flex_attention_follows_its_operands(tp_mesh: Any, letter: str) -> None:
    query = make(letter, 1, 2, 16, 16)
    with typecheck():
        assert place(flex_attention(query, query, query)) == letter
        mask = create_block_mask(causal, 1, 2, 16, 16, device="cpu")
        assert place(flex_attention(query, query, query, block_mask=mask)) == letter


def test_a_mask_of_documents_of_an_own_batch_is_no_finding_and_its_types_are_lost(tp_mesh: Any) -> None:
    """The mask counts samples from the start of the shard, as it is used for this rank's samples alone."""
    found = Collector()
    with checking(local=False, collect=found, strict=False):
        documents = spmd.assert_type(torch.zeros(2, 16, dtype=torch.long), {"tp": S(0)})
        query = spmd.assert_type(torch.randn(2, 2, 16, 8), {"tp": S(0)})
        same = create_block_mask(lambda b, h, q, k: documents[b, q] == documents[b, k], 2, None, 16, 16, device="cpu")
        flex_attention(query, query, query, block_mask=same)
    assert found.result().findings == ()
    assert "positions that each rank counts for itself" in found.result().lost[0].what


def test_flex_attention_of_a_pending_value_is_refused(tp_mesh: Any) -> None:
    query = make("R", 1, 2, 16, 16)
    with typecheck(), pytest.raises(spmd.SpmdTypeError) as caught:
        flex_attention(query, query, make("P", 1, 2, 16, 16))
    assert caught.value.finding.code == "SW112"


def test_flex_attention_keeps_sharded_heads_and_refuses_sharded_queries(tp_mesh: Any) -> None:
    heads = spmd.assert_type(torch.randn(1, 2, 16, 16), {"tp": S(1)})
    queries = spmd.assert_type(torch.randn(1, 2, 16, 16), {"tp": S(2)})
    with typecheck(local=False):
        assert str(spmd.typeof(flex_attention(heads, heads, heads))) == "f32[1, 2@tp, 16, 16]"
        with pytest.raises(spmd.SpmdTypeError) as caught:
            flex_attention(queries, queries, queries)
    assert caught.value.finding.code == "SW405"


Compiled = Callable[[Any], Any]


def by_function(backend: Any) -> Any:
    w = make("V")
    return torch.compile(lambda x: x @ w, backend=backend, fullgraph=True)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = spmd.assert_type(nn.Parameter(torch.rand(4, 4)), {"tp": V})

    def forward(self, x: Any) -> Any:
        return x @ self.weight


def by_module(backend: Any) -> Any:
    return torch.compile(Layer(), backend=backend)


def by_method(backend: Any) -> Any:
    module = Layer()
    module.compile(backend=backend)
    return module


@pytest.mark.parametrize("compiled", [by_function, by_module, by_method])
def test_what_is_compiled_runs_as_written_where_it_is_checked(tp_mesh: Any, compiled: Compiled) -> None:
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    call = compiled(backend)
    with typecheck():
        assert place(call(make("R"))) == "V"
        with pytest.raises(spmd.SpmdTypeError) as caught:
            call(make("P"))
        assert graphs == []
    assert caught.value.code == "SW110"
    call(torch.ones(4, 4))  # and elsewhere it is compiled
    assert len(graphs) == 1


@pytest.mark.slow
@pytest.mark.processes
def test_the_first_that_a_program_compiles_is_compiled_inside_the_check() -> None:
    """Dynamo is loaded by then only."""
    program = """
        import sys
        import torch
        import shardwise as spmd
        from shardwise.checker import typecheck
        from shardwise.interop.torch_compat import fake_world

        with fake_world(0, 4):
            mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
            with spmd.set_current_mesh(mesh), typecheck():
                x = spmd.assert_type(torch.ones(4), {"tp": spmd.R})
                assert "torch._dynamo" not in sys.modules
                compiled = torch.compile(lambda x: x * 2, backend=lambda graph, inputs: sys.exit("compiled"))
                print(spmd.typeof(compiled(x)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "f32[4] {tp: R}\n", done.stderr
