"""Plans and DTensors, alone and with FSDP."""

from .bug import GRADIENT, TRAINED, Bug

BUGS = [
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
        "dtensor_by_hand",
        "each rank takes its own numbers for its piece",
        "distribute_tensor(torch.randn(6, 8), mesh, [Replicate(), Shard(1)])",
        "distribute_tensor(torch.randn(6, 8), mesh, [Replicate(), Shard(1)]) * (1 + mesh.get_local_rank('tp'))",
        TRAINED,
    ),
    Bug(
        "llama_2d",
        "tensor-parallel ranks read different data",
        "batch.chunk(dp_mesh.size())[dp_mesh.get_local_rank()]",
        "batch.chunk(dp_mesh.size())[(dp_mesh.get_local_rank() + tp_mesh.get_local_rank()) % dp_mesh.size()]",
        "gradient of ",
    ),
    Bug("llama_2d", "the model is not sharded over dp", "if dp_mesh.size() > 1:", "if dp_mesh.size() > 4:", GRADIENT),
    Bug(
        "llama_2d",
        "a norm is left out of the plan, and its gradient is that of one part",
        '"attention_norm": SequenceParallel(),',
        "",
        "gradient of |loss",
    ),
    Bug(
        "size_one_axes",
        "FSDP shards over the axis of size one",
        'dp_cp = mesh["dp", "cp"]._flatten("dp_cp")',
        'dp_cp = mesh["cp"]',
        GRADIENT,
    ),
    Bug(
        "size_one_axes",
        "the batch is cut by tp",
        "[Shard(0), Shard(1), Replicate()]",
        "[Replicate(), Shard(1), Shard(0)]",
        "input 0|gradient of |loss",
    ),
    Bug(
        "size_one_axes",
        "the scale is multiplied by the number of ranks",
        "x + self.scale * self.down(",
        "x + self.scale * dist.get_world_size() ** 0.5 * self.down(",
        "gradient of |loss",
    ),
    Bug(
        "plan_outputs",
        "targets of another rank",
        "labels.chunk(n)[me]",
        "labels.chunk(n)[0]",
        "input 1|loss|gradient of ",
    ),
    Bug(
        "plan_outputs",
        "gradients are not summed over dp",
        'dist.all_reduce(grad, group=mesh.get_group("dp"))',
        "grad = grad.clone()",
        GRADIENT,
    ),
    Bug(
        "selective", "targets of another rank", "y.chunk(world)[rank]", "y.chunk(world)[0]", "input 1|loss|gradient of "
    ),
    Bug("selective", "the first layer is not sharded", "    fully_shard(net, mp_policy=policy)\n", "", GRADIENT),
    Bug(
        "dtensor_dropout",
        "ranks drop out from generators of their own",
        "manual_seed(10)",
        "manual_seed(10 + dist.get_rank())",
        GRADIENT,
    ),
    Bug(
        "dtensor_dropout",
        "the loss is a sum over the ranks",
        "F.cross_entropy(model(x), y)",
        "F.cross_entropy(model(x), y) * dist.get_world_size()",
        "loss",
    ),
]
