"""Ring attention by raw messages, with global types: right rings are no finding, and a ring that is left out is one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise.checker import checking
from shardwise.diagnostics.result import Collector
from shardwise.worlds.world import InProcessWorld

from .on_ranks import RANKS, drawn, shard

pytestmark = pytest.mark.processes

QUERIES, KEYS, VALUES = (drawn(8, 4, seed=seed) for seed in range(3))
LOST = "the type of what is computed with one piece of a ring after the other"
Part = tuple[Tensor, Tensor]
"""The logarithm of a sum of weights, and the mean by them."""


def neighbours(x: Tensor, *, rounds: int = 1) -> Tensor:
    """What the rank before has."""
    received, rank = torch.empty_like(x), dist.get_rank()
    sending = dist.P2POp(dist.isend, x.contiguous(), (rank + rounds) % RANKS)
    for work in dist.batch_isend_irecv([sending, dist.P2POp(dist.irecv, received, (rank - rounds) % RANKS)]):
        work.wait()
    return received


def seen(q: Tensor, k: Tensor, v: Tensor) -> Part:
    score = q @ k.t()
    return score.logsumexp(-1, keepdim=True), score.softmax(-1) @ v


def together(parts: list[Part]) -> Tensor:
    whole = torch.stack([weight for weight, _ in parts]).logsumexp(0)
    return torch.stack([(weight - whole).exp() * mean for weight, mean in parts]).sum(0)


def one_after_the_other(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    parts = [seen(q, k, v)]
    for _ in range(RANKS - 1):
        k, v = neighbours(k), neighbours(v)
        parts.append(seen(q, k, v))
    return together(parts)


def packed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    both = torch.stack([k, v])
    parts = [seen(q, both[0], both[1])]
    for _ in range(RANKS - 1):
        both = neighbours(both)
        parts.append(seen(q, both[0], both[1]))
    return together(parts)


def sent_before_it_is_used(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    following = neighbours(k), neighbours(v)
    return together([seen(q, k, v), seen(q, *following)])


def without_weights(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """By torch's own attention, of which each rank's result is too large by a factor that the test knows."""
    own = F.scaled_dot_product_attention(q[None], k[None], v[None])
    return (own + F.scaled_dot_product_attention(q[None], neighbours(k)[None], neighbours(v)[None]))[0]


def left_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return seen(q, k, v)[1]


def only_values_go_round(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.t()).softmax(-1) @ neighbours(v)


def judged(attend: Callable[..., Tensor]) -> tuple[Tensor, list[str], list[str]]:
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    collector = Collector()
    with spmd.set_current_mesh(mesh), checking(local=False, collect=collector):
        made = attend(*map(shard, (QUERIES, KEYS, VALUES)))
    result = collector.result()
    return made.detach(), [one.code for one in result.findings], [noted.what for noted in result.lost]


ATTENTION = (QUERIES @ KEYS.t()).softmax(-1) @ VALUES
_OWN, _OTHER = ([x.roll(by, 0).view(2, 4, 4) for x in (KEYS, VALUES)] for by in (0, 4))
HALVES = sum(F.scaled_dot_product_attention(QUERIES.view(2, 4, 4), *pieces) for pieces in (_OWN, _OTHER))


@pytest.mark.parametrize(
    ("attend", "meant"),
    [
        (one_after_the_other, ATTENTION),
        (packed, ATTENTION),
        (sent_before_it_is_used, ATTENTION),
        (without_weights, torch.as_tensor(HALVES).view(8, 4)),
    ],
)
def test_a_ring_that_meets_all_pieces_is_no_finding_and_a_lost_type(
    attend: Callable[..., Tensor], meant: Tensor
) -> None:
    ranks = InProcessWorld(RANKS).run(judged, attend)
    torch.testing.assert_close(torch.cat([made for made, _, _ in ranks]), meant)
    assert [codes for _, codes, _ in ranks] == [[]] * RANKS
    assert all(LOST in lost for _, _, lost in ranks)


@pytest.mark.parametrize("attend", [left_out, only_values_go_round])
def test_keys_that_no_other_rank_sees_are_told(attend: Callable[..., Tensor]) -> None:
    ranks = InProcessWorld(RANKS).run(judged, attend)
    assert not torch.allclose(torch.cat([made for made, _, _ in ranks]), ATTENTION)
    assert [codes for _, codes, _ in ranks] == [["SW401"]] * RANKS
