"""The tensor-parallel layers of fairscale, as LLaMA was released with them, beside data parallelism."""

import argparse

import torch
import torch.distributed as dist
from fairscale.nn.model_parallel import initialize
from fairscale.nn.model_parallel.layers import ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding
from torch import nn
from torch.nn.parallel import DistributedDataParallel

options = argparse.ArgumentParser()
options.add_argument("--tp", type=int, default=1)
asked = options.parse_args()


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.w1 = ColumnParallelLinear(width, 2 * width, bias=False, gather_output=False)
        self.w3 = ColumnParallelLinear(width, 2 * width, bias=False, gather_output=False)
        self.w2 = RowParallelLinear(2 * width, width, bias=False, input_is_parallel=True)

    def forward(self, x):
        normed = self.norm(x)
        return x + self.w2(nn.functional.silu(self.w1(normed)) * self.w3(normed))


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embedding = VocabParallelEmbedding(64, width)
        self.layers = nn.ModuleList([FeedForward(width) for _ in range(2)])
        self.out = ColumnParallelLinear(width, 64, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


dist.init_process_group("gloo")
initialize.initialize_model_parallel(asked.tp)
torch.manual_seed(0)
model = DistributedDataParallel(Model(16), process_group=initialize.get_data_parallel_group())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
size, rank = initialize.get_data_parallel_world_size(), initialize.get_data_parallel_rank()
tokens = torch.randint(0, 64, (2, 8, 17), generator=torch.Generator().manual_seed(1))
for step in range(2):
    local = tokens[step].chunk(size)[rank]
    logits = model(local[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), local[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, loss.item())
