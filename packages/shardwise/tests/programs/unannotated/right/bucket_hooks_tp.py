# A small 4D trainer: tensor parallel layers by hand, data parallel by buckets on gradient hooks. mesh: dp=2,tp=2
import math
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

pgm = None


class ProcessGroupManager:
    def __init__(self, tp_size, dp_size):
        self.global_rank, self.world_size = dist.get_rank(), dist.get_world_size()
        assert self.world_size == tp_size * dp_size
        self.grid = torch.arange(self.world_size).view(dp_size, tp_size)
        self.dp_rank, self.tp_rank = (self.grid == self.global_rank).nonzero().flatten().tolist()
        self.tp_group = dist.new_subgroups_by_enumeration([self.grid[d, :].tolist() for d in range(dp_size)])[0]
        self.dp_group = dist.new_subgroups_by_enumeration([self.grid[:, t].tolist() for t in range(tp_size)])[0]
        self.tp_world_size = dist.get_world_size(self.tp_group)
        self.dp_world_size = dist.get_world_size(self.dp_group)


def setup_process_group_manager(tp_size, dp_size):
    global pgm
    pgm = ProcessGroupManager(tp_size, dp_size)


def split_tensor_along_last_dim(tensor, num):
    size = tensor.size(-1) // num
    return torch.split(tensor, size, dim=-1)


class CopyToModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad_output):
        if pgm.tp_world_size == 1:
            return grad_output
        dist.all_reduce(grad_output, op=dist.ReduceOp.SUM, group=pgm.tp_group)
        return grad_output


class ReduceFromModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if pgm.tp_world_size == 1:
            return x
        dist.all_reduce(x, op=dist.ReduceOp.SUM, group=pgm.tp_group)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class GatherFromModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if pgm.tp_world_size == 1:
            return x
        last_dim = x.dim() - 1
        x = x.contiguous()
        tensor_list = [torch.empty_like(x) for _ in range(pgm.tp_world_size)]
        tensor_list[pgm.tp_rank] = x
        dist.all_gather(tensor_list, x, group=pgm.tp_group)
        return torch.cat(tensor_list, dim=last_dim).contiguous()

    @staticmethod
    def backward(ctx, grad_output):
        if pgm.tp_world_size == 1:
            return grad_output
        chunks = split_tensor_along_last_dim(grad_output, pgm.tp_world_size)
        return chunks[pgm.tp_rank].contiguous()


