# Top-1 experts with a capacity over the whole batch: a queue counts the tokens of lower ranks. mesh: ep=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

E, D, CAP = 4, 6, 5


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        dist.all_to_all_single(y, x.contiguous())
        return y

    @staticmethod
    def backward(ctx, g):
        return AllToAll.apply(g)


class SwitchLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.world, self.rank = dist.get_world_size(), dist.get_rank()
        self.router = nn.Linear(D, E, bias=False)
        n = E // self.world
        up, down = torch.randn(E, D, 2 * D) * 0.3, torch.randn(E, 2 * D, D) * 0.3
        self.up = nn.Parameter(up[self.rank * n : (self.rank + 1) * n].clone())
        self.down = nn.Parameter(down[self.rank * n : (self.rank + 1) * n].clone())
        self.up.expert = self.down.expert = True

    def forward(self, x):
        prob = self.router(x).softmax(-1)
        gate, expert = prob.max(-1)
        onehot = F.one_hot(expert, E)
        counts = [torch.empty(E, dtype=torch.long) for _ in range(self.world)]
        dist.all_gather(counts, onehot.sum(0))
        before = sum(counts[: self.rank], torch.zeros(E, dtype=torch.long))
        place = (onehot.cumsum(0) - 1 + before)[torch.arange(len(x)), expert]
        keep = place < CAP
        slots = x.new_zeros(E, CAP, D)
        slots = slots.index_put((expert[keep], place[keep]), x[keep])
        sent = AllToAll.apply(slots)
        mine = sent.view(self.world, E // self.world, CAP, D).transpose(0, 1).flatten(1, 2)
        out = torch.bmm(F.relu(torch.bmm(mine, self.up)), self.down)
        back = out.view(E // self.world, self.world, CAP, D).transpose(0, 1).contiguous().view(E, CAP, D)
        back = AllToAll.apply(back)
        y = torch.zeros_like(x)
        y = y.index_put((keep.nonzero().squeeze(1),), back[expert[keep], place[keep]])
        total = sum(counts).float() / sum(counts).sum()
        importance = prob.mean(0)
        aux = E * (importance * total).sum()
        return x + gate.unsqueeze(1) * y, aux


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.moe, self.out = nn.Linear(D, D), SwitchLayer(), nn.Linear(D, 3)

    def forward(self, x):
        h, aux = self.moe(torch.tanh(self.inp(x)))
        return self.out(h), aux


def reduce_gradients(model, world):
    for p in model.parameters():
        if not getattr(p, "expert", False):
            dist.all_reduce(p.grad)
        p.grad /= world


dist.init_process_group("gloo")
torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.3)
g = torch.Generator().manual_seed(1)
world, rank = dist.get_world_size(), dist.get_rank()
for _step in range(4):
    x, y = torch.randn(16, D, generator=g), torch.randint(0, 3, (16,), generator=g)
    x, y = x.chunk(world)[rank], y.chunk(world)[rank]
    logits, aux = net(x)
    loss = F.cross_entropy(logits, y) + 0.01 * aux
    opt.zero_grad()
    loss.backward()
    reduce_gradients(net, world)
    opt.step()
value = loss.detach().clone()
dist.all_reduce(value)
if rank == 0:
    print("RESULT", value.item() / world, net.moe.router.weight.detach().abs().sum().item())
dist.destroy_process_group()
