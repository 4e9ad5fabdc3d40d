# Gradients averaged in hooks as backward goes, the optimizer's step in the hook too. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 20))
    optims = {p: torch.optim.Adam([p], lr=1e-2, foreach=False) for p in model.parameters()}

    def hook(p):
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad.div_(world)
        optims[p].step()
        optims[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    tokens = torch.randint(0, 20, (3, 4, 9))
    for batch in tokens:
        mine = batch.chunk(world)[rank]
        loss = F.cross_entropy(model(mine[:, :-1]).transpose(1, 2), mine[:, 1:])
        loss.backward()
    dist.destroy_process_group()


main()
