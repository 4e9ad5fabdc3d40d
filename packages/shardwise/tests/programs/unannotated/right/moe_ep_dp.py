# Experts over ep inside data parallelism: dense weights are on all ranks, experts over dp only. mesh: dp=2,ep=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.nn.functional import all_to_all_single


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w_in = nn.Linear(dim, 2 * dim, bias=False)
        self.w_out = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        return self.w_out(nn.functional.gelu(self.w_in(x)))


class SparseLayer(nn.Module):
    def __init__(self, dim, count, mesh):
        super().__init__()
        self.group, self.size = mesh.get_group(), mesh.size()
        self.count, self.per = count, count // mesh.size()
        self.gate = nn.Linear(dim, count, bias=False)
        everyone = [Expert(dim) for _ in range(count)]
        first = mesh.get_local_rank() * self.per
        self.experts = nn.ModuleList(everyone[first : first + self.per])

    def forward(self, x):
        score, chosen = self.gate(x).softmax(-1).max(-1)
        order = chosen.argsort(stable=True)
        sent = torch.bincount(chosen, minlength=self.count)
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent, group=self.group)
        send_splits = sent.view(self.size, -1).sum(1).tolist()
        recv_splits = got.view(self.size, -1).sum(1).tolist()
        buffer = x.new_empty(sum(recv_splits), x.shape[-1])
        tokens = all_to_all_single(buffer, x[order], recv_splits, send_splits, group=self.group)
        who = torch.arange(self.per).repeat(self.size).repeat_interleave(got)
        done = torch.zeros_like(tokens)
        for i, expert in enumerate(self.experts):
            at = (who == i).nonzero()[:, 0]
            done = done.index_add(0, at, expert(tokens[at]))
        back = all_to_all_single(torch.empty_like(x), done, send_splits, recv_splits, group=self.group)
        return x + score[:, None] * torch.zeros_like(x).index_copy(0, order, back)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    ep = 2 if world >= 2 else 1
    mesh = init_device_mesh("cpu", (world // ep, ep), mesh_dim_names=("dp", "ep"))
    torch.manual_seed(100)
    net = nn.Sequential(nn.Linear(4, 8), SparseLayer(8, 4, mesh["ep"]), nn.LayerNorm(8), nn.Linear(8, 2))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(3):
        gen = torch.Generator().manual_seed(step)
        x, y = torch.randn(32, 4, generator=gen), torch.randint(2, (32,), generator=gen)
        loss = nn.functional.cross_entropy(net(x.chunk(world)[rank]), y.chunk(world)[rank])
        opt.zero_grad(set_to_none=False)
        loss.backward()
        for name, p in net.named_parameters():
            if ".experts." in name:
                dist.all_reduce(p.grad, group=mesh["dp"].get_group())
            else:
                dist.all_reduce(p.grad)
            p.grad.div_(world)
        opt.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if rank == 0:
            print(f"step={step} loss={shown.item() / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
