# Two-dimensional tensor parallelism (SUMMA): blocks are broadcast along rows and columns. mesh: row=2,col=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

ROW = COL = None
I = J = 0
N = 1


def setup():
    global ROW, COL, I, J, N
    world, rank = dist.get_world_size(), dist.get_rank()
    N = int(world**0.5)
    I, J = divmod(rank, N)
    for i in range(N):
        group = dist.new_group([i * N + j for j in range(N)])
        if i == I:
            ROW = group
    for j in range(N):
        group = dist.new_group([i * N + j for i in range(N)])
        if j == J:
            COL = group


def along_row(block, j):
    block = block.contiguous().clone()
    dist.broadcast(block, I * N + j, group=ROW)
    return block


def along_col(block, i):
    block = block.contiguous().clone()
    dist.broadcast(block, i * N + J, group=COL)
    return block


class Summa(torch.autograd.Function):
    """C_ij = sum_k A_ik B_kj"""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        c = a.new_zeros(a.shape[0], b.shape[1])
        for k in range(N):
            c += along_row(a, k) @ along_col(b, k)
        return c

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        grad_a, grad_b = torch.zeros_like(a), torch.zeros_like(b)
        for k in range(N):
            part = grad @ b_of_row(b, k).t()
            dist.reduce(part, I * N + k, group=ROW)
            if k == J:
                grad_a = part
            part = a_of_col(a, k).t() @ grad
            dist.reduce(part, k * N + J, group=COL)
            if k == I:
                grad_b = part
        return grad_a, grad_b


def b_of_row(b, k):
    """Block (k, J) of B: it lies on row k of this column."""
    return along_col(b, k)


def a_of_col(a, k):
    """Block (I, k) of A: it lies on column k of this row."""
    return along_row(a, k)


class Linear2D(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        full = torch.randn(n_in, n_out) / n_in**0.5
        self.weight = nn.Parameter(full.chunk(N, 0)[I].chunk(N, 1)[J].clone())

    def forward(self, x):
        return Summa.apply(x, self.weight)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = Linear2D(8, 16), Linear2D(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


def main():
    dist.init_process_group("gloo")
    setup()
    torch.manual_seed(4)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    for step in range(3):
        g = torch.Generator().manual_seed(step)
        x, y = torch.randn(8, 8, generator=g), torch.randn(8, 4, generator=g)
        x, y = (t.chunk(N, 0)[I].chunk(N, 1)[J] for t in (x, y))
        loss = F.mse_loss(net(x), y, reduction="sum") / 32
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"{step} {total.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
