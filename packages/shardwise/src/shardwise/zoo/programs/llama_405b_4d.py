"""Llama 3 405B's four dimensions (Llama Team, 2024): FSDP, pipeline, context and tensor parallelism of one model.

Mesh:    dp, pp, cp, tp from outside to inside, in order of what a layer can wait for: tp's gathers hide behind nothing
         and stay in a node; cp gathers a few keys and values a layer; a stage sends one activation a micro-batch; and
         dp gathers weights and scatters gradients once a step, which hides behind all of the step's work.
Choose:  for a dense model of hundreds of billions of weights on thousands of devices; cp only for long sequences, when
         a batch has fewer sequences than devices.
Breaks:  weights that are gathered again for every micro-batch; norms, which see a piece of the sequence over cp and tp
         and owe a sum over both; positions that are counted within a rank's own piece of the sequence.
Memory:  LAYERS / pp * (MATRICES / tp + 2 * D) / dp
Gradients: LAYERS / pp * (MATRICES / tp + 2 * D) * (1 + 1 / dp)
Activations: min(pp, MICRO) * (LAYERS / pp * (B / dp * T / cp * (KEPT / tp + 2 * D + HEADS / tp * (2 * cp
             * A + T)) + T / cp * T / 8 + HEADS / tp * A * D) - B / dp * T / cp / tp) + LAYERS / pp * (MATRICES / tp +
             2 * D) + T
Traffic: tp = LAYERS / pp * MICRO * 4 * (all_gather(B / dp * T / cp / tp * D) + reduce_scatter(B / dp * T / cp * D)) +
             all_reduce(LAYERS / pp * 2 * D / dp)
         cp = LAYERS / pp * MICRO * 2 * (all_gather(B / dp * GROUPS / tp * T / cp * A) +
             reduce_scatter(B / dp * GROUPS / tp * T * A)) + all_gather(T / cp) +
             all_reduce(LAYERS / pp * (MATRICES / tp + 2 * D) / dp)
         pp = recv(MICRO * B / dp * T / cp / tp * D)
         dp = all_gather(LAYERS / pp * (MATRICES / tp + 2 * D) / dp) +
             reduce_scatter(LAYERS / pp * (MATRICES / tp + 2 * D))
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import P, R, S
from shardwise.zoo.program import Tensors, ZooProgram, layers_of, main
from shardwise.zoo.programs.context_parallel import attention, positions
from shardwise.zoo.programs.pipeline import Stage, one_forward_one_backward, order

B, T, D, H, LAYERS, MICRO = 4, 8, 8, 16, 2, 2
GROUPS, QUERIES, A = 2, 2, 4
"""Of heads, that share keys and values; queries of a group; size of a head."""
HEADS = GROUPS * QUERIES
KEPT = 4 * D + 2 + 2 * HEADS * A + 4 * H
"""What a layer keeps of a token for backward on all ranks of tp together: norms, queries, what they see, the MLP."""
MATRICES = D * A * GROUPS * (2 * QUERIES + 2) + 3 * D * H


def single(w: Tensors, x: Tensors) -> Tensor:
    loss = torch.zeros((), dtype=torch.float64)
    for y, targets in zip(x.tokens, x.targets, strict=True):
        for layer in layers_of(w):
            h = F.rms_norm(y, (D,), layer.norm)
            query = torch.einsum("btd,gqad->bgqta", h, layer.query)
            key, value = torch.einsum("btd,kgad->kbgta", h, layer.key_value)[:, :, :, None].unbind(0)
            seen = attention(query, key, value, x.position, x.position)
            y = y + torch.einsum("bgqta,gqad->btd", seen, layer.out)
            h = F.rms_norm(y, (D,), layer.mlp_norm)
            h = F.silu(h @ layer.gate.mT) * (h @ layer.up.mT)
            y = y + h @ layer.down
        loss = loss + error(y, targets)
    return loss


def stage_layers(w: Tensors, own: Tensor, every: Tensor, x: Tensor) -> Tensor:
    """The layers of a stage; the sequence is cut over tp between the matmuls, and over cp everywhere."""
    for layer in layers_of(w):
        h = F.rms_norm(x, (D,), layer.norm)
        h = spmd.all_gather(h, "tp", src=S(1), dst=R)
        query = torch.einsum("btd,gqad->bgqta", h, layer.query)
        key_value = torch.einsum("btd,kgad->kbgta", h, layer.key_value)
        key, value = spmd.all_gather(key_value, "cp", src=S(3), dst=R)[:, :, :, None].unbind(0)
        seen = attention(query, key, value, own, every)
        y = spmd.einsum("bgqta,gqad->btd", seen, layer.out, out_partial_axes="tp")
        x = x + spmd.reduce_scatter(y, "tp", src=P, dst=S(1))
        h = F.rms_norm(x, (D,), layer.mlp_norm)
        h = spmd.all_gather(h, "tp", src=S(1), dst=R)
        h = F.silu(h @ layer.gate.mT) * (h @ layer.up.mT)
        y = spmd.matmul(h, layer.down, out_partial_axes="tp")
        x = x + spmd.reduce_scatter(y, "tp", src=P, dst=S(1))
    return x


def error(y: Tensor, targets: Tensor) -> Tensor:
    return (y - targets).square().sum() / (MICRO * B * T)


def stage_error(y: Tensor, targets: Tensor) -> Tensor:
    losses = (y - targets).square().sum(-1)
    return spmd.mean(losses, (0, 1), out_partial_axes=("dp", "cp", "tp")) / MICRO


def step(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    gathered = {name: spmd.all_gather(weight, "dp", src=S(-1), dst=R) for name, weight in vars(w).items()}
    whole = {name: weight.detach().requires_grad_() for name, weight in gathered.items()}
    every = spmd.all_gather(x.position, "cp", src=S(0), dst=R)
    stage = Stage(
        partial(stage_layers, Tensors(**whole), x.position, every),
        stage_error,
        mesh,
        between="f64[4@dp, 8@(cp,tp), 8] {pp: V}",
        loss_type="f64[] {dp: P, pp: V, cp: P, tp: P}",
    )
    loss = one_forward_one_backward(stage, x.tokens.unbind(0), x.targets.unbind(0))
    for name, weight in gathered.items():  # the gradients of all micro-batches are scattered together
        weight.backward(whole[name].grad)  # type: ignore[no-untyped-call]
    return loss


PROGRAM = ZooProgram(
    mesh={"dp": 2, "pp": 2, "cp": 2, "tp": 2},
    shared=["dp", "pp", "cp", "tp"],
    weights={
        "norm": "f64[2@pp, 8@dp] {cp: R, tp: R}",
        "query": "f64[2@pp, 2@tp, 2, 4, 8@dp] {cp: R}",
        "key_value": "f64[2@pp, 2, 2@tp, 4, 8@dp] {cp: R}",
        "out": "f64[2@pp, 2@tp, 2, 4, 8@dp] {cp: R}",
        "mlp_norm": "f64[2@pp, 8@dp] {cp: R, tp: R}",
        "gate": "f64[2@pp, 16@tp, 8@dp] {cp: R}",
        "up": "f64[2@pp, 16@tp, 8@dp] {cp: R}",
        "down": "f64[2@pp, 16@tp, 8@dp] {cp: R}",
    },
    inputs={
        "tokens": "f64[2, 4@dp, 8@(cp,tp), 8] {pp: R}",
        "targets": "f64[2, 4@dp, 8@(cp,tp), 8] {pp: R}",
        "position": "i64[8@cp] {dp: R, pp: R, tp: R}",
    },
    constants={"position": positions},
    within={"half of the positions": "i64[4@cp]"},
    single=single,
    step=step,
    order=partial(order, micros=MICRO),
)

if __name__ == "__main__":
    main(PROGRAM)
