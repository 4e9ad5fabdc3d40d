"""The cost of checking a training step: forward, backward and optimizer of four small models, over the plain step.

The data are sharded by batch over dp, the weights replicate there and invariant over tp; gradients are summed over dp
between backward and the optimizer, outside of what is measured. Small widths on the CPU: overhead is what is seen.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from rows import Row
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from shardwise import I, P, R, S, V, assert_type, reinterpret, set_current_mesh
from shardwise.checker import typecheck
from shardwise.interop.torch_compat import fake_world

WIDTH, HEADS, TOKENS, CLASSES = 32, 4, 8, 16
GROUP = "A training step of a small model (AdamW with foreach)"
PHASES = ("forward", "backward", "optimizer")


def attention(x: Tensor, qkv: nn.Linear, out: nn.Linear) -> Tensor:
    q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in qkv(x).chunk(3, dim=-1))
    return out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A pre-norm transformer block, modulated by a condition if there is one (DiT), with experts if asked (MoE)."""

    def __init__(self, condition: bool = False, experts: int = 0) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.modulation = nn.Linear(WIDTH, 6 * WIDTH) if condition else None
        self.gate = nn.Linear(WIDTH, experts) if experts else None
        self.up = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in range(max(1, experts)))
        self.down = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(max(1, experts)))

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        if self.modulation is None or condition is None:
            x = x + attention(self.norms[0](x), self.qkv, self.out)
            return x + self.feed_forward(self.norms[1](x))
        parts = self.modulation(F.silu(condition)).unsqueeze(1).chunk(6, dim=-1)
        x = x + parts[0] * attention(self.norms[0](x) * (1 + parts[1]) + parts[2], self.qkv, self.out)
        return x + parts[3] * self.feed_forward(self.norms[1](x) * (1 + parts[4]) + parts[5])

    def feed_forward(self, x: Tensor) -> Tensor:
        made = [down(F.gelu(up(x))) for up, down in zip(self.up, self.down, strict=True)]
        if self.gate is None:
            return made[0]
        shares, chosen = torch.softmax(self.gate(x), dim=-1).topk(2, dim=-1)
        weights = torch.zeros_like(self.gate(x)).scatter(-1, chosen, shares)
        return (torch.stack(made, dim=-1) * weights.unsqueeze(-2)).sum(-1)


class Sequence(nn.Module):
    """Tokens to tokens, through two blocks."""

    def __init__(self, **kind: Any) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.blocks = nn.ModuleList(Block(**kind) for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        condition = x.mean(1)
        for block in self.blocks:
            x = F.dropout(block(x, condition), 0.0)
        return self.head(x).flatten(0, 1)


class Convolutions(nn.Module):
    """Tokens, read as an image, to one class for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES * TOKENS)
        self.convolutions = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.GroupNorm(2, 8) for _ in range(3))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens).unflatten(-1, (8, 4))
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.relu(norm(convolution(x.transpose(1, 2) if x.shape[1] != 8 else x)), inplace=True)
        x = F.adaptive_avg_pool2d(F.max_pool2d(x, 2), (2, 2))
        return self.head(x.flatten(1)).unflatten(-1, (TOKENS, CLASSES)).flatten(0, 1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "transformer": Sequence,
    "diffusion transformer": lambda: Sequence(condition=True),
    "mixture of experts": lambda: Sequence(experts=3),
    "convolutional network": Convolutions,
}


class Step:
    """One model under one mode; ``run`` makes a step and returns the milliseconds of CPU time of each phase."""

    def __init__(self, make: Callable[[], nn.Module], mesh: DeviceMesh, local: bool | None) -> None:
        torch.manual_seed(0)
        self.model, self.mesh, self.local = make(), mesh, local
        self.tokens, self.targets = torch.randint(0, CLASSES, (2, TOKENS)), torch.randint(0, CLASSES, (2 * TOKENS,))
        if local is not None:
            for parameter in self.model.parameters():
                assert_type(parameter, {"dp": R, "tp": I})
            for data in (self.tokens, self.targets):
                data.__dict__.clear()
                assert_type(data, {"dp": V if local else S(0), "tp": I})
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, foreach=True)

    def run(self) -> tuple[float, float, float]:
        checked = contextlib.nullcontext() if self.local is None else typecheck(local=self.local)
        with checked:
            started = time.process_time()
            loss = F.cross_entropy(self.model(self.tokens), self.targets, reduction="sum")
            if self.local:
                loss = reinterpret(loss, "dp", src=V, dst=P)
            forward = time.process_time()
            loss.backward()
            backward = time.process_time()
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad, group=self.mesh.get_group("dp"))
            summed = time.process_time()
            self.optimizer.step()
            self.optimizer.zero_grad()
            done = time.process_time()
        return (forward - started) * 1e3, (backward - forward) * 1e3, (done - summed) * 1e3


def measure(quick: bool = False) -> list[Row]:
    """Two rows for each phase of each model: local and global types."""
    repeats = 3 if quick else 40
    torch.set_num_threads(1)
    rows = []
    with fake_world(rank=0, world_size=4):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        with set_current_mesh(mesh):
            for name, make in MODELS.items():
                steps = [Step(make, mesh, local) for local in (None, True, False)]
                for step in steps * 3:
                    step.run()
                rounds = [[step.run() for step in steps] for _ in range(repeats)]
                for at, phase in enumerate(PHASES):
                    plain = [times[0][at] for times in rounds]
                    for mode, which in (("local", 1), ("global", 2)):
                        own = [times[which][at] for times in rounds]
                        ratio = statistics.median(a / b for a, b in zip(own, plain, strict=True))
                        medians = statistics.median(plain), statistics.median(own)
                        rows.append(Row(GROUP, f"{name}, {phase}", "ms", *medians, ratio, mode=mode))
    return rows
