# Adversarial training: perturbations by gradients of the input, then an ordinary DDP step. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def pgd_attack(model, images, labels, eps=0.3, alpha=0.1, steps=3):
    delta = torch.zeros_like(images, requires_grad=True)
    for _ in range(steps):
        loss = F.cross_entropy(model(images + delta), labels)
        (grad,) = torch.autograd.grad(loss, delta)
        delta = (delta + alpha * grad.sign()).clamp(-eps, eps).detach().requires_grad_()
    return (images + delta).detach()


def trades_loss(clean, adversarial, labels, beta):
    kl = F.kl_div(adversarial.log_softmax(1), clean.softmax(1), reduction="batchmean")
    return F.cross_entropy(clean, labels) + beta * kl


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.classifier = nn.Linear(36, 5)

    def forward(self, x):
        return self.classifier(self.features(x))


def main():
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    world = dist.get_world_size()
    torch.manual_seed(1)
    net = ConvNet()
    ddp = DDP(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2], 0.1)
    for step in range(3):
        g = torch.Generator().manual_seed(step)
        images, labels = torch.randn(8, 1, 8, 8, generator=g), torch.randint(5, (8,), generator=g)
        images, labels = images[rank::world], labels[rank::world]
        attacked = pgd_attack(net, images, labels)
        out = ddp(torch.cat([images, attacked]))
        clean, adversarial = out.split(images.shape[0])
        loss = trades_loss(clean, adversarial, labels, beta=3.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        robust = (adversarial.argmax(1) == labels).float().mean()
        numbers = torch.tensor([loss.item(), robust.item()])
        dist.all_reduce(numbers)
        if rank == 0:
            print(f"step {step} loss {numbers[0] / world:.6f} robust {numbers[1] / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
