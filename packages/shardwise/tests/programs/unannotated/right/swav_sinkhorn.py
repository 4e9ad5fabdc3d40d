# SwAV: assignments to prototypes by Sinkhorn-Knopp over all ranks. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


@torch.no_grad()
def distributed_sinkhorn(out, epsilon=0.05, iterations=3):
    Q = torch.exp(out / epsilon).t()
    B = Q.shape[1] * dist.get_world_size()
    K = Q.shape[0]
    sum_Q = torch.sum(Q)
    dist.all_reduce(sum_Q)
    Q /= sum_Q
    for _ in range(iterations):
        sum_of_rows = torch.sum(Q, dim=1, keepdim=True)
        dist.all_reduce(sum_of_rows)
        Q /= sum_of_rows
        Q /= K
        Q /= torch.sum(Q, dim=0, keepdim=True)
        Q /= B
    Q *= B
    return Q.t()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.projection_head = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
        self.prototypes = nn.Linear(8, 6, bias=False)

    def forward(self, x):
        z = F.normalize(self.projection_head(x), dim=1)
        return z, self.prototypes(z)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(31)
    net = Net()
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-6)
    data = torch.randn(3, 8, 12)
    jitter = torch.randn(2, 3, 8, 12) * 0.2
    for step in range(3):
        with torch.no_grad():
            w = model.module.prototypes.weight.data.clone()
            w = F.normalize(w, dim=1, p=2)
            model.module.prototypes.weight.copy_(w)
        n = 8 // world
        views = [(data[step] + jitter[v, step])[rank * n : (rank + 1) * n] for v in range(2)]
        _, output = model(torch.cat(views))
        bs = n
        loss = 0
        for i in range(2):
            with torch.no_grad():
                q = distributed_sinkhorn(output[bs * i : bs * (i + 1)].detach())
            x = output[bs * (1 - i) : bs * (2 - i)] / 0.1
            loss -= torch.mean(torch.sum(q * F.log_softmax(x, dim=1), dim=1))
        loss /= 2
        optimizer.zero_grad()
        loss.backward()
        if step < 1:
            for name, p in model.named_parameters():
                if "prototypes" in name:
                    p.grad = None
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
