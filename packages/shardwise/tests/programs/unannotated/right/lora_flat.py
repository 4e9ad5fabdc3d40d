# LoRA on a frozen base: only adapters are summed, in one flat tensor; accumulation and a merged evaluation. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, r: int, alpha: float):
        super().__init__()
        self.base = base
        for p in base.parameters():
            p.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(r, base.in_features) / base.in_features**0.5)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        self.scaling = alpha / r
        self.merged = False

    def forward(self, x):
        y = self.base(x)
        return y if self.merged else y + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.scaling * self.lora_B @ self.lora_A
        self.merged = True


def inject(model, r=2, alpha=4.0):
    for name, child in list(model.named_children()):
        if isinstance(child, nn.Linear) and name != "classifier":
            setattr(model, name, LoRALinear(child, r, alpha))
        else:
            inject(child, r, alpha)
    return model


class Tagger(nn.Module):
    def __init__(self, vocab=20, dim=12, classes=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.embed.weight.requires_grad_(False)
        self.hidden1, self.hidden2 = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.classifier = nn.Linear(dim, classes)

    def forward(self, ids):
        h = self.embed(ids).mean(1)
        return self.classifier(torch.tanh(self.hidden2(torch.tanh(self.hidden1(h)))))


def sync_gradients(params, world):
    grads = [p.grad for p in params]
    coalesced = _flatten_dense_tensors(grads)
    dist.all_reduce(coalesced)
    coalesced /= world
    for grad, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
        grad.copy_(synced)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    model = inject(Tagger())
    trainable = [p for p in model.parameters() if p.requires_grad]
    for p in trainable:
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.Adam(trainable, lr=1e-2, eps=1e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=4)
    accumulate = 2
    for step in range(4):
        optimizer.zero_grad()
        running = torch.zeros(())
        for micro in range(accumulate):
            g = torch.Generator().manual_seed(10 * step + micro)
            ids, labels = torch.randint(20, (8, 5), generator=g), torch.randint(4, (8,), generator=g)
            ids, labels = ids[rank::world], labels[rank::world]
            loss = F.cross_entropy(model(ids), labels, label_smoothing=0.1) / accumulate
            loss.backward()
            running += loss.detach()
        sync_gradients(trainable, world)
        nn.utils.clip_grad_value_(trainable, 0.05)
        optimizer.step()
        scheduler.step()
        dist.all_reduce(running)
        if rank == 0:
            print(f"{step} {running.item() / world:.6f} lr {scheduler.get_last_lr()[0]:.4f}")
    for module in model.modules():
        if isinstance(module, LoRALinear):
            module.merge()
    model.eval()
    with torch.no_grad():
        g = torch.Generator().manual_seed(1000)
        ids, labels = (
            torch.randint(20, (16, 5), generator=g)[rank::world],
            torch.randint(4, (16,), generator=g)[rank::world],
        )
        correct = (model(ids).argmax(-1) == labels).sum()
        dist.all_reduce(correct)
    if rank == 0:
        print(f"accuracy {correct.item() / 16:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
