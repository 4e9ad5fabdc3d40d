"""What each family of operators does to sharded dims, one axis (tp=4), local sizes.

A case names a call, its operands as typed shapes, and the typed shape of the result or the code of the refusal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import shardwise as spmd
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector

from .helpers import operand, refused

Case = tuple[str, Callable[..., Any], list[str], str]

_ROWS, _COLUMNS, _WHOLE = "f32[4@tp, 6]", "f32[4, 6@tp]", "f32[4, 6] {tp: R}"

ELEMENT_BY_ELEMENT: list[Case] = [
    ("unary", torch.relu, [_ROWS], _ROWS),
    ("cast", lambda x: x.double(), [_COLUMNS], "f64[4, 6@tp]"),
    ("clone", torch.clone, [_COLUMNS], _COLUMNS),
    ("detach", torch.detach, [_COLUMNS], _COLUMNS),
    ("dropout", F.dropout, [_COLUMNS], _COLUMNS),
    ("invariant", torch.relu, ["f32[4] {tp: I}"], "f32[4] {tp: I}"),
    ("binary", torch.add, [_ROWS, _ROWS], _ROWS),
    ("number", lambda x: x * 2 + 1, [_ROWS], _ROWS),
    ("one axis", torch.add, [_ROWS, _COLUMNS], "SW401"),
    ("whole operand", torch.add, [_ROWS, _WHOLE], "SW402"),
    ("bias on another dim", torch.add, [_ROWS, "f32[6] {tp: R}"], _ROWS),
    ("bias of size 1 on the sharded dim", torch.add, [_ROWS, "f32[1, 6] {tp: R}"], _ROWS),
    ("bias on the sharded dim", torch.add, [_COLUMNS, "f32[6] {tp: R}"], "SW402"),
    ("bias sharded alike", torch.add, [_COLUMNS, "f32[6@tp]"], _COLUMNS),
    ("partial", torch.add, [_ROWS, "f32[4, 6] {tp: P}"], "SW110"),
    ("invariant with a shard", torch.add, [_ROWS, "f32[6] {tp: I}"], _ROWS),
    ("two whole ones", torch.add, [_WHOLE, _WHOLE], _WHOLE),
    ("where", torch.where, ["b8[4@tp, 6]", _ROWS, _ROWS], _ROWS),
    ("where with a whole mask", torch.where, ["b8[4, 6] {tp: R}", _ROWS, _ROWS], "SW402"),
    ("masked_fill", lambda x, m: x.masked_fill(m, 0.0), [_ROWS, "b8[4@tp, 6]"], _ROWS),
    ("zeros of one rank's shape", lambda x: x + torch.zeros(4, 6), [_ROWS], _ROWS),
    ("positions of one rank", lambda x: x + torch.arange(6), [_COLUMNS], "SW402"),
    ("positions along a whole dim", lambda x: x + torch.arange(6), [_ROWS], _ROWS),
    ("zeros_like", torch.zeros_like, [_ROWS], "f32[4@tp, 6] zero"),
    ("ones_like", lambda x: torch.ones_like(x) * x, [_ROWS], _ROWS),
]

PRODUCTS: list[Case] = [
    ("rows", torch.matmul, ["f32[2@tp, 3]", "f32[3, 5] {tp: R}"], "f32[2@tp, 5]"),
    ("columns", torch.matmul, ["f32[2, 3] {tp: R}", "f32[3, 5@tp]"], "f32[2, 5@tp]"),
    ("contracted", torch.matmul, ["f32[2, 3@tp]", "f32[3@tp, 5]"], "f32[2, 5] {tp: P}"),
    ("contracted in one", torch.matmul, ["f32[2, 3@tp]", "f32[3, 5] {tp: R}"], "SW402"),
    ("rows and columns", torch.matmul, ["f32[2@tp, 3]", "f32[3, 5@tp]"], "SW401"),
    ("batch", torch.bmm, ["f32[7@tp, 2, 3]", "f32[7@tp, 3, 5]"], "f32[7@tp, 2, 5]"),
    ("batch against one matrix", torch.matmul, ["f32[7@tp, 2, 3]", "f32[3, 5] {tp: R}"], "f32[7@tp, 2, 5]"),
    ("mm", torch.mm, ["f32[2@tp, 3]", "f32[3, 5] {tp: R}"], "f32[2@tp, 5]"),
    ("linear, rows of the weight", F.linear, ["f32[2, 3] {tp: R}", "f32[5@tp, 3]"], "f32[2, 5@tp]"),
    ("linear, contracted", F.linear, ["f32[2, 3@tp]", "f32[5, 3@tp]"], "f32[2, 5] {tp: P}"),
    ("linear, bias alike", F.linear, ["f32[2, 3] {tp: R}", "f32[5@tp, 3]", "f32[5@tp]"], "f32[2, 5@tp]"),
    ("linear, whole bias", F.linear, ["f32[2, 3] {tp: R}", "f32[5@tp, 3]", "f32[5] {tp: R}"], "SW402"),
    ("linear, bias of a pending sum", F.linear, ["f32[2, 3@tp]", "f32[5, 3@tp]", "f32[5] {tp: R}"], "SW113"),
    ("addmm", torch.addmm, ["f32[2@tp, 5]", "f32[2@tp, 3]", "f32[3, 5] {tp: R}"], "f32[2@tp, 5]"),
    ("einsum", lambda x, w: torch.einsum("sbi,io->sbo", x, w), ["f32[2@tp, 3, 4]", "f32[4, 5] {tp: R}"],
     "f32[2@tp, 3, 5]"),
    ("einsum, contracted", lambda x, w: torch.einsum("sbi,io->sbo", x, w), ["f32[2, 3, 4@tp]", "f32[4@tp, 5]"],
     "f32[2, 3, 5] {tp: P}"),
    ("einsum, contracted, times a pending sum", lambda x, w, c: torch.einsum("k,k,->", x, w, c),
     ["f32[4@tp]", "f32[4@tp]", "f32[] {tp: P}"], "SW110"),
    ("einsum, contracted, times a pending maximum", lambda x, w, c: torch.einsum("k,k,->", x, w, c),
     ["f32[4@tp]", "f32[4@tp]", "f32[] {tp: P(max)}"], "SW110"),
    ("einsum, diagonal", lambda x: torch.einsum("ii->i", x), ["f32[3@tp, 3]"], "SW405"),
    ("conv on the batch", F.conv2d, ["f32[2@tp, 3, 8, 8]", "f32[4, 3, 3, 3] {tp: R}"], "f32[2@tp, 4, 6, 6]"),
    ("conv on the image", F.conv2d, ["f32[2, 3, 8@tp, 8]", "f32[4, 3, 3, 3] {tp: R}"], "SW405"),
]  # fmt: skip

REDUCTIONS: list[Case] = [
    ("sum of all", torch.sum, [_ROWS], "f32[] {tp: P}"),
    ("sum of the sharded dim", lambda x: x.sum(0), [_ROWS], "f32[6] {tp: P}"),
    ("sum of another", lambda x: x.sum(1), [_ROWS], "f32[4@tp]"),
    ("sum with keepdim", lambda x: x.sum(0, keepdim=True), [_COLUMNS], "f32[1, 6@tp]"),
    ("mean of the sharded dim", lambda x: x.mean(0), [_ROWS], "f32[6] {tp: P(avg)}"),
    ("mean of all", torch.mean, [_ROWS], "f32[] {tp: P(avg)}"),
    ("mean of another", lambda x: x.mean(-1), [_ROWS], "f32[4@tp]"),
    ("max of the sharded dim", lambda x: x.amax(0), [_ROWS], "f32[6] {tp: P(max)}"),
    ("max of another", lambda x: x.amax(1), [_ROWS], "f32[4@tp]"),
    ("max with positions", lambda x: x.max(1).indices, [_ROWS], "i64[4@tp]"),
    ("argmax", lambda x: x.argmax(0), [_ROWS], "SW405"),
    ("all", torch.all, ["b8[4@tp]"], "b8[] {tp: P(min)}"),
    ("any", torch.any, ["b8[4@tp]"], "b8[] {tp: P(max)}"),
    ("prod", torch.prod, [_ROWS], "SW404"),
    ("std", torch.std, [_ROWS], "SW405"),
    ("logsumexp", lambda x: x.logsumexp(0), [_ROWS], "SW405"),
    ("logsumexp of another", lambda x: x.logsumexp(1), [_ROWS], "f32[4@tp]"),
    ("norm", torch.linalg.vector_norm, [_ROWS], "f32[] {tp: P(norm)}"),
    ("softmax", lambda x: x.softmax(0), [_ROWS], "SW405"),
    ("softmax of another", lambda x: x.softmax(-1), [_ROWS], _ROWS),
    ("layer_norm", lambda x: F.layer_norm(x, (6,)), [_ROWS], _ROWS),
    ("layer_norm of a shard", lambda x: F.layer_norm(x, (6,)), [_COLUMNS], "SW405"),
    ("rms_norm", lambda x, w: F.rms_norm(x, (6,), w), [_ROWS, "f32[6] {tp: R}"], _ROWS),
    ("rms_norm of a shard", lambda x: F.rms_norm(x, (6,)), [_COLUMNS], "SW405"),
    ("cumsum", lambda x: x.cumsum(0), [_ROWS], "SW405"),
    ("cumsum of another", lambda x: x.cumsum(1), [_ROWS], _ROWS),
    ("sort", lambda x: x.sort(0).values, [_ROWS], "SW405"),
    ("sort of another", lambda x: x.sort(1).values, [_ROWS], _ROWS),
    ("topk", lambda x: x.topk(2).indices, [_ROWS], "i64[4@tp, 2]"),
    ("tril of a batch", torch.tril, ["f32[4@tp, 3, 3]"], "f32[4@tp, 3, 3]"),
    ("tril", torch.tril, ["f32[4@tp, 4]"], "SW406"),
]

VIEWS: list[Case] = [
    ("transpose", lambda x: x.transpose(0, 1), [_ROWS], "f32[6, 4@tp]"),
    ("permute", lambda x: x.permute(2, 0, 1), ["f32[2, 3@tp, 4]"], "f32[4, 2, 3@tp]"),
    ("mT", lambda x: x.mT, [_ROWS], "f32[6, 4@tp]"),
    ("movedim", lambda x: x.movedim(0, -1), ["f32[2@tp, 3, 4]"], "f32[3, 4, 2@tp]"),
    ("unsqueeze", lambda x: x.unsqueeze(0), [_ROWS], "f32[1, 4@tp, 6]"),
    ("squeeze", lambda x: x.squeeze(1), ["f32[4@tp, 1, 6]"], _ROWS),
    ("view, the sharded dim leads", lambda x: x.view(-1), [_ROWS], "f32[24@tp]"),
    ("view, the sharded dim is inner", lambda x: x.view(-1), [_COLUMNS], "f32[24] {tp: V}"),
    ("view with a torch.Size", lambda x: x.view(torch.Size([24])), ["f32[1, 24@tp]"], "f32[24@tp]"),
    ("view as other bits", lambda x: x.view(torch.int32), [_ROWS], "i32[4@tp, 6]"),
    ("view, other dims", lambda x: x.view(4, 2, 3), [_ROWS], "f32[4@tp, 2, 3]"),
    ("view, the sharded dim is split", lambda x: x.view(4, 2, -1), [_COLUMNS], "f32[4, 2@tp, 3]"),
    ("heads out of features", lambda x: x.unflatten(-1, (-1, 3)), [_COLUMNS], "f32[4, 2@tp, 3]"),
    ("features out of heads", lambda x: x.flatten(1), ["f32[4, 2@tp, 3]"], _COLUMNS),
    ("flatten of the batch", lambda x: x.flatten(0, 1), ["f32[2@tp, 3, 4]"], "f32[6@tp, 4]"),
    ("a sharded dim of size 1 that vanishes", lambda x: x.reshape(6), ["f32[1@tp, 6]"], "SW405"),
    ("expand", lambda x: x.expand(3, -1), ["f32[1, 6@tp]"], "f32[3, 6@tp]"),
    ("expand with a new dim", lambda x: x.expand(2, 4, 6), [_ROWS], "f32[2, 4@tp, 6]"),
    ("broadcast_to", lambda x: x.broadcast_to(2, 4, 6), [_ROWS], "f32[2, 4@tp, 6]"),
    ("repeat_interleave", lambda x: x.repeat_interleave(2, 1), [_ROWS], "f32[4@tp, 12]"),
    ("flip", lambda x: x.flip(0), [_ROWS], "SW405"),
    ("flip of another", lambda x: x.flip(1), [_ROWS], _ROWS),
    ("roll", lambda x: x.roll(1, 0), [_ROWS], "SW405"),
]

PARTS: list[Case] = [
    ("slice", lambda x: x[:, 1:3], [_ROWS], "f32[4@tp, 2]"),
    ("slice of the sharded dim", lambda x: x[1:3], [_ROWS], "SW405"),
    ("all of the sharded dim", lambda x: x[:], [_ROWS], _ROWS),
    ("integer", lambda x: x[:, 0], [_ROWS], "f32[4@tp]"),
    ("integer on the sharded dim", lambda x: x[0], [_ROWS], "SW405"),
    ("new dim", lambda x: x[:, None], [_ROWS], "f32[4@tp, 1, 6]"),
    ("ellipsis", lambda x: x[..., None], [_ROWS], "f32[4@tp, 6, 1]"),
    ("narrow", lambda x: x.narrow(1, 0, 2), [_ROWS], "f32[4@tp, 2]"),
    ("narrow of the sharded dim", lambda x: x.narrow(0, 0, 2), [_ROWS], "SW405"),
    ("narrow by a number that is the length of a shard", lambda x: x.narrow(0, 0, 4), [_ROWS], "SW405"),
    ("aten's slice up to such a number", lambda x: torch.ops.aten.slice.Tensor(x, 0, 0, 4), [_ROWS], "SW405"),
    ("aten's slice of all", lambda x: torch.ops.aten.slice.Tensor(x, 0, 0, sys.maxsize), [_ROWS], _ROWS),
    ("a copy of such a slice", lambda x: torch.slice_copy(x, 0, 0, 4), [_ROWS], "SW405"),
    ("chunk", lambda x: x.chunk(2, -1)[1], [_ROWS], "f32[4@tp, 3]"),
    ("chunk of the sharded dim", lambda x: x.chunk(2, 0)[1], [_ROWS], "SW405"),
    ("split", lambda x: x.split(2, 1)[0], [_ROWS], "f32[4@tp, 2]"),
    ("unbind", lambda x: x.unbind(1)[0], [_ROWS], "f32[4@tp]"),
    ("index_select", lambda x, i: x.index_select(1, i), [_ROWS, "i64[2] {tp: R}"], "f32[4@tp, 2]"),
    ("index_select of the sharded dim", lambda x, i: x.index_select(0, i), [_ROWS, "i64[2] {tp: R}"], "SW405"),
    ("tensor index", lambda x, i: x[:, i], [_ROWS, "i64[2] {tp: R}"], "f32[4@tp, 2]"),
    ("tensor index of the sharded dim", lambda x, i: x[i], [_ROWS, "i64[2] {tp: R}"], "SW405"),
    ("mask", lambda x, m: x[m == m], [_ROWS, "b8[4@tp]"], "f32[4@~tp, 6]"),
    ("mask of another dim", lambda x, m: x[:, m == m], [_ROWS, "b8[6] {tp: R}"], _ROWS),
    ("whole mask", lambda x, m: x[m], [_ROWS, "b8[4] {tp: R}"], "SW402"),
    ("mask with the second dim sharded", lambda x, m: x[m], [_COLUMNS, "b8[4, 6@tp]"], "SW405"),
    ("mean of what a mask picks", lambda x, m: x[m].mean(), [_ROWS, "b8[4@tp]"], "SW403"),
    ("masked_select", lambda x, m: x.masked_select(m == m), [_ROWS, "b8[4@tp, 6]"], "f32[24@~tp]"),
    ("counts", lambda x, n: x.repeat_interleave(n + 1, 0), [_ROWS, "i64[4@tp]"], "f32[4@~tp, 6]"),
    ("nonzero", torch.nonzero, [_ROWS], "SW405"),
    ("gather", lambda x, i: x.gather(1, i), [_ROWS, "i64[4@tp, 1]"], "f32[4@tp, 1]"),
    ("gather of the sharded dim", lambda x, i: x.gather(1, i), [_COLUMNS, "i64[4, 1] {tp: R}"], "SW405"),
    ("one_hot", lambda i: F.one_hot(i, 5), ["i64[4@tp]"], "i64[4@tp, 5]"),
    ("embedding, batch", F.embedding, ["i64[4@tp]", "f32[9, 5] {tp: R}"], "f32[4@tp, 5]"),
    ("embedding, features", F.embedding, ["i64[4] {tp: R}", "f32[9, 5@tp]"], "f32[4, 5@tp]"),
    ("embedding, vocabulary", F.embedding, ["i64[4] {tp: R}", "f32[9@tp, 5]"], "SW405"),
    ("cat", lambda x, y: torch.cat([x, y], 1), [_ROWS, _ROWS], "f32[4@tp, 12]"),
    ("cat of the sharded dim", lambda x, y: torch.cat([x, y], 0), [_ROWS, _ROWS], "SW405"),
    ("cat of different shards", lambda x, y: torch.cat([x, y], 1), [_ROWS, _WHOLE], "SW402"),
    ("stack", lambda x, y: torch.stack([x, y]), [_ROWS, _ROWS], "f32[2, 4@tp, 6]"),
    ("pad", lambda x: F.pad(x, (1, 1)), [_ROWS], "f32[4@tp, 8]"),
    ("pad of the sharded dim", lambda x: F.pad(x, (1, 1)), [_COLUMNS], "SW405"),
]

_HEADS, _SEQUENCE = "f32[2, 4@tp, 5, 8]", "f32[2, 4, 5@tp, 8]"

LOSSES_AND_ATTENTION: list[Case] = [
    ("sdpa, heads", F.scaled_dot_product_attention, [_HEADS] * 3, _HEADS),
    ("sdpa, heads, causal", lambda *x: F.scaled_dot_product_attention(*x, is_causal=True), [_HEADS] * 3, _HEADS),
    ("sdpa, keys", F.scaled_dot_product_attention, [_SEQUENCE] * 3, "SW405"),
    ("sdpa, queries", F.scaled_dot_product_attention, [_SEQUENCE, *["f32[2, 4, 9, 8] {tp: R}"] * 2], _SEQUENCE),
    ("sdpa, queries, causal", lambda *x: F.scaled_dot_product_attention(*x, is_causal=True),
     [_SEQUENCE, *["f32[2, 4, 9, 8] {tp: R}"] * 2], "SW406"),
    ("cross_entropy, sum", lambda x, t: F.cross_entropy(x, t, reduction="sum"), [_ROWS, "i64[4@tp]"], "f32[] {tp: P}"),
    ("cross_entropy, none", lambda x, t: F.cross_entropy(x, t, reduction="none"), [_ROWS, "i64[4@tp]"], "f32[4@tp]"),
    ("cross_entropy, mean", F.cross_entropy, [_ROWS, "i64[4@tp]"], "f32[] {tp: P(avg)}"),
    (
        "cross_entropy, mean of what is not ignored",
        lambda x, y: F.cross_entropy(x, y, ignore_index=0),
        [_ROWS, "i64[4@tp]"],
        "SW403",
    ),
    ("cross_entropy, classes", F.cross_entropy, [_COLUMNS, "i64[4] {tp: R}"], "SW405"),
    ("mse_loss, mean", F.mse_loss, [_ROWS, _ROWS], "f32[] {tp: P(avg)}"),
    ("mse_loss, none", lambda x, y: F.mse_loss(x, y, reduction="none"), [_ROWS, _ROWS], _ROWS),
]  # fmt: skip

WRITES: list[Case] = [
    ("in-place", lambda x, y: x.add_(y), [_ROWS, _ROWS], _ROWS),
    ("in-place, other dim", lambda x, y: x.add_(y), [_ROWS, _COLUMNS], "SW401"),
    ("copy of other shards", lambda x, y: x.copy_(y), ["f32[4@tp, 4]", "f32[4, 4@tp]"], "SW120"),
    ("out=", lambda x, y: torch.mul(x, 2, out=y), [_ROWS, _ROWS], _ROWS),
    ("out= that is empty", lambda x: torch.mul(x, 2, out=torch.empty(4, 6)), [_ROWS], _ROWS),
    ("out= of another dim", lambda x, y: torch.mul(x, 2, out=y), [_ROWS, _COLUMNS], "SW120"),
    ("setitem on another dim", lambda x, y: x.__setitem__((slice(None), 0), y) or x, [_ROWS, "f32[4@tp]"], _ROWS),
    ("index_add", lambda x, i, y: x.index_add_(1, i, y), [_ROWS, "i64[2] {tp: R}", "f32[4@tp, 2]"], _ROWS),
]

TABLE = {
    "element by element": ELEMENT_BY_ELEMENT,
    "products": PRODUCTS,
    "reductions": REDUCTIONS,
    "views": VIEWS,
    "parts": PARTS,
    "losses and attention": LOSSES_AND_ATTENTION,
    "writes": WRITES,
}


@pytest.mark.parametrize(
    ("call", "operands", "expected"),
    [pytest.param(*case[1:], id=f"{family}: {case[0]}") for family, cases in TABLE.items() for case in cases],
)
def test_the_result_is_sharded_as_the_table_says(
    tp_mesh: Any, call: Callable[..., Any], operands: list[str], expected: str
) -> None:
    made = [operand(text) for text in operands]
    with typecheck(local=False):
        if expected.startswith("SW"):
            with refused(expected):
                call(*made)
        else:
            assert str(spmd.typeof(call(*made))) == expected


_BOTH, _SWAPPED = "f32[8@(dp,tp), 6]", "f32[8@(tp,dp), 6]"

SEVERAL_AXES: list[Case] = [
    ("one dim each", torch.relu, ["f32[4@dp, 6@tp]"], "f32[4@dp, 6@tp]"),
    ("one dim for both", torch.relu, [_BOTH], _BOTH),
    ("transposed", torch.t, [_BOTH], "f32[6, 8@(dp,tp)]"),
    ("the same order", torch.add, [_BOTH, _BOTH], _BOTH),
    ("the other order", torch.add, [_BOTH, _SWAPPED], "SW409"),
    ("the inner one missing", torch.add, [_BOTH, "f32[8@dp, 6] {tp: R}"], "SW402"),
    ("the inner one missing, one element each", torch.add, ["f32[1@(dp,tp)]", "f32[1@dp] {tp: R}"], "SW402"),
    ("one element of all", torch.add, ["f32[1@(dp,tp)]", "f32[1] {dp: R, tp: R}"], "f32[1@(dp,tp)]"),
    ("batch and columns", F.linear, ["f32[8@dp, 6] {tp: R}", "f32[5@tp, 6] {dp: R}"], "f32[8@dp, 5@tp]"),
    ("batch and contracted", F.linear, ["f32[8@dp, 6@tp]", "f32[5, 6@tp] {dp: R}"], "f32[8@dp, 5] {tp: P}"),
    ("contracted in one order", F.linear, ["f32[5, 8@(dp,tp)]", "f32[4, 8@(dp,tp)]"], "f32[5, 4] {dp: P, tp: P}"),
    ("contracted in another order", F.linear, ["f32[5, 8@(dp,tp)]", "f32[4, 8@(tp,dp)]"], "SW409"),
    ("both contracted", lambda x: x.sum(0), [_BOTH], "f32[6] {dp: P, tp: P}"),
    ("one contracted", lambda x: x.sum(0), ["f32[8@dp, 6@tp]"], "f32[6@tp] {dp: P}"),
    ("a sum and a pending one", torch.add, ["f32[8@dp, 6] {tp: P}", "f32[8@dp, 6] {tp: P}"], "f32[8@dp, 6] {tp: P}"),
    ("flattened together", lambda x: x.flatten(0, 1), ["f32[8@dp, 6@tp]"], "f32[48@dp] {tp: V}"),
    ("flattened, leading", lambda x: x.flatten(), [_BOTH], "f32[48@(dp,tp)]"),
    ("dims that meet without an order", torch.flatten, ["f32[1@dp, 6@tp]"], "SW409"),
]


@pytest.mark.parametrize(
    ("call", "operands", "expected"), [pytest.param(*case[1:], id=case[0]) for case in SEVERAL_AXES]
)
def test_axes_are_judged_one_by_one_and_keep_their_order(
    mesh: Any, call: Callable[..., Any], operands: list[str], expected: str
) -> None:
    test_the_result_is_sharded_as_the_table_says(mesh, call, operands, expected)


def test_a_result_in_no_agreed_order_is_unknown_and_not_refused_again(mesh: Any) -> None:
    both, swapped = operand(_BOTH), operand(_SWAPPED)
    collector = Collector()
    with checking(local=False, collect=collector):
        (both + swapped).square().sum(-1)
    assert [finding.code for finding in collector.result().findings] == ["SW409"]