class ColumnParallelLinear(nn.Module):
    def __init__(self, in_features, out_features, bias=False, gather_output=False):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.gather_output = gather_output
        self.weight = nn.Parameter(torch.empty(out_features // pgm.tp_world_size, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features // pgm.tp_world_size)) if bias else None
        self.reset_parameters()

    def reset_parameters(self):
        master = torch.empty(self.out_features, self.in_features)
        bound = math.sqrt(1 / self.in_features)
        nn.init.uniform_(master, -bound, bound)
        part = torch.split(master, self.out_features // pgm.tp_world_size, dim=0)[pgm.tp_rank]
        self.weight.data = part.contiguous()

    def forward(self, x):
        x = CopyToModelParallelRegion.apply(x)
        y = F.linear(x, self.weight, self.bias)
        return GatherFromModelParallelRegion.apply(y) if self.gather_output else y


class RowParallelLinear(nn.Module):
    def __init__(self, in_features, out_features, bias=False):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features // pgm.tp_world_size))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        self.reset_parameters()

    def reset_parameters(self):
        master = torch.empty(self.out_features, self.in_features)
        bound = math.sqrt(1 / self.in_features)
        nn.init.uniform_(master, -bound, bound)
        part = torch.split(master, self.in_features // pgm.tp_world_size, dim=1)[pgm.tp_rank]
        self.weight.data = part.contiguous()

    def forward(self, x):
        y = ReduceFromModelParallelRegion.apply(F.linear(x, self.weight))
        return y if self.bias is None else y + self.bias


class VocabParallelEmbedding(nn.Module):
    def __init__(self, num, dim):
        super().__init__()
        per = num // pgm.tp_world_size
        self.start, self.end = pgm.tp_rank * per, (pgm.tp_rank + 1) * per
        master = torch.empty(num, dim)
        nn.init.normal_(master, mean=0.0, std=1.0)
        self.weight = nn.Parameter(torch.split(master, per, dim=0)[pgm.tp_rank].contiguous())

    def forward(self, x):
        mask = (x < self.start) | (x >= self.end)
        masked = x.clone() - self.start
        masked[mask] = 0
        out = F.embedding(masked, self.weight)
        out[mask, :] = 0.0
        return ReduceFromModelParallelRegion.apply(out)


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.hd = d // heads
        self.local = heads // pgm.tp_world_size
        self.q_proj, self.k_proj = ColumnParallelLinear(d, d), ColumnParallelLinear(d, d)
        self.v_proj, self.out_proj = ColumnParallelLinear(d, d), RowParallelLinear(d, d)

    def forward(self, x):
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, self.local, self.hd).transpose(1, 2)
        k = self.k_proj(x).view(B, T, self.local, self.hd).transpose(1, 2)
        v = self.v_proj(x).view(B, T, self.local, self.hd).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(out.transpose(1, 2).reshape(B, T, self.local * self.hd))


class MLP(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.up_proj, self.gate_proj = ColumnParallelLinear(d, hidden), ColumnParallelLinear(d, hidden)
        self.down_proj = RowParallelLinear(hidden, d)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(d), nn.RMSNorm(d)
        self.attention, self.mlp = Attention(d, heads), MLP(d, 2 * d)

    def forward(self, x):
        x = x + self.attention(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, vocab=16, d=8, heads=4, layers=2):
        super().__init__()
        self.embedding = VocabParallelEmbedding(vocab, d)
        self.decoder_layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.final_norm = nn.RMSNorm(d)
        self.final_proj = ColumnParallelLinear(d, vocab, gather_output=True)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.decoder_layers:
            x = layer(x)
        return self.final_proj(self.final_norm(x))


class Bucket:
    def __init__(self, params, grad_data, group):
        self.params, self.grad_data, self.group = set(params), grad_data, group
        self.world = dist.get_world_size(group)
        self.handle = None
        self.reset()

    def sync_gradient(self):
        self.grad_data /= self.world
        self.handle = dist.all_reduce(self.grad_data, group=self.group, async_op=True)

    def reset(self):
        self.handle = None
        self.ready = set()

    def wait(self):
        self.handle.wait()

    def mark_param_as_ready(self, param):
        self.ready.add(param)
        if len(self.ready) == len(self.params):
            self.sync_gradient()


class DataParallelBucket(nn.Module):
    def __init__(self, module, bucket_numel=200):
        super().__init__()
        self.module = module
        self.require_backward_grad_sync = True
        self.accs = []
        buckets, size = [[]], 0
        for p in module.parameters():
            if size + p.numel() > bucket_numel and buckets[-1]:
                buckets.append([])
                size = 0
            buckets[-1].append(p)
            size += p.numel()
        self.buckets, self.where = [], {}
        for params in buckets:
            data = torch.zeros(sum(p.numel() for p in params))
            bucket, at = Bucket(params, data, pgm.dp_group), 0
            for p in params:
                p.main_grad = data[at : at + p.numel()].view_as(p)
                self.where[p] = bucket
                at += p.numel()
            self.buckets.append(bucket)
        self.posted = False
        for p in module.parameters():
            acc = p.expand_as(p).grad_fn.next_functions[0][0]
            acc.register_hook(self.make_hook(p))
            self.accs.append(acc)

    def make_hook(self, param):
        def hook(*unused):
            param.main_grad.add_(param.grad.data)
            param.grad = None
            if self.require_backward_grad_sync:
                if not self.posted:
                    torch.autograd.Variable._execution_engine.queue_callback(self.post_backward)
                    self.posted = True
                self.where[param].mark_param_as_ready(param)

        return hook

    def post_backward(self):
        for bucket in self.buckets:
            bucket.wait()
        self.posted = False
        for p in self.module.parameters():
            p.grad = p.main_grad.to(p.dtype)

    def reset(self):
        for bucket in self.buckets:
            bucket.grad_data.zero_()
            bucket.reset()

    def forward(self, *args):
        return self.module(*args)


def main():
    dist.init_process_group("gloo")
    world = int(os.environ["WORLD_SIZE"])
    setup_process_group_manager(min(2, world), world // min(2, world))
    torch.manual_seed(1234)
    model = DataParallelBucket(Llama())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    gas = 2
    data = torch.randint(0, 16, (2, gas, 4, 7))
    for step in range(2):
        optimizer.zero_grad()
        model.reset()
        acc_loss = 0.0
        for i in range(gas):
            model.require_backward_grad_sync = i == gas - 1
            batch = data[step, i].chunk(pgm.dp_world_size)[pgm.dp_rank]
            out = model(batch[:, :-1])
            loss = F.cross_entropy(out.transpose(1, 2), batch[:, 1:], reduction="mean") / gas
            loss.backward()
            acc_loss += loss.item()
        optimizer.step()
        reduced = torch.tensor([acc_loss])
        dist.all_reduce(reduced, op=dist.ReduceOp.SUM, group=pgm.dp_group)
        if pgm.global_rank == 0:
            print(f"step {step} loss {reduced.item() / pgm.dp_world_size:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
