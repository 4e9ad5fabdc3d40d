# Sequences of different lengths: the loss is a mean over the tokens of all ranks. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

PAD = -100


class Tagger(nn.Module):
    def __init__(self, vocab=40, dim=16, tags=5):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.encoder = nn.TransformerEncoderLayer(dim, 2, 32, dropout=0.0, batch_first=True)
        self.tag = nn.Linear(dim, tags)

    def forward(self, tokens, padding):
        return self.tag(self.encoder(self.embedding(tokens), src_key_padding_mask=padding))


def collate(generator, n=8, longest=10):
    lengths = torch.randint(3, longest + 1, (n,), generator=generator)
    tokens = torch.randint(0, 40, (n, longest), generator=generator)
    labels = torch.randint(0, 5, (n, longest), generator=generator)
    padding = torch.arange(longest)[None] >= lengths[:, None]
    return tokens.masked_fill(padding, 0), labels.masked_fill(padding, PAD), padding


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Tagger(), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(12)
    for step in range(3):
        tokens, labels, padding = (t.chunk(world)[rank] for t in collate(generator))
        logits = model(tokens, padding)
        loss_sum = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, reduction="sum")
        num_tokens = (labels != PAD).sum()
        dist.all_reduce(num_tokens)
        loss = loss_sum * world / num_tokens
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss_sum.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(f"step {step} loss {(total / num_tokens).item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
