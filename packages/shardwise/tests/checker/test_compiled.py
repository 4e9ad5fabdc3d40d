"""Code that torch compiles inside a check: Dynamo traces the program, not the checker."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import shardwise as spmd
from shardwise import S
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
