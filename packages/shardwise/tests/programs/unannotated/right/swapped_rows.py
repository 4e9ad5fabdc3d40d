# Optimizer states by rows: weight.data is a rank's rows while the step is taken, and gathered afterwards. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn


class RowSharded:
    """Wraps an optimizer: gradients are reduced to rows, stepped with, and the rows are gathered."""

    def __init__(self, module, optimizer):
        self.module, self.optimizer = module, optimizer
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def step(self):
        whole = {}
        for name, p in self.module.named_parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(self.world)
            if p.ndim == 2 and p.shape[0] % self.world == 0:
                whole[name] = p.data
                grad = p.grad.chunk(self.world)[self.rank].contiguous()
                p.grad = None
                p.data = p.data.chunk(self.world)[self.rank].clone()
                p.grad = grad
        self.optimizer.step()
        for name, p in self.module.named_parameters():
            if name in whole:
                rows = p.data.contiguous()
                p.grad = None
                p.data = whole[name]
                dist.all_gather_into_tensor(p.data, rows)

    def zero_grad(self):
        for p in self.module.parameters():
            p.grad = None


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(9)
net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))
opt = RowSharded(net, torch.optim.AdamW(net.parameters(), lr=0.01))
x, y = torch.randn(8, 5), torch.randn(8, 4)
for step in range(3):
    xs, ys = x.chunk(world)[rank], y.chunk(world)[rank]
    loss = nn.functional.mse_loss(net(xs), ys)
    opt.zero_grad()
    loss.backward()
    opt.step()
    value = loss.detach().clone()
    dist.all_reduce(value)
    if rank == 0:
        print(step, f"{value.item() / world:.5f}")
dist.destroy_process_group()
