# An engine with buckets and accumulation that clips by numbers of Python. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Engine(nn.Module):
    """deepspeed-like: engine(x), engine.backward(loss), engine.step()."""

    def __init__(self, model, config):
        super().__init__()
        self.module = model
        self.gas = config["gradient_accumulation_steps"]
        self.clip = config["gradient_clipping"]
        self.bucket_size = config["reduce_bucket_size"]
        self.world = dist.get_world_size()
        for p in self.module.state_dict().values():
            dist.broadcast(p, 0)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=config["lr"], betas=(0.9, 0.95))
        self.warmup = config["warmup"]
        self.base_lr = config["lr"]
        self.micro_steps = 0
        self.global_steps = 0

    def forward(self, *args):
        return self.module(*args)

    def is_boundary(self):
        return (self.micro_steps + 1) % self.gas == 0

    def backward(self, loss):
        loss = loss / self.gas
        loss.backward()
        if self.is_boundary():
            self.allreduce_gradients()
        return loss

    def allreduce_gradients(self):
        bucket, size = [], 0
        for p in self.module.parameters():
            if p.grad is None:
                continue
            bucket.append(p.grad)
            size += p.numel()
            if size > self.bucket_size:
                self._reduce(bucket)
                bucket, size = [], 0
        if bucket:
            self._reduce(bucket)

    def _reduce(self, grads):
        flat = torch.cat([g.reshape(-1) for g in grads])
        flat.mul_(1.0 / self.world)
        dist.all_reduce(flat)
        at = 0
        for g in grads:
            g.copy_(flat[at : at + g.numel()].view_as(g))
            at += g.numel()

    def get_global_norm(self):
        total = 0.0
        for p in self.module.parameters():
            total += p.grad.detach().norm().item() ** 2
        return total**0.5

    def step(self):
        if self.is_boundary():
            norm = self.get_global_norm()
            coef = self.clip / (norm + 1e-6)
            if coef < 1:
                for p in self.module.parameters():
                    p.grad.data.mul_(coef)
            for group in self.optimizer.param_groups:
                group["lr"] = self.base_lr * min(1.0, (self.global_steps + 1) / self.warmup)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.global_steps += 1
        self.micro_steps += 1


class TinyBert(nn.Module):
    def __init__(self, vocab=17, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.layer = nn.TransformerEncoderLayer(dim, 2, 32, dropout=0.0, batch_first=True)
        self.cls = nn.Linear(dim, 3)

    def forward(self, ids):
        return self.cls(self.layer(self.emb(ids))[:, 0])


def initialize(model, config):
    engine = Engine(model, config)
    return engine, engine.optimizer


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1234)
    config = {
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "reduce_bucket_size": 600,
        "lr": 1e-3,
        "warmup": 2,
    }
    engine, _ = initialize(TinyBert(), config)
    ids = torch.randint(0, 17, (6, 8, 5))
    labels = torch.randint(0, 3, (6, 8))
    for i in range(6):
        b = ids[i].view(world, -1, 5)[rank]
        t = labels[i].view(world, -1)[rank]
        loss = F.cross_entropy(engine(b), t)
        engine.backward(loss)
        engine.step()
        if rank == 0:
            print(i, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
