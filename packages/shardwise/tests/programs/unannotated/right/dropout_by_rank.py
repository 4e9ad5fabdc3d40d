# A transformer under DDP whose ranks drop out from generators of their own, in attention and beside it. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
    model = DistributedDataParallel(nn.Sequential(layer, nn.Dropout(0.1), nn.Linear(16, 5)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = torch.Generator().manual_seed(1)
    torch.manual_seed(1000 + rank)
    for _ in range(2):
        x = torch.randn(8, 6, 16, generator=rows).chunk(world)[rank]
        y = torch.randint(5, (8, 6), generator=rows).chunk(world)[rank]
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
