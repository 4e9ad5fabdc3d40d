"""Evaluation: counts and confusion matrices summed over ranks, ragged predictions gathered, meters, f-strings."""

import math
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))


class Meter:
    def __init__(self):
        self.total, self.count = torch.zeros(()), 0

    def update(self, value, n=1):
        self.total += value.detach() * n
        self.count += n

    def mean(self):
        return (spmd.all_reduce(self.total, "dp", src=V, dst=R) / (self.count * dist.get_world_size())).item()


@torch.no_grad()
def evaluate(model, batches):
    meter, confusion, scores = Meter(), torch.zeros(3, 3, dtype=torch.long), []
    start = time.perf_counter()
    for x, y in batches:
        logits = model(x)
        meter.update(nn.functional.cross_entropy(logits, y), len(y))
        predicted = logits.argmax(-1)
        confusion += torch.bincount(y * 3 + predicted, minlength=9).view(3, 3)
        scores.append(logits.softmax(-1)[torch.arange(len(y)), y])
    confusion = spmd.all_reduce(spmd.reinterpret(confusion, "dp", src=V, dst=P), "dp", src=P, dst=R)
    everything = spmd.all_gather(torch.cat(scores), "dp", src=S(0), dst=R)
    recall = confusion.diag() / confusion.sum(1).clamp(min=1)
    perplexity = math.exp(min(meter.mean(), 20.0))
    print(f"perplexity {perplexity:.2f}, recall {[f'{value:.2f}' for value in recall.tolist()]}")
    print(f"median {everything.median():.3f}, quartile {everything.quantile(0.25).item():.3f}", everything.std())
    print(f"{len(batches) / (time.perf_counter() - start):.0f} batches/s; last local score {scores[-1][0].item():.3f}")
    return int(confusion.trace()), everything.cpu().numpy().round(2)


with spmd.set_current_mesh(mesh):
    model = nn.Linear(4, 3)
    spmd.assert_type(list(model.parameters()), {"dp": R})
    batches = [spmd.assert_type((torch.randn(5, 4), torch.randint(3, (5,))), {"dp": S(0)}) for _ in range(3)]
    evaluate(model, batches)
