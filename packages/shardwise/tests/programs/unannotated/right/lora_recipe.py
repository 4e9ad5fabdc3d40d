# A fine-tuning recipe: LoRA under FSDP2 from the meta device, gradients scaled by the tokens of all. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

ACCUMULATION, IGNORED = 2, -100


class LoRALinear(nn.Module):
    def __init__(self, d_in, d_out, rank=2, alpha=4.0):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in), requires_grad=False)
        self.lora_a = nn.Linear(d_in, rank, bias=False)
        self.lora_b = nn.Linear(rank, d_out, bias=False)
        self.scaling = alpha / rank

    def forward(self, x):
        return F.linear(x, self.weight) + self.scaling * self.lora_b(self.lora_a(x))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.RMSNorm(dim)
        self.q_proj, self.v_proj = LoRALinear(dim, dim), LoRALinear(dim, dim)
        self.k_proj, self.out = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.mlp = LoRALinear(dim, dim)

    def forward(self, x):
        h = self.norm(x)
        q, k, v = (
            p(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).flatten(2))
        return x + self.mlp(F.silu(x))


class Decoder(nn.Module):
    def __init__(self, vocab=32, dim=16, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, 2) for _ in range(depth))
        self.output = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


def adapter_names(model):
    return {name for name, _ in model.named_parameters() if "lora_" in name}


def load_base_model(model, generator):
    sharded = {}
    for name, param in model.state_dict().items():
        full = torch.randn(param.shape, generator=generator) * (0.02 if "lora_b" in name else 0.2)
        if "norm" in name:
            full = torch.ones(param.shape)
        sharded[name] = nn.Parameter(distribute_tensor(full, param.device_mesh, param.placements))
    model.load_state_dict(sharded, assign=True)
    trained = adapter_names(model)
    for name, param in model.named_parameters():
        param.requires_grad_(name in trained)


def scale_grads(model, scaler):
    for p in model.parameters():
        if p.grad is not None:
            p.grad *= scaler


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    with torch.device("meta"):
        model = Decoder()
    for layer in reversed(model.layers):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    load_base_model(model, torch.Generator().manual_seed(11))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 2))
    data = torch.Generator().manual_seed(5)
    running_loss, num_tokens = 0.0, torch.zeros(())
    for batch in range(4):
        tokens = torch.randint(0, 32, (8, 9), generator=data)
        labels = tokens[:, 1:].clone()
        labels[:, :2] = IGNORED
        labels[batch % 2 * 2, 4:] = IGNORED  # answers have other lengths
        tokens, labels = tokens[rank::world, :-1], labels[rank::world]
        current = (labels != IGNORED).sum()
        num_tokens += current
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED) * current
        running_loss += loss.detach()
        loss.backward()
        if (batch + 1) % ACCUMULATION == 0:
            dist.all_reduce(num_tokens)
            dist.all_reduce(running_loss)
            scale_grads(model, world / num_tokens)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            scheduler.step()
            if rank == 0:
                print(f"loss {running_loss / num_tokens:.6f}")
            running_loss, num_tokens = 0.0, torch.zeros(())
    print(f"norm {norm.full_tensor():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
