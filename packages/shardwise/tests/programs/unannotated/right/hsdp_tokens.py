# HSDP: the loss is a mean over the tokens of all ranks and micro-batches, gradients are sums. mesh: replicate=2,shard=2
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

IGNORED = -100


def get_batch(step, generator):
    ids = torch.randint(0, 20, (16, 6), generator=generator)
    lengths = torch.randint(2, 7, (16,), generator=generator)
    labels = ids.roll(-1, 1).masked_fill(torch.arange(6) >= lengths[:, None], IGNORED)
    return ids, labels


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 12)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(12, 2, 24, dropout=0.0, batch_first=True) for _ in range(2)]
        )
        self.out = nn.Linear(12, 20)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def main(cfg):
    dist.init_process_group(backend="gloo")
    world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    replicate = 2 if world >= 4 else 1
    mesh = init_device_mesh("cpu", (replicate, world // replicate), mesh_dim_names=("replicate", "shard"))
    torch.manual_seed(cfg.seed)
    model = Tagger()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard([model.embed, model.out], mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if hasattr(module, "set_gradient_divide_factor"):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)
    generator = torch.Generator().manual_seed(cfg.seed + 1)
    for step in range(cfg.steps):
        ids, labels = get_batch(step, generator)
        ids, labels = ids.tensor_split(world)[rank], labels.tensor_split(world)[rank]
        tokens = (labels != IGNORED).sum()
        dist.all_reduce(tokens)
        shown = 0.0
        for micro in range(cfg.micro):
            last = micro == cfg.micro - 1
            model.set_is_last_backward(last)
            model.set_requires_gradient_sync(last)
            at = slice(micro * len(ids) // cfg.micro, (micro + 1) * len(ids) // cfg.micro)
            logits = model(ids[at])
            loss = (
                nn.functional.cross_entropy(
                    logits.flatten(0, 1), labels[at].flatten(), ignore_index=IGNORED, reduction="sum"
                )
                / tokens
            )
            loss.backward()
            shown += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(shown)
        if rank == 0:
            print(f"{step=} loss={shown.item():.4f} tokens={tokens.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--micro", type=int, default=2)
    p.add_argument("--seed", type=int, default=5)
    main(p.parse_args())
