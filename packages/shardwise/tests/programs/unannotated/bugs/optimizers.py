"""Optimizers that communicate, compress, or keep statistics of all ranks."""

from .bug import CLIP, GRADIENT, ROUNDED, TRAINED, Bug

BUGS = [
    Bug("muon_tp", "the other dim is gathered", "self.down.tp_dim = 1", "self.down.tp_dim = 0", TRAINED),
    Bug(
        "muon_tp", "every rank steps by the first slice", "u.chunk(world, dim)[rank]", "u.chunk(world, dim)[0]", TRAINED
    ),
    Bug(
        "muon_tp",
        "the step is scaled by one rank's shape",
        "full.shape[0] / full.shape[1]",
        "m.shape[0] / m.shape[1]",
        TRAINED,
    ),
    Bug(
        "fp8_amax",
        "histories are not shared",
        "dist.all_reduce(amax, op=dist.ReduceOp.MAX)",
        "pass",
        "",
        missed=ROUNDED,
    ),
    Bug("fp8_amax", "they are summed", "(amax, op=dist.ReduceOp.MAX)", "(amax)", "", missed=ROUNDED),
    Bug(
        "shampoo_shared_roots",
        "roots come from rank 0, whoever has them",
        'dist.broadcast(s["i" + side], owner)',
        'dist.broadcast(s["i" + side], 0)',
        TRAINED,
    ),
    Bug("shampoo_shared_roots", "gradients are summed, not averaged", "p.grad.mul_(1.0 / n)", "pass", GRADIENT),
    Bug("powersgd", "the right factor is not averaged", "self.mean(m.t() @ left)", "m.t() @ left", TRAINED),
    Bug("powersgd", "vectors are not averaged", "self.mean(p.grad.clone())", "p.grad.clone()", TRAINED),
    Bug("powersgd", "start vectors differ", "100 + i)", "100 + i + dist.get_rank())", TRAINED),
    Bug(
        "kfac",
        "factors are each rank's own",
        "                dist.all_reduce(factor)\n                factor /= world\n",
        "",
        GRADIENT,
    ),
    Bug("kfac", "factors are not divided", "                factor /= world\n", "", GRADIENT),
    Bug(
        "adafactor_tp",
        "the statistics of columns are one rank's",
        "cols.lerp_(averaged(squares.mean(0)), 0.3)",
        "cols.lerp_(squares.mean(0), 0.3)",
        TRAINED,
    ),
    Bug("adafactor_tp", "rows are divided by the mean of one rank's", "averaged(rows.mean())", "rows.mean()", TRAINED),
    Bug(
        "adafactor_tp",
        "the step is clipped by one rank's piece",
        "averaged(update.square().mean()).sqrt()",
        "update.square().mean().sqrt()",
        TRAINED,
    ),
    Bug("adafactor_tp", "means are added up", "    return x / world", "    return x", TRAINED),
    Bug(
        "adafactor_tp",
        "the roots of pieces are averaged",
        "averaged(update.square().mean()).sqrt()",
        "averaged(update.square().mean().sqrt())",
        TRAINED,
    ),
    Bug(
        "lamb_shards",
        "norms are those of one rank's shard",
        "        dist.all_reduce(sq)\n",
        "",
        "result of |" + TRAINED,
    ),
    Bug(
        "lamb_shards",
        "gradients are clipped by one rank's norm",
        "        dist.all_reduce(norm)\n",
        "",
        "result of |" + TRAINED,
    ),
    Bug("lamb_shards", "gradients are summed", "        g /= self.world\n", "", CLIP),
    Bug(
        "lamb_shards",
        "the owners of the first shard on all ranks",
        "owner[self.rank * self.shard_size : (self.rank + 1) * self.shard_size]",
        "owner[: self.shard_size]",
        TRAINED,
    ),
    Bug(
        "sam_ddp",
        "the ascent goes past DDP",
        "loss = F.cross_entropy(model(x)",
        "loss = F.cross_entropy(model.module(x)",
        TRAINED,
    ),
    Bug(
        "sam_ddp",
        "the descent goes past DDP",
        "        F.cross_entropy(model(x)",
        "        F.cross_entropy(model.module(x)",
        GRADIENT,
    ),
]
