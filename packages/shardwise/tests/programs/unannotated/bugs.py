# ruff: noqa: E501  the texts are as long as the lines that they replace
"""One-change bugs in the right programs of this folder: the program, the old text, the new text, what it is, and the
tensor or line at which it has to be found. None of them changes what the program computes on one rank.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """One replacement in one program.

    ``at``      a regular expression that the first disagreement has to match.
    ``module``  one for the first module whose output no layout explains; empty if the forward pass is right.
    """

    program: str
    what: str
    old: str
    new: str
    at: str
    module: str = ""

    def applied(self, source: str) -> str:
        """The source with the bug. ValueError if the old text is not there exactly once."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.what}: {self.old!r} is {source.count(self.old)} times in {self.program}")
        return source.replace(self.old, self.new)


GRADIENT = "gradient of "
TRAINED = "parameter |loss|gradient of "
"""What differs once a step has been taken."""
BUGS = [
    Bug("ddp_sampler", "the model is not wrapped", "ddp = DDP(model)", "ddp = model", GRADIENT),
    Bug("ddp_sampler", "every rank reads the same part", "rank=rank, shuffle", "rank=0, shuffle", "input 0"),
    Bug(
        "ddp_sampler",
        "loss is a sum, which DDP averages",
        "(ddp(inputs), targets)",
        '(ddp(inputs), targets, reduction="sum") / 8',
        GRADIENT,
    ),
    Bug("ddp_sampler", "forward goes past DDP", "mse_loss(ddp(inputs)", "mse_loss(model(inputs)", GRADIENT),
    Bug("ddp_accumulation", "no_sync is never left", "last = micro == ACCUMULATE - 1", "last = world == 1", GRADIENT),
    Bug(
        "ddp_accumulation",
        "the loss is divided by the ranks too",
        "targets) / ACCUMULATE",
        "targets) / ACCUMULATE / world",
        GRADIENT,
    ),
    Bug(
        "ddp_accumulation",
        "targets of another rank",
        "targets = y[micro].chunk(world)[rank]",
        "targets = y[micro].chunk(world)[0]",
        "loss|gradient of ",
    ),
    Bug(
        "ddp_unused",
        "the mean is over the global batch, and DDP averages again",
        ".sum(1).mean()",
        ".sum() / 8",
        GRADIENT,
    ),
    Bug("ddp_unused", "every rank sees the first half", "x[rank::world]", "x[: 8 // world]", "input 0"),
    Bug(
        "ddp_unused", "the model is not wrapped", "DDP(Branches(), find_unused_parameters=True)", "Branches()", GRADIENT
    ),
    Bug("ddp_hook", "the hook does not divide", ".div_(group.size())", "", GRADIENT),
    Bug("ddp_hook", "the hook divides by the square", ".div_(group.size())", ".div_(group.size() ** 2)", GRADIENT),
    Bug(
        "ddp_hook",
        "the hook takes the maximum",
        "bucket.buffer(), group=group",
        "bucket.buffer(), op=dist.ReduceOp.MAX, group=group",
        GRADIENT,
    ),
    Bug(
        "ddp_by_hand",
        "weights are not broadcast",
        "        dist.broadcast(parameter.data, src=0)\n",
        "        parameter.data.mul_(1)\n",
        "parameter |gradient of ",
    ),
    Bug("ddp_by_hand", "the mean is missing", "        parameter.grad.div_(world)\n", "", GRADIENT),
    Bug(
        "ddp_by_hand",
        "only matrices are averaged",
        "    for parameter in model.parameters():\n        parameter.register",
        "    for parameter in [p for p in model.parameters() if p.ndim > 1]:\n        parameter.register",
        "gradient of .*(bias|2.weight)",
    ),
    Bug(
        "amp_scaler",
        "every rank has another loss scale, and it is never taken back",
        "        scaler.unscale_(optimizer)\n        nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n        scaler.step",
        "        for p in model.parameters():\n            p.grad.div_(128.0 * world)\n        optimizer.step() or scaler.step",
        GRADIENT,
    ),
    Bug(
        "amp_scaler",
        "the model is not wrapped",
        "DDP(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)).to(device))",
        "nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)).to(device)",
        GRADIENT,
    ),
    Bug(
        "fsdp2",
        "gradients are never reduced",
        "    fully_shard(model)\n",
        "    fully_shard(model)\n    model.set_requires_gradient_sync(world == 1)\n",
        TRAINED,
    ),
    Bug(
        "fsdp2",
        "the data is not sharded for the targets",
        "y.chunk(world)[rank]",
        "y.chunk(world)[0]",
        "loss|gradient of ",
    ),
    Bug("fsdp2", "the loss is summed", "y.chunk(world)[rank])", 'y.chunk(world)[rank], reduction="sum") / 8', GRADIENT),
    Bug(
        "fsdp2_accumulation",
        "gradients are never synchronised",
        "micro == MICRO - 1)",
        "micro == MICRO - 1 and world == 1)",
        TRAINED,
    ),
    Bug(
        "fsdp2_accumulation",
        "every rank sees the same rows",
        "model(x[rank::world])",
        "model(x[: 8 // world])",
        "input 0",
    ),
    Bug(
        "fsdp2_accumulation",
        "the loss is divided by the ranks, and FSDP takes the mean",
        ".mean() / MICRO",
        ".mean() / MICRO / world",
        GRADIENT,
    ),
    Bug(
        "hsdp",
        "sharded, but replicas are not synchronised",
        "fully_shard(model, mesh=mesh)",
        'fully_shard(model, mesh=mesh["shard"])',
        "gradient of [04]",
    ),
    Bug(
        "hsdp",
        "data by the rank in the shard group alone",
        "x.chunk(world)[rank]",
        'x.chunk(world)[mesh["shard"].get_local_rank()]',
        "input 0",
    ),
    Bug(
        "zero1_torch",
        "the ranks' gradients are not averaged",
        "DDP(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1)))",
        "nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))",
        GRADIENT,
    ),
    Bug("zero1_by_hand", "the mean is missing", "self.part.grad = own / self.world", "self.part.grad = own", GRADIENT),
    Bug(
        "zero1_by_hand",
        "parameters are not gathered",
        "        dist.all_gather_into_tensor(self.flat, self.part.detach())\n",
        "        self.flat.chunk(self.world)[self.rank].copy_(self.part.detach())\n",
        TRAINED,
    ),
    Bug(
        "zero1_by_hand",
        "the slice of another rank is stepped",
        "self.part = self.flat.chunk(self.world)[self.rank]",
        "self.part = self.flat.chunk(self.world)[self.rank - 1]",
        TRAINED,
    ),
    Bug(
        "sync_batch_norm",
        "statistics of the local batch",
        "mean = BatchMean.apply(x.mean(0))",
        "mean = x.mean(0)",
        "loss|Normalised|1",
        module="1 ",
    ),
    Bug(
        "sync_batch_norm",
        "backward does not sum over the batch",
        "        grad = grad.clone()\n        dist.all_reduce(grad)\n        return grad / dist.get_world_size()",
        "        return grad",
        "gradient of 0",
    ),
    Bug(
        "megatron_tp",
        "backward of Copy does not sum",
        "        grad = grad.contiguous()\n        dist.all_reduce(grad)\n        return grad",
        "        return grad",
        "gradient of (0|1|2)",
    ),
    Bug(
        "megatron_tp",
        "backward of Reduce sums once more",
        "    def backward(ctx, grad):\n        return grad\n",
        "    def backward(ctx, grad):\n        grad = grad.clone()\n        dist.all_reduce(grad)\n        return grad\n",
        GRADIENT,
    ),
    Bug(
        "megatron_tp",
        "the bias is added on every rank before the sum",
        "Reduce.apply(nn.functional.linear(h, self.down)) + self.down_bias",
        "Reduce.apply(nn.functional.linear(h, self.down, self.down_bias))",
        "loss|ParallelMLP|1",
        module="1 ",
    ),
    Bug(
        "megatron_tp",
        "rows are not summed",
        "Reduce.apply(nn.functional.linear(h, self.down)) +",
        "nn.functional.linear(h, self.down) +",
        "loss|ParallelMLP|1",
        module="1 ",
    ),
    Bug(
        "megatron_tp",
        "the sum is a mean",
        "        dist.all_reduce(x)\n        return x\n",
        "        dist.all_reduce(x)\n        return x / dist.get_world_size()\n",
        "loss|ParallelMLP|1",
        module="1 ",
    ),
    Bug(
        "megatron_sp",
        "norm weights are not summed",
        'if "norm" in name or "bias" in name',
        'if "bias" in name',
        "gradient of .*norm",
    ),
    Bug(
        "megatron_sp",
        "the bias is not summed",
        'if "norm" in name or "bias" in name',
        'if "norm" in name',
        "gradient of .*bias",
    ),
    Bug(
        "megatron_sp",
        "backward of Gather takes a slice and does not sum",
        "backward = staticmethod(lambda ctx, grad: reduce_scatter(grad))",
        "backward = staticmethod(lambda ctx, grad: grad.chunk(dist.get_world_size())[dist.get_rank()])",
        GRADIENT,
    ),
    Bug(
        "megatron_sp",
        "backward of ReduceScatter repeats the slice",
        "backward = staticmethod(lambda ctx, grad: gather(grad))",
        "backward = staticmethod(lambda ctx, grad: grad.repeat(dist.get_world_size(), 1))",
        GRADIENT,
    ),
    Bug(
        "vocabulary_parallel",
        "rows of other ranks are not masked",
        "found.masked_fill(mask[:, None], 0.0)",
        "found",
        "loss|result",
    ),
    Bug("vocabulary_parallel", "the sum of exponentials is local", "        dist.all_reduce(total)\n", "", "loss"),
    Bug("vocabulary_parallel", "the target's logit is local", "        dist.all_reduce(chosen)\n", "", "loss"),
    Bug(
        "vocabulary_parallel",
        "backward takes 1 off on every rank",
        "-= 1.0 - mask.float()",
        "-= 1.0",
        "gradient of table",
    ),
    Bug(
        "merged_qkv_tp",
        "backward of Copy does not sum",
        "        total = grad.clone()\n        dist.all_reduce(total)\n        return total",
        "        return grad",
        "gradient of 0",
    ),
    Bug(
        "merged_qkv_tp",
        "the output is not summed",
        "Reduce.apply(y.transpose(1, 2).reshape(batch, length, -1) @ self.out.T)",
        "y.transpose(1, 2).reshape(batch, length, -1) @ self.out.T",
        "loss|Attention|0",
        module="0 ",
    ),
    Bug(
        "merged_qkv_tp",
        "the merged weight is cut as one, and read as three",
        "        self.qkv = nn.Parameter(torch.cat([q, k, v]))\n",
        "        self.qkv = nn.Parameter(torch.cat([q, k, v]))\n        if world > 1:\n"
        "            whole = [torch.empty_like(self.qkv) for _ in range(world)]\n"
        "            dist.all_gather(whole, self.qkv.detach())\n"
        "            parts = [torch.cat([w.chunk(3)[i] for w in whole]) for i in range(3)]\n"
        "            self.qkv = nn.Parameter(torch.cat(parts).chunk(world)[rank].clone())\n",
        "loss|Attention|0",
        module="0 ",
    ),
    Bug(
        "async_tp_linear",
        "the weight's gradient uses the local input",
        "grad_weight = grad.T @ total",
        "grad_weight = grad.chunk(dist.get_world_size())[dist.get_rank()].T @ x",
        "gradient of .*up",
    ),
    Bug(
        "async_tp_linear",
        "the input's gradient is not summed",
        "        scattering = dist.reduce_scatter_tensor(grad_x, grad_total, async_op=True)\n",
        "        grad_x.copy_(grad_total.chunk(dist.get_world_size())[dist.get_rank()])\n        scattering = gathering\n",
        "gradient of 0",
    ),
    Bug(
        "raw_groups_3d",
        "gradients are averaged over the wrong group",
        "op=dist.ReduceOp.SUM, group=DP",
        "op=dist.ReduceOp.SUM, group=TP",
        GRADIENT,
    ),
    Bug(
        "raw_groups_3d",
        "activations are summed over the wrong group",
        "dist.all_reduce(x, group=TP)",
        "dist.all_reduce(x, group=DP)",
        "loss|MLP|1",
        module="1 ",
    ),
    Bug("raw_groups_3d", "the norm is that of the local part", "    dist.all_reduce(cut, group=TP)\n", "", GRADIENT),
    Bug(
        "raw_groups_3d",
        "replicated parameters count twice in the norm",
        '    whole = sum(p.grad.square().sum() for p in parameters if not hasattr(p, "cut"))\n',
        '    whole = sum(p.grad.square().sum() for p in parameters if not hasattr(p, "cut"))\n'
        "    dist.all_reduce(whole, group=TP)\n",
        GRADIENT,
    ),
    Bug(
        "raw_groups_3d",
        "the mean over the data ranks is taken after clipping",
        "            p.grad /= dist.get_world_size(DP)\n        clip(parameters, 0.1)\n",
        "            p.grad /= 1\n        clip(parameters, 0.1)\n        for p in parameters:\n"
        "            p.grad /= dist.get_world_size(DP)\n",
        GRADIENT,
    ),
    Bug(
        "raw_groups_3d",
        "data by the tensor rank",
        "x.chunk(dist.get_world_size(DP))[dist.get_rank(DP)]",
        "x.chunk(dist.get_world_size(DP))[dist.get_rank(TP)]",
        "input 0|loss|gradient of ",
    ),
    Bug(
        "dtensor_tp",
        "the norm computes on a part of the sequence without saying so",
        '    "norm": SequenceParallel(),\n',
        "",
        "gradient of .*norm|crash|raised",
    ),
    Bug(
        "dtensor_tp",
        "the rows' output is left as it is over the sequence",
        "x + self.down(",
        "x * dist.get_world_size() + self.down(",
        "loss|gradient of |Block",
    ),
    Bug(
        "dtensor_mlp",
        "the local loss is divided by the ranks",
        "model(x).square().mean()",
        "model(x).square().mean() / dist.get_world_size()",
        "loss|gradient of ",
    ),
    Bug(
        "dtensor_mlp",
        "inputs of every rank are others, but no gradient is summed",
        "loss = model(x).",
        "loss = model(x.chunk(dist.get_world_size())[dist.get_rank()]).",
        "gradient of |input 0|loss",
    ),
    Bug(
        "fsdp_tp",
        "data by the global rank",
        "x.chunk(dp_size)[dp_rank]",
        "x.chunk(world)[dist.get_rank()]",
        "input 0|gradient of |loss",
    ),
    Bug(
        "fsdp_tp",
        "the blocks' gradients are not reduced",
        'fully_shard(model, mesh=mesh["dp"])',
        'fully_shard(model, mesh=mesh["dp"])\n    for block in model:\n'
        "        block.set_requires_gradient_sync(world == 1)",
        TRAINED,
    ),
    Bug(
        "fsdp_tp",
        "ranks weigh their losses differently",
        ".square().mean()",
        ".square().mean() * (1 + dp_rank)",
        "loss|gradient of ",
    ),
    Bug(
        "pipeline_gpipe",
        "a stage has the layers of another",
        "i // per_stage != rank",
        "i // per_stage != world - 1 - rank",
        "loss|layers",
        module="layers.2 ",
    ),
    Bug(
        "pipeline_gpipe",
        "the last stage also repeats a layer",
        "        for layer in self.layers.values():\n",
        "        for layer in list(self.layers.values()) + list(self.layers.values())[: dist.get_rank()]:\n",
        "loss|layers",
    ),
    Bug(
        "pipeline_1f1b",
        "the targets are in another order",
        "schedule.step(target=y, losses=losses)",
        "schedule.step(target=y.flip(0), losses=losses)",
        "loss|gradient of ",
    ),
    Bug(
        "pipeline_1f1b",
        "the last stage steps with half its rate",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1 if rank == 0 else 0.05)",
        "parameter .*after|loss|gradient of ",
    ),
    Bug(
        "pipeline_send_recv",
        "the micro-batches' gradients are matched in the wrong order",
        "for micro, (inputs, out) in enumerate(held):",
        "for micro, (inputs, out) in list(enumerate(held))[:: 1 if stage else -1]:",
        GRADIENT,
    ),
    Bug(
        "pipeline_send_recv",
        "the loss is not divided by the micro-batches",
        "ys[micro]) / MICRO",
        "ys[micro]) / stages",
        GRADIENT,
    ),
    Bug(
        "pipeline_send_recv",
        "data ranks are not averaged",
        "            dist.all_reduce(p.grad, group=dp_group)\n            p.grad /= dp_size\n",
        "            p.grad /= 1\n",
        GRADIENT,
    ),
    Bug(
        "pipeline_send_recv",
        "gradients are summed over the wrong ranks",
        "dp_group = groups[stage]",
        "dp_group = dist.group.WORLD",
        GRADIENT,
    ),
    Bug(
        "moe_all_to_all",
        "the router is not summed",
        'if "experts" not in name',
        'if "experts" not in name and "router" not in name',
        "gradient of .*router",
    ),
    Bug(
        "moe_all_to_all",
        "different experts are summed",
        '            if "experts" not in name:\n                dist.all_reduce(p.grad)\n',
        "            dist.all_reduce(p.grad)\n",
        "gradient of .*experts",
    ),
    Bug(
        "moe_all_to_all",
        "backward does not exchange",
        "        dist.all_to_all_single(out, grad.contiguous())\n",
        "        out.copy_(grad)\n",
        "gradient of ",
    ),
    Bug(
        "moe_all_to_all",
        "tokens do not come back",
        "back = AllToAll.apply(torch.stack(done, 1).flatten(0, 1))",
        "back = torch.stack(done, 1).flatten(0, 1)",
        "loss|MoE|1",
        module="1 ",
    ),
    Bug("context_parallel", "backward of the gather does not sum", "        dist.all_reduce(total)\n", "", GRADIENT),
    Bug(
        "context_parallel",
        "the mask starts at 0 on every rank",
        "start = dist.get_rank() * length",
        "start = 0",
        "loss|Attention|0",
        module="0.out ",
    ),
    Bug("context_parallel", "gradients are summed", "            p.grad /= world\n", "", GRADIENT),
    Bug(
        "context_parallel",
        "values are not gathered",
        "k, v = GatherSequence.apply(k), GatherSequence.apply(v)",
        "k, v = GatherSequence.apply(k), v.repeat(1, dist.get_world_size(), 1)",
        "loss|Attention|0",
        module="0.out ",
    ),
    Bug(
        "ring_attention",
        "gradients travel the wrong way round and are lost",
        "        return shift(grad, -1)",
        "        return grad",
        GRADIENT,
    ),
    Bug(
        "ring_attention",
        "sums are not rescaled",
        "total = total * scale + exp @ v",
        "total = total + exp @ v",
        "loss|Attention|0",
        module="0 ",
    ),
    Bug(
        "ring_attention",
        "one hop is missing",
        "for hop in range(dist.get_world_size()):",
        "for hop in range(max(1, dist.get_world_size() - 1)):",
        "loss|Attention|0",
        module="0 ",
    ),
    Bug(
        "dtensor_by_hand",
        "each rank takes its own numbers for its piece",
        "distribute_tensor(torch.randn(6, 8), mesh, [Replicate(), Shard(1)])",
        "distribute_tensor(torch.randn(6, 8), mesh, [Replicate(), Shard(1)]) * (1 + mesh.get_local_rank('tp'))",
        TRAINED,
    ),
    Bug(
        "evaluation_and_saving",
        "the metric's sum aside, the wrong targets",
        "targets[rank::world])",
        "targets[: 8 // world])",
        "loss|gradient of ",
    ),
    Bug(
        "evaluation_and_saving",
        "forward goes past DDP",
        "model(inputs[rank::world])",
        "model.module(inputs[rank::world])",
        GRADIENT,
    ),
]
