"""A small convolution net whose batch norm shares its statistics over the data axis by hand; a data loader feeds it."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))


class SyncBatchNorm2d(nn.Module):
    def __init__(self, channels, momentum=0.1):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.long))
        self.momentum = momentum

    def forward(self, x):
        if self.training:
            sums = torch.stack([x.sum((0, 2, 3)), x.square().sum((0, 2, 3))])
            sums = spmd.all_reduce(spmd.reinterpret(sums, "dp", src=V, dst=P), "dp", src=P, dst=R)
            count = x.numel() // x.shape[1] * dist.get_world_size()
            mean = sums[0] / count
            var = sums[1] / count - mean.square()
            with torch.no_grad():
                self.num_batches_tracked.add_(1)
                self.running_mean.mul_(1 - self.momentum).add_(mean, alpha=self.momentum)
                self.running_var.lerp_(var * count / (count - 1), self.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        shape = (1, -1, 1, 1)
        x = (x - mean.view(shape)) * torch.rsqrt(var.view(shape) + 1e-5)
        return x * self.weight.view(shape) + self.bias.view(shape)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.norm1 = SyncBatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=4)
        self.norm2 = SyncBatchNorm2d(16)
        self.up = nn.ConvTranspose2d(16, 4, 2, stride=2)
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x)), inplace=True), 2)
        x = F.leaky_relu(self.norm2(self.conv2(F.pad(x, (1, 1, 1, 1)))), 0.1, inplace=True)
        x = F.interpolate(self.up(x), scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(F.dropout2d(F.adaptive_avg_pool2d(x, 1), 0.1, self.training).flatten(1))


with spmd.set_current_mesh(mesh):
    data = TensorDataset(torch.randn(32, 3, 16, 16), torch.randint(10, (32,)))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False), drop_last=True)
    model = Net()
    spmd.assert_type(list(model.parameters()), {"dp": R})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        right = total = 0
        for images, labels in loader:
            spmd.assert_type((images, labels), {"dp": S(0)})
            logits = model(images.to("cuda", non_blocking=True))
            loss = F.cross_entropy(logits, labels, label_smoothing=0.1)
            (spmd.reinterpret(loss, "dp", src=V, dst=P) / dist.get_world_size()).backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
            hits = (logits.argmax(1) == labels).sum()
            right += spmd.all_reduce(hits, "dp", src=V, dst=R).item()
            total += labels.shape[0] * dist.get_world_size()
        print(f"epoch {epoch}: accuracy {right / total:.1%}")
    model.eval()
    with torch.no_grad():
        model(images).argmax(1)
