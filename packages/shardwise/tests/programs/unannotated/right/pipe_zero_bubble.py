# A transformer split by stage numbers and run by a zero-bubble schedule. mesh: pp=2
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleavedZeroBubble


class Model(nn.Module):
    def __init__(self, vocab, dim, n_layers):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleDict(
            {str(i): nn.TransformerEncoderLayer(dim, 2, 2 * dim, 0.0, batch_first=True) for i in range(n_layers)}
        )
        self.norm = nn.LayerNorm(dim)
        self.output = nn.Linear(dim, vocab)

    def forward(self, x):
        h = self.tok_embeddings(x) if self.tok_embeddings is not None else x
        for layer in self.layers.values():
            h = layer(h)
        h = self.norm(h) if self.norm is not None else h
        return self.output(h) if self.output is not None else h


def part(index, count, args):
    torch.manual_seed(args.seed)
    model = Model(args.vocab, args.dim, args.layers)
    per = args.layers // count
    for i in range(args.layers):
        if not index * per <= i < (index + 1) * per:
            del model.layers[str(i)]
    if index > 0:
        model.tok_embeddings = None
    if index < count - 1:
        model.norm = None
        model.output = None
    return model


def loss_fn(logits, labels):
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=16)
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    count = args.layers
    parts = [(i, part(i, count, args)) for i in range(count) if i % world == rank]
    stages = [PipelineStage(m, i, count, torch.device("cpu")) for i, m in parts]
    schedule = ScheduleInterleavedZeroBubble(stages, n_microbatches=4, loss_fn=loss_fn)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for _, m in parts]
    data = torch.randint(0, args.vocab, (2, 8, 6), generator=torch.Generator().manual_seed(1))
    for batch in data:
        for optimizer in optimizers:
            optimizer.zero_grad()
        inputs, labels = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
        losses = []
        if world == 1:
            schedule.step(inputs, target=labels, losses=losses)
        elif rank == 0:
            schedule.step(inputs)
        elif rank == world - 1:
            schedule.step(target=labels, losses=losses)
        else:
            schedule.step()
        for optimizer in optimizers:
            optimizer.step()
        if losses:
            print("loss", torch.stack(losses).mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
