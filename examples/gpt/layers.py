"""What are the layers of a GPT, with their weights split over the mesh axis ``tp``?

Suffixes name dims: B batch, T sequence, D model width, H query heads, K key/value heads, A width of one head,
F feed-forward width, V vocabulary, N tokens (B x T). H, K, F and V are this tp rank's share, B this dp rank's;
between blocks T is this tp rank's share if sequence parallelism is on. Weights are [out, in].
"""

import torch
import torch.nn.functional as F
from parallel import Init, Parallel
from torch import Tensor, nn

import shardwise as spmd
from shardwise import I, P, R, S, Scalar, V


class RMSNorm(nn.Module):
    def __init__(self, width: int, init: Init, parallel: Parallel) -> None:
        super().__init__()
        self.parallel = parallel
        self.weight = init.constant(1.0, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        weight_D = self.parallel.at_use(self.weight)
        return F.rms_norm(x_BTD, weight_D.shape, weight_D, eps=1e-5)


class Embedding(nn.Module):
    """A table whose rows, one per word, are split over tp."""

    def __init__(self, vocab: int, width: int, init: Init, parallel: Parallel) -> None:
        super().__init__()
        self.parallel = parallel
        self.weight = init.normal(vocab, width, shard_dim=0)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return self.parallel.leave(vocab_parallel_embedding(tokens_BT, self.weight, self.parallel))


class Attention(nn.Module):
    """Causal self-attention with rotary positions and grouped key/value heads; heads are split over tp."""

    def __init__(self, width: int, heads: int, kv_heads: int, init: Init, parallel: Parallel) -> None:
        super().__init__()
        self.parallel = parallel
        self.head_width = width // heads
        self.query = init.normal(heads * self.head_width, width, shard_dim=0)
        self.key = init.normal(kv_heads * self.head_width, width, shard_dim=0)
        self.value = init.normal(kv_heads * self.head_width, width, shard_dim=0)
        self.out = init.normal(width, heads * self.head_width, shard_dim=1)
        self.out_bias = init.constant(0.0, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        h_BTD = self.parallel.enter(x_BTD)
        rope = rope_table(h_BTD.shape[1], self.head_width, like=h_BTD)
        q_BHTA = rotate(self._split_heads(F.linear(h_BTD, self.query)), rope)
        k_BKTA = rotate(self._split_heads(F.linear(h_BTD, self.key)), rope)
        v_BKTA = self._split_heads(F.linear(h_BTD, self.value))
        o_BHTA = F.scaled_dot_product_attention(q_BHTA, k_BKTA, v_BKTA, is_causal=True, enable_gqa=True)
        y_BTD = spmd.linear(o_BHTA.transpose(1, 2).flatten(2), self.out, out_partial_axes="tp")
        return self.parallel.leave(y_BTD) + self.parallel.at_use(self.out_bias)

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)


class GatedMLP(nn.Module):
    def __init__(self, width: int, hidden: int, init: Init, parallel: Parallel, dropout: float) -> None:
        super().__init__()
        self.parallel = parallel
        self.dropout = dropout
        self.gate = init.normal(hidden, width, shard_dim=0)
        self.up = init.normal(hidden, width, shard_dim=0)
        self.down = init.normal(width, hidden, shard_dim=1)

    def forward(self, x_BTD: Tensor) -> Tensor:
        h_BTD = self.parallel.enter(x_BTD)
        h_BTF = F.silu(F.linear(h_BTD, self.gate)) * F.linear(h_BTD, self.up)
        h_BTF = F.dropout(h_BTF, self.dropout)  # each tp rank drops among its own features
        y_BTD = spmd.linear(h_BTF, self.down, out_partial_axes="tp")
        return self.parallel.leave(y_BTD)


class Head(nn.Module):
    """Logits of this tp rank's share of the vocabulary, V@tp."""

    def __init__(self, vocab: int, width: int, init: Init, parallel: Parallel) -> None:
        super().__init__()
        self.parallel = parallel
        self.weight = init.normal(vocab, width, shard_dim=0)

    def forward(self, x_BTD: Tensor) -> Tensor:
        h_BTD = self.parallel.enter(x_BTD)
        return F.linear(h_BTD, self.weight).flatten(0, 1)


def vocab_parallel_cross_entropy(logits_NV: Tensor, targets_N: Tensor, parallel: Parallel) -> Tensor:
    """Each token's loss, I@tp, from logits whose vocabulary is split over tp; nobody holds all logits of a token."""
    shifted_NV = logits_NV - largest(logits_NV.detach())
    rank_sum_N = spmd.sum(shifted_NV.exp(), -1, out_partial_axes="tp")
    sum_N = spmd.all_reduce(rank_sum_N, "tp", src=P, dst=I)
    rank_target_N = vocab_parallel_gather(shifted_NV, targets_N, parallel)
    target_N = spmd.all_reduce(rank_target_N, "tp", src=P, dst=I)
    return sum_N.log() - target_N


# A row or a logit that a rank has, a maximum of some: these mean something on that rank only, and to global types they
# are local regions. The types at the edge say what comes of them.


@spmd.local_map(in_types=({"dp": S(0), "tp": R}, {"dp": R, "tp": S(0)}, None), out_types={"dp": S(0), "tp": P})
def vocab_parallel_embedding(tokens_BT: Tensor, weight_VD: Tensor, parallel: Parallel) -> Tensor:
    """Each token's row if this tp rank has it, zeros if not; the sum over tp has all rows."""
    local_BT, elsewhere_BT = local_vocab(tokens_BT, weight_VD.shape[0], parallel)
    x_BTD = F.embedding(local_BT, weight_VD).masked_fill(elsewhere_BT[..., None], 0.0)
    return spmd.reinterpret(x_BTD, "tp", src=V, dst=P)


@spmd.local_map(in_types=({"dp": S(0), "tp": S(1)}, {"dp": S(0), "tp": R}, None), out_types={"dp": S(0), "tp": P})
def vocab_parallel_gather(logits_NV: Tensor, targets_N: Tensor, parallel: Parallel) -> Tensor:
    """Each target's logit if this tp rank has it, zero if not; the sum over tp has all of them."""
    local_N, elsewhere_N = local_vocab(targets_N, logits_NV.shape[-1], parallel)
    target_N = logits_NV.gather(-1, local_N[:, None]).squeeze(-1).masked_fill(elsewhere_N, 0.0)
    return spmd.reinterpret(target_N, "tp", src=V, dst=P)


@spmd.local_map(in_types=({"dp": S(0), "tp": S(1)},), out_types={"dp": S(0), "tp": R})
def largest(logits_NV: Tensor) -> Tensor:
    """Each token's largest logit in the whole vocabulary, [N, 1]."""
    rank_max_N1 = logits_NV.amax(-1, keepdim=True)
    return spmd.all_gather(rank_max_N1, "tp", src=V, dst=R).amax(0)


def local_vocab(ids: Tensor, share: int, parallel: Parallel) -> tuple[Tensor, Tensor]:
    """Ids relative to this tp rank's share of the vocabulary, and a mask of those that lie elsewhere (V@tp both)."""
    start = Scalar(parallel.rank("tp") * share, {"dp": R, "tp": V})
    local = ids - start
    elsewhere = (local < 0) | (local >= share)
    return local.masked_fill(elsewhere, 0), elsewhere


def rope_table(length: int, head_width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of position x frequency, [T, A/2]."""
    frequency = 10_000.0 ** (-torch.arange(0, head_width, 2, device=like.device, dtype=like.dtype) / head_width)
    angle = torch.outer(torch.arange(length, device=like.device, dtype=like.dtype), frequency)
    return angle.cos(), angle.sin()


def rotate(x_BHTA: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    cos_TA, sin_TA = rope
    first, second = x_BHTA.chunk(2, -1)
    return torch.cat([first * cos_TA - second * sin_TA, first * sin_TA + second * cos_TA], -1)
