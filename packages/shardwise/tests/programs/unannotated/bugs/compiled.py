"""Programs that are compiled."""

from .bug import GRADIENT, TRAINED, Bug

BUGS = [
    Bug("compile_ddp", "the compiled model goes past DDP", "torch.compile(DDP(net), ", "torch.compile(net, ", GRADIENT),
    Bug(
        "compile_ddp",
        "the penalty is counted by the ranks",
        "1e-2 * weight",
        "1e-2 * dist.get_world_size() * weight",
        "gradient of |loss",
    ),
    Bug(
        "compile_ddp",
        "every rank sees the first rows",
        "x.chunk(world)[rank], y.chunk(world)[rank]",
        "x.chunk(world)[0], y.chunk(world)[0]",
        "input 0|gradient|loss",
    ),
    Bug(
        "compile_step",
        "the input's gradient is not summed",
        'return funcol.all_reduce(grad, "sum", ctx.group), None',
        "return grad, None",
        GRADIENT,
    ),
    Bug(
        "compile_step",
        "the bias is added before the sum",
        "ReduceFromTP.apply(nn.functional.linear(h, self.down_weight), self.group) + self.down_bias",
        "ReduceFromTP.apply(nn.functional.linear(h, self.down_weight, self.down_bias), self.group)",
        "loss",
        ".*ParallelMLP",
    ),
    Bug(
        "compile_step",
        "the wrong part of a bias",
        "up.bias.detach().chunk(size)[rank]",
        "up.bias.detach().chunk(size)[0]",
        "parameter ",
    ),
    Bug(
        "compile_full",
        "the sum is left out of the graph",
        "dist.all_reduce(g, group=dp)",
        "dist.all_reduce(g.clone(), group=dp)",
        TRAINED,
    ),
    Bug(
        "compile_full",
        "products are not summed",
        "dist.all_reduce(out, group=group)",
        "dist.all_reduce(out.clone(), group=group)",
        "input|loss|parameter ",
    ),
]
