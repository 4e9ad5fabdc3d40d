"""DeepSeek-V3's mesh (DeepSeek-AI, 2024): pipeline and data parallelism, and experts over ranks of several replicas.

Mesh:    pp outside, dp inside, and no tp. Experts see the same ranks otherwise: dp is folded into edp, ep, so that
         ranks that train on other tokens share one set of experts, and gradients of experts are summed over edp alone.
         ep innermost: two all-to-alls a layer want the fastest links.
Choose:  for a mixture of many small experts with latent attention: layers are thin, so tp would pay for little, and
         nearly all weights are experts'.
Breaks:  gradients of experts that are summed over dp, which has other experts on it; groups of ep that are not ranks of
         one stage; the shared expert sent around like the others; shares of the chosen experts that do not sum to 1.
Memory:  LAYERS / pp * (DENSE + EXPERTS / ep * 3 * D * H)
Activations: min(pp, MICRO) * (LAYERS / pp * (B / dp * T * KEPT + HEADS * A * D) - B / dp * T)
Traffic: ep = LAYERS / pp * MICRO * 4 * all_to_all(EXPERTS * B / dp * T * D)
         edp = all_reduce(LAYERS / pp * EXPERTS / ep * 3 * D * H)
         pp = recv(MICRO * B / dp * T * D)
         dp = all_reduce(LAYERS / pp * DENSE)
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import S
from shardwise.zoo.program import Sizes, Tensors, ZooProgram, layers_of, main
from shardwise.zoo.programs.pipeline import Stage, one_forward_one_backward, order

B, T, D, LAYERS, MICRO = 4, 3, 8, 2, 2
HEADS, A, LATENT = 2, 4, 4
EXPERTS, CHOSEN, H, EP = 4, 2, 6, 2
ROUTED = 2 * EXPERTS + 2 * CHOSEN + 1 + (EXPERTS * CHOSEN + EXPERTS) / 8
"""What the router keeps of a token; two masks are an eighth of an element each."""
KEPT = 6 * D + HEADS * (5 * A + 1) + LATENT + 4 * H + ROUTED + 2 + EXPERTS * (2 * D + 4 * H)
"""What a layer keeps of a token for backward: around norms, of attention, of the shared expert, the router, experts."""
DENSE = 2 * D + HEADS * D * A * 2 + D * LATENT + 2 * HEADS * LATENT * A + EXPERTS * D + 3 * D * H


def attended(x: Tensor, w: Tensors) -> Tensor:
    """Latent attention: what would be kept of a token for later ones is its latent, and not keys and values."""
    h = F.rms_norm(x, (D,), w.norm)
    query = torch.einsum("btd,had->bhta", h, w.query)
    key, value = torch.einsum("btl,khal->kbhta", h @ w.latent.mT, w.key_value).unbind(0)
    seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return x + torch.einsum("bhta,had->btd", seen, w.out)


def shares(h: Tensor, router: Tensor, number: Tensor) -> Tensor:
    """The share of every expert in every token: 0 for experts that are not chosen, and 1 together."""
    best, expert = (h @ router.mT).sigmoid().topk(CHOSEN, -1)
    chosen = number[:, None, None, None] == expert[None]
    return (chosen * (best / best.sum(-1, keepdim=True))).sum(-1)


def shared_expert(h: Tensor, w: Tensors) -> Tensor:
    gate, up = torch.einsum("btd,khd->kbth", h, w.shared_inner).unbind(0)
    return (F.silu(gate) * up) @ w.shared_outer


def experts(h: Tensor, inner: Tensor, outer: Tensor) -> Tensor:
    """Every expert of its own tokens."""
    gate, up = torch.einsum("ebtd,ekhd->kebth", h, inner).unbind(0)
    return torch.einsum("ebth,ehd->ebtd", F.silu(gate) * up, outer)


def error(y: Tensor, targets: Tensor) -> Tensor:
    return (y - targets).square().sum() / (MICRO * B * T)


def single(w: Tensors, x: Tensors) -> Tensor:
    loss = torch.zeros((), dtype=torch.float64)
    for y, targets in zip(x.tokens, x.targets, strict=True):
        for layer in layers_of(w):
            y = attended(y, layer)
            h = F.rms_norm(y, (D,), layer.mixture_norm)
            done = experts(h.expand(EXPERTS, -1, -1, -1), layer.inner, layer.outer)
            y = y + shared_expert(h, layer) + (shares(h, layer.router, x.number)[..., None] * done).sum(0)
        loss = loss + error(y, targets)
    return loss


def dispatched(h: Tensor, w: Tensors, number: Tensor, folded: DeviceMesh, dim: int) -> Tensor:
    """What the chosen experts make of ``h``, whose ``dim`` is cut over the ranks that share a set of experts."""
    share = shares(h, w.router, number)[..., None]
    # Every token has a slot at every expert, which is empty but at those that it has chosen: none is ever dropped.
    sent = (share != 0) * h[None]
    with spmd.set_current_mesh(folded, local_axes=["pp"]):
        here = spmd.all_to_all(sent, "ep", src=S(dim + 1), dst=S(0))
        done = experts(here, w.inner, w.outer)
        back = spmd.all_to_all(done, "ep", src=S(0), dst=S(dim + 1))
    return (share * back).sum(0)


def stage_layers(w: Tensors, number: Tensor, folded: DeviceMesh, x: Tensor) -> Tensor:
    for layer in layers_of(w):
        x = attended(x, layer)
        h = F.rms_norm(x, (D,), layer.mixture_norm)
        x = x + shared_expert(h, layer) + dispatched(h, layer, number, folded, 0)
    return x


def stage_error(y: Tensor, targets: Tensor) -> Tensor:
    return spmd.mean((y - targets).square().sum(-1), (0, 1), out_partial_axes="dp") / MICRO


def step(w: Tensors, x: Tensors, mesh: DeviceMesh, folded: DeviceMesh) -> Tensor:
    stage = Stage(
        partial(stage_layers, w, x.number, folded),
        stage_error,
        mesh,
        between="f64[4@dp, 3, 8] {pp: V}",
        loss_type="f64[] {pp: V, dp: P}",
    )
    return one_forward_one_backward(stage, x.tokens.unbind(0), x.targets.unbind(0))


def folded(sizes: Sizes) -> Sizes:
    """The mesh as the experts see it: ep ranks side by side, as far as there are so many."""
    ep = math.gcd(EP, sizes["dp"])
    return {"pp": sizes["pp"], "edp": sizes["dp"] // ep, "ep": ep}


PROGRAM = ZooProgram(
    mesh={"pp": 2, "dp": 4},
    shared=["pp", "dp"],
    weights={
        "norm": "f64[2@pp, 8] {dp: R}",
        "query": "f64[2@pp, 2, 4, 8] {dp: R}",
        "latent": "f64[2@pp, 4, 8] {dp: R}",
        "key_value": "f64[2@pp, 2, 2, 4, 4] {dp: R}",
        "out": "f64[2@pp, 2, 4, 8] {dp: R}",
        "mixture_norm": "f64[2@pp, 8] {dp: R}",
        "router": "f64[2@pp, 4, 8] {dp: R}",
        "shared_inner": "f64[2@pp, 2, 6, 8] {dp: R}",
        "shared_outer": "f64[2@pp, 6, 8] {dp: R}",
        "inner": "f64[2@pp, 4@ep, 2, 6, 8] {edp: R}",
        "outer": "f64[2@pp, 4@ep, 6, 8] {edp: R}",
    },
    inputs={
        "tokens": "f64[2, 4@dp, 3, 8] {pp: R}",
        "targets": "f64[2, 4@dp, 3, 8] {pp: R}",
        "number": "i64[4] {pp: R, dp: R}",
    },
    constants={"number": lambda: torch.arange(EXPERTS)},
    single=single,
    step=step,
    order=partial(order, micros=MICRO),
    folded=folded,
)

if __name__ == "__main__":
    main(PROGRAM)
