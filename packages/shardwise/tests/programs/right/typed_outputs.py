"""Outputs in dataclasses, named tuples, dicts and ModelOutput-like containers; buffers, out=, in-place arithmetic."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))


class Batch(NamedTuple):
    tokens: Tensor
    mask: Tensor


@dataclass
class Output:
    logits: Tensor
    hidden: dict
    loss: Tensor | None = None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("causal", torch.tril(torch.ones(8, 8, dtype=torch.bool)))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("scratch", torch.empty(2, 8, 16), persistent=False)
        spmd.assert_type(self.embedding.weight, {"dp": R, "tp": I})

    def forward(self, batch):
        self.calls += 1
        x = self.embedding(batch.tokens)
        torch.mul(x.detach(), 2, out=self.scratch)
        scores = x @ x.mT / 4
        scores = scores.masked_fill(~self.causal, -torch.inf)
        scores = scores.masked_fill(~batch.mask[:, None, :] & self.causal.logical_not(), -1e9)
        h = scores.softmax(-1) @ x
        h += x
        h *= batch.mask[..., None]
        h[:, 0] *= 0.5
        values, indices = h.max(-1)
        q, r = torch.linalg.qr(h[0].detach())
        hidden = {"h": h, "parts": [values, (indices, q @ r)], "sorted": torch.sort(h, -1).values}
        return Output(self.head(h), hidden)


with spmd.set_current_mesh(mesh):
    model = Model()
    tokens = torch.randint(32, (2, 8))
    batch = Batch(tokens, tokens != 0)
    batch = Batch(*spmd.assert_type(list(batch), {"dp": S(0), "tp": I}))
    output = model(batch)
    output.loss = spmd.reinterpret(output.logits.logsumexp(-1).mean(), "dp", src=V, dst=P)
    output.loss.backward()
    print(model.calls.item(), {name: type(value).__name__ for name, value in output.hidden.items()})
    print(output.hidden["parts"][0])
