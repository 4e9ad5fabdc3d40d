# Adam by hand on a list of tensors, its moments sharded over flat slices. mesh: dp=2
import torch
import torch.distributed as dist

BETA1, BETA2, EPS, LR = 0.9, 0.95, 1e-8, 3e-3


def predict(weights, x):
    for w, b in zip(weights[:-2:2], weights[1:-2:2]):
        x = torch.nn.functional.gelu(x @ w + b)
    return x @ weights[-2] + weights[-1]


class ShardedAdam:
    """Every rank keeps the moments of its own slice of the flat parameter vector."""

    def __init__(self, weights):
        self.weights = weights
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        total = sum(w.numel() for w in weights)
        self.padded = (total + self.world - 1) // self.world * self.world
        self.size = self.padded // self.world
        self.m = torch.zeros(self.size)
        self.v = torch.zeros(self.size)
        self.t = 0

    def step(self, grads):
        flat = torch.cat([g.reshape(-1) for g in grads])
        flat = torch.nn.functional.pad(flat, (0, self.padded - flat.numel()))
        own = torch.empty(self.size)
        dist.reduce_scatter(own, list(flat.chunk(self.world)), op=dist.ReduceOp.SUM)
        own /= self.world
        norm = own.square().sum()
        dist.all_reduce(norm)
        own *= (1.0 / (norm.sqrt() + 1e-6)).clamp(max=1.0)
        self.t += 1
        self.m = BETA1 * self.m + (1 - BETA1) * own
        self.v = BETA2 * self.v + (1 - BETA2) * own * own
        mhat = self.m / (1 - BETA1**self.t)
        vhat = self.v / (1 - BETA2**self.t)
        delta = -LR * mhat / (vhat.sqrt() + EPS)
        pieces = [torch.empty_like(delta) for _ in range(self.world)]
        dist.all_gather(pieces, delta)
        full = torch.cat(pieces)
        at = 0
        for w in self.weights:
            w.data.add_(full[at : at + w.numel()].view_as(w))
            at += w.numel()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    sizes = [(5, 12), (12, 9), (9, 3)]
    weights = []
    for a, b in sizes:
        weights += [(torch.randn(a, b) * 0.4).requires_grad_(), torch.zeros(b, requires_grad=True)]
    opt = ShardedAdam(weights)
    data, target = torch.randn(5, 8, 5), torch.randint(0, 3, (5, 8))
    for step in range(5):
        x, y = data[step].chunk(world)[rank], target[step].chunk(world)[rank]
        loss = torch.nn.functional.cross_entropy(predict(weights, x), y)
        grads = torch.autograd.grad(loss, weights)
        opt.step(grads)
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if rank == 0:
            print(f"{step}: {shown.item() / world:.6f}")
    dist.destroy_process_group()


main()
