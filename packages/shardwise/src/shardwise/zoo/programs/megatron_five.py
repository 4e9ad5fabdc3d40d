"""Megatron's five dimensions (Megatron-Core): data, pipeline, context, tensor and expert parallelism of one model.

Mesh:    ranks are counted in the order tp, cp, dp, pp, tp fastest: its gathers wait for nothing, the ring of cp goes
         between neighbours, and pp sends one activation a micro-batch. Experts have no heads and no whole sequences, so
         they see the same ranks otherwise: cp and tp are folded into ep, whose all-to-alls stay as near as they were.
Choose:  for a mixture of experts whose attention needs tp and cp: folded, neither multiplies the ranks that ep needs.
Breaks:  experts that are cut by tp as attention is, until they are too thin to compute; gradients of experts summed
         over cp and tp, where other experts lie; the router, which sees a piece of the sequence, and owes both sums.
Memory:  LAYERS / pp * (ATTENTION / tp + SMALL + EXPERTS / (cp * tp) * 3 * D * H)
Activations: min(pp, MICRO) * (LAYERS / pp * (B / dp * T / cp * (KEPT / tp + D + HEADS / tp * ((3 * cp +
             2) * A + 2 * T + 3 * cp - 1 + max(cp - 2, 0))) + T / cp * T / 8 + (tp < HEADS) * HEADS / tp * A * D) - B /
             dp * T / cp / tp)
Traffic: tp = LAYERS / pp * MICRO * 2 * (all_gather(B / dp * T / cp / tp * D) + reduce_scatter(B / dp * T / cp * D)) +
             all_reduce(LAYERS / pp * SMALL)
         cp = LAYERS / pp * MICRO * send(4 * B / dp * HEADS / tp * T / cp * A + T / cp) +
             all_reduce(LAYERS / pp * (ATTENTION / tp + SMALL))
         ep = LAYERS / pp * MICRO * 4 * all_to_all(EXPERTS * B / dp * T / ep * D)
         pp = recv(MICRO * B / dp * T / cp / tp * D)
         dp = all_reduce(LAYERS / pp * (ATTENTION / tp + SMALL + EXPERTS / ep * 3 * D * H))
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import P, R, S, V
from shardwise.zoo.program import Sizes, Tensors, ZooProgram, layers_of, main
from shardwise.zoo.programs.context_parallel import attention, positions
from shardwise.zoo.programs.deepseek_v3 import ROUTED, dispatched, experts, shares
from shardwise.zoo.programs.pipeline import Stage, one_forward_one_backward, order
from shardwise.zoo.programs.ring_attention import ring

B, T, D, LAYERS, MICRO = 4, 8, 8, 2, 2
HEADS, A, EXPERTS, H = 2, 4, 4, 6
ATTENTION, SMALL = 4 * D * HEADS * A, 2 * D + EXPERTS * D
KEPT = 5 * D + 2 + ROUTED + EXPERTS * (2 * D + 4 * H)
"""What a layer keeps of a token for backward beside attention: around norms, of the router, of the experts."""

ring_attention = spmd.local_map(out_types={"pp": V, "dp": S(0), "tp": S(1), "cp": S(2)})(ring)


def single(w: Tensors, x: Tensors) -> Tensor:
    loss = torch.zeros((), dtype=torch.float64)
    for y, targets in zip(x.tokens, x.targets, strict=True):
        for layer in layers_of(w):
            h = F.rms_norm(y, (D,), layer.norm)
            query, key, value = torch.einsum("btd,khad->kbhta", h, layer.query_key_value).unbind(0)
            seen = attention(query, key, value, x.position, x.position)
            y = y + torch.einsum("bhta,had->btd", seen, layer.out)
            h = F.rms_norm(y, (D,), layer.mixture_norm)
            done = experts(h.expand(EXPERTS, -1, -1, -1), layer.inner, layer.outer)
            y = y + (shares(h, layer.router, x.number)[..., None] * done).sum(0)
        loss = loss + (y - targets).square().sum() / (MICRO * B * T)
    return loss


def stage_layers(w: Tensors, inputs: Tensors, mesh: DeviceMesh, folded: DeviceMesh, x: Tensor) -> Tensor:
    """The layers of a stage; between them the sequence is cut over cp and tp, which for experts are ep."""
    for layer in layers_of(w):
        h = F.rms_norm(x, (D,), layer.norm)
        h = spmd.all_gather(h, "tp", src=S(1), dst=R)
        # Laid out once: the ring would copy queries of several heads anew for every piece that comes by.
        query, key, value = torch.einsum("btd,khad->kbhta", h, layer.query_key_value).contiguous().unbind(0)
        seen = ring_attention(query, key, value, inputs.position, mesh)
        y = spmd.einsum("bhta,had->btd", seen, layer.out, out_partial_axes="tp")
        x = x + spmd.reduce_scatter(y, "tp", src=P, dst=S(1))
        h = F.rms_norm(x, (D,), layer.mixture_norm)
        x = x + dispatched(h, layer, inputs.number, folded, 1)
    return x


def stage_error(y: Tensor, targets: Tensor) -> Tensor:
    losses = (y - targets).square().sum(-1)
    return spmd.mean(losses, (0, 1), out_partial_axes=("dp", "cp", "tp")) / MICRO


def step(w: Tensors, x: Tensors, mesh: DeviceMesh, folded: DeviceMesh) -> Tensor:
    stage = Stage(
        partial(stage_layers, w, x, mesh, folded),
        stage_error,
        mesh,
        between="f64[4@dp, 8@(cp,tp), 8] {pp: V}",
        loss_type="f64[] {pp: V, dp: P, cp: P, tp: P}",
    )
    return one_forward_one_backward(stage, x.tokens.unbind(0), x.targets.unbind(0))


def folded(sizes: Sizes) -> Sizes:
    """The mesh as the experts see it."""
    return {"pp": sizes["pp"], "dp": sizes["dp"], "ep": sizes["cp"] * sizes["tp"]}


PROGRAM = ZooProgram(
    mesh={"pp": 2, "dp": 2, "cp": 2, "tp": 2},
    shared=["pp", "dp", "cp", "tp"],
    weights={
        "norm": "f64[2@pp, 8] {dp: R, cp: R, tp: R}",
        "query_key_value": "f64[2@pp, 3, 2@tp, 4, 8] {dp: R, cp: R}",
        "out": "f64[2@pp, 2@tp, 4, 8] {dp: R, cp: R}",
        "mixture_norm": "f64[2@pp, 8] {dp: R, cp: R, tp: R}",
        "router": "f64[2@pp, 4, 8] {dp: R, cp: R, tp: R}",
        "inner": "f64[2@pp, 4@ep, 2, 6, 8] {dp: R}",
        "outer": "f64[2@pp, 4@ep, 6, 8] {dp: R}",
    },
    inputs={
        "tokens": "f64[2, 4@dp, 8@(cp,tp), 8] {pp: R}",
        "targets": "f64[2, 4@dp, 8@(cp,tp), 8] {pp: R}",
        "position": "i64[8@cp] {pp: R, dp: R, tp: R}",
        "number": "i64[4] {pp: R, dp: R, cp: R, tp: R}",
    },
    constants={"position": positions, "number": lambda: torch.arange(EXPERTS)},
    within={"half of the positions": "i64[4@cp]"},
    single=single,
    step=step,
    order=partial(order, micros=MICRO),
    folded=folded,
)

if __name__ == "__main__":
    main(PROGRAM)
