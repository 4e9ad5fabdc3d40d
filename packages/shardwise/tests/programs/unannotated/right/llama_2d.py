# A llama as torchtitan splits it: sequence-parallel TP, loss parallel, FSDP2, a checkpoint. mesh: dp=2,tp=2
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed._composable.fsdp import fully_shard
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)


class Attention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.head_dim = dim // n_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        bs, seqlen, _ = x.shape
        q, k, v = (w(x).view(bs, seqlen, -1, self.head_dim).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).contiguous().view(bs, seqlen, -1))


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.attention = Attention(dim, n_heads)
        self.feed_forward = FeedForward(dim, 2 * dim)
        self.attention_norm = nn.RMSNorm(dim)
        self.ffn_norm = nn.RMSNorm(dim)

    def forward(self, x):
        h = x + self.attention(self.attention_norm(x))
        return h + self.feed_forward(self.ffn_norm(h))


class Transformer(nn.Module):
    def __init__(self, vocab=32, dim=16, n_heads=4, n_layers=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleDict({str(i): TransformerBlock(dim, n_heads) for i in range(n_layers)})
        self.norm = nn.RMSNorm(dim)
        self.output = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            h = layer(h)
        return self.output(self.norm(h))


def apply_tp(model, tp_mesh):
    parallelize_module(
        model,
        tp_mesh,
        {
            "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
        },
    )
    for block in model.layers.values():
        parallelize_module(
            block,
            tp_mesh,
            {
                "attention_norm": SequenceParallel(),
                "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
                "attention.wq": ColwiseParallel(),
                "attention.wk": ColwiseParallel(),
                "attention.wv": ColwiseParallel(),
                "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
                "ffn_norm": SequenceParallel(),
                "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
                "feed_forward.w1": ColwiseParallel(),
                "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
                "feed_forward.w3": ColwiseParallel(),
            },
        )


def apply_ac(model):
    for name, block in model.layers.named_children():
        model.layers.register_module(name, checkpoint_wrapper(block, preserve_rng_state=False))


def apply_fsdp(model, dp_mesh):
    for block in model.layers.values():
        fully_shard(block, mesh=dp_mesh, reshard_after_forward=True)
    fully_shard(model, mesh=dp_mesh)


def main():
    dist.init_process_group("gloo")
    world_size = dist.get_world_size()
    tp = 2 if world_size % 2 == 0 else 1
    world_mesh = init_device_mesh("cpu", (world_size // tp, tp), mesh_dim_names=("dp", "tp"))
    dp_mesh, tp_mesh = world_mesh["dp"], world_mesh["tp"]
    torch.manual_seed(11)
    model = Transformer()
    if tp > 1:
        apply_tp(model, tp_mesh)
    apply_ac(model)
    if dp_mesh.size() > 1:
        apply_fsdp(model, dp_mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    data = torch.randint(0, 32, (4, 4, 9), generator=torch.Generator().manual_seed(3))
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    for step, batch in enumerate(data):
        batch = batch.chunk(dp_mesh.size())[dp_mesh.get_local_rank()]
        inputs, labels = batch[:, :-1], batch[:, 1:]
        optimizer.zero_grad()
        if tp > 1:
            with loss_parallel():
                loss = F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten())
                loss.backward()
            value = loss.full_tensor().detach()
        else:
            loss = F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten())
            loss.backward()
            value = loss.detach()
        optimizer.step()
        dist.all_reduce(value, group=dp_mesh.get_group())
        if dist.get_rank() == 0:
            print(f"step {step} loss {value.item() / dp_mesh.size():.4f}")
        if step == 1:
            weights, states = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optim": states}, checkpoint_id=os.path.join(folder[0], "step-1"))
        if step == 2:
            weights, states = get_state_dict(model, optimizer)
            state = {"model": weights, "optim": states}
            dcp.load(state, checkpoint_id=os.path.join(folder[0], "step-1"))
            set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
