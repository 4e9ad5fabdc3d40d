# A train module: micro-batches under HSDP, a summed loss, steps that may be skipped. mesh: replicate=2,shard=2
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor


class SkipStepAdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.95), sigma=6.0):
        super().__init__(params, {"lr": lr, "betas": betas})
        self.losses, self.norms, self.sigma = [], [], sigma
        self.latest_loss = self.latest_grad_norm = None

    def get_step_factor(self):
        self.losses.append(self.latest_loss)
        self.norms.append(self.latest_grad_norm)
        if len(self.losses) < 3:
            return torch.tensor(1.0)
        (loss_std, loss_mean), (norm_std, norm_mean) = (
            torch.std_mean(torch.stack(x[:-1])) for x in (self.losses, self.norms)
        )
        fine = (self.latest_loss - loss_mean) <= self.sigma * loss_std
        return torch.logical_and(fine, (self.latest_grad_norm - norm_mean) <= self.sigma * norm_std).float()

    @torch.no_grad()
    def step(self, closure=None):
        factor = self.get_step_factor()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float32)
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
                beta1, beta2 = group["betas"]
                state["step"] += factor
                state["exp_avg"].lerp_(p.grad, factor * (1 - beta1))
                state["exp_avg_sq"].mul_(1 - factor * (1 - beta2)).add_(factor * p.grad * p.grad * (1 - beta2))
                size = group["lr"] / (1 - beta1 ** (state["step"] + 1e-8))
                denom = (state["exp_avg_sq"].sqrt() / (1 - beta2 ** (state["step"] + 1e-8)).sqrt()).add_(1e-8)
                update = (-size * state["exp_avg"].div(denom)).mul_(factor)
                p.add_(update)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w1, self.w2, self.norm = (
            nn.Linear(dim, 2 * dim, bias=False),
            nn.Linear(2 * dim, dim, bias=False),
            nn.RMSNorm(dim),
        )

    def forward(self, x):
        return x + self.norm(self.w2(F.silu(self.w1(x))))


class Transformer(nn.Module):
    def __init__(self, vocab=32, dim=8, depth=2):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleDict({str(at): Block(dim) for at in range(depth)})
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids, labels, loss_div_factor, z_loss_multiplier=1e-3):
        x = self.embeddings(ids)
        for block in self.blocks.values():
            x = block(x)
        logits = self.lm_head(x).float().flatten(0, 1)
        ce = F.cross_entropy(logits, labels.flatten(), ignore_index=-100, reduction="sum") / loss_div_factor
        keep = labels.flatten() != -100
        z = (logits.logsumexp(-1).square() * keep).sum() * z_loss_multiplier / loss_div_factor
        return ce, z


class TrainModule:
    def __init__(self, model, optimizer, mesh, world):
        self.model, self.optimizer, self.mesh, self.world = model, optimizer, mesh, world
        self.rank_microbatch_size = 2
        self.metrics = {}

    def train_batch(self, batch):
        tokens_for_loss = (batch["labels"] != -100).sum()
        dist.all_reduce(tokens_for_loss)
        div_factor = tokens_for_loss / self.world  # FSDP takes the mean over all ranks
        micro = [
            dict(zip(batch, parts)) for parts in zip(*(v.split(self.rank_microbatch_size) for v in batch.values()))
        ]
        ce_batch, z_batch = torch.zeros(()), torch.zeros(())
        for at, part in enumerate(micro):
            if isinstance(self.model, FSDPModule):
                self.model.set_is_last_backward(at == len(micro) - 1)
                self.model.set_requires_gradient_sync(at == len(micro) - 1)
            ce, z = self.model(part["input_ids"], part["labels"], div_factor)
            ce_batch += ce.detach()
            z_batch += z.detach()
            (ce + z).backward()
        for name, value in (("CE loss", ce_batch), ("Z loss", z_batch)):
            dist.all_reduce(value)
            self.metrics[name] = value / self.world
        self.optimizer.latest_loss = self.metrics["CE loss"]

    def optim_step(self):
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm(grads, 2.0)
        if isinstance(norm, DTensor):
            norm = norm.full_tensor()
        nn.utils.clip_grads_with_norm_(self.model.parameters(), 1.0, norm)
        self.metrics["grad norm"] = norm
        self.optimizer.latest_grad_norm = norm
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, world // 2) if world > 1 else (1, 1), mesh_dim_names=("replicate", "shard"))
    torch.manual_seed(0)
    model = Transformer()
    for block in model.blocks.values():
        fully_shard(block, mesh=mesh)
    fully_shard(model.lm_head, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train_module = TrainModule(model, SkipStepAdamW(model.parameters()), mesh, world)
    g = torch.Generator().manual_seed(9)
    for step in range(4):
        ids = torch.randint(0, 32, (16, 7), generator=g)
        labels = F.pad(ids[:, 1:], (0, 1), value=-100)
        labels[torch.rand(labels.shape, generator=g) < 0.2] = -100
        mine = slice(rank * (16 // world), (rank + 1) * (16 // world))
        train_module.train_batch({"input_ids": ids[mine], "labels": labels[mine]})
        train_module.optim_step()
        if rank == 0:
            print(
                f"step {step} " + " ".join(f"{name} {float(value):.6f}" for name, value in train_module.metrics.items())
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
