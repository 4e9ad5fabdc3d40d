"""Collectives, autograd functions, buckets and optimizers that programs have written by hand."""

from .bug import GRADIENT, Bug

_SUM = "            dist.all_reduce(p.grad)\n"

BUGS = [
    Bug(
        "dpo",
        "the head's gradient is forgotten",
        "        for p in policy.parameters():\n            dist",
        "        for p in list(policy.parameters())[:-1]:\n            dist",
        GRADIENT + "head.weight",
    ),
    Bug(
        "gae_ppo",
        "values are counted on each rank",
        "    dist.all_reduce(stats)\n",
        "    dist.all_reduce(stats[:2])\n",
        "loss",
    ),
    Bug(
        "gae_ppo",
        "advantages are normalised by one rank's",
        "    dist.all_reduce(stats)\n    mean",
        "    mean",
        "loss|gradient",
    ),
    Bug("uneven_accumulation", "tokens are counted on each rank", "        dist.all_reduce(count)\n", "", GRADIENT),
    Bug("uneven_accumulation", "the sums are averaged too", _SUM, _SUM + "            p.grad /= world\n", GRADIENT),
    Bug(
        "infonce",
        "labels count from the own rows",
        "torch.arange(len(every_a))",
        "(torch.arange(len(every_a)) + rank * len(a)) % len(every_a)",
        "loss",
    ),
    Bug("infonce", "the own rows are put first", "parts[dist.get_rank()] = x", "parts[0] = x", "loss"),
    Bug(
        "expert_choice",
        "gradients of scores are not summed",
        "scores, x = Copy.apply(scores), Copy.apply(x)",
        "x = Copy.apply(x)",
        GRADIENT,
    ),
    Bug(
        "lora_tp",
        "gradients of the low rank are not summed",
        "inner = ToRanks.apply(x @ self.up_a.T)",
        "inner = x @ self.up_a.T",
        GRADIENT + r"blocks\.\d",
    ),
    Bug("lora_tp", "gradients of the input are not summed", "        x = ToRanks.apply(x)\n", "", GRADIENT),
    Bug("vocab_zloss", "gradients of the input are not summed", "Copy.apply(h) @", "h @", GRADIENT),
    Bug(
        "vocab_zloss",
        "the largest logit is the rank's own",
        "        dist.all_reduce(top, op=dist.ReduceOp.MAX)\n",
        "",
        "loss",
    ),
    Bug("int8_compression", "the sum is no mean", " * scale / world", " * scale", GRADIENT),
    Bug(
        "int8_compression",
        "each rank has its own scale",
        "            dist.all_reduce(peak, op=dist.ReduceOp.MAX)\n",
        "",
        GRADIENT,
    ),
    Bug("hsdp_hand", "replicas are not summed", "        dist.all_reduce(part, group=replicas)\n", "", GRADIENT),
    Bug(
        "hsdp_hand",
        "biases are summed over shards alone",
        "                dist.all_reduce(p.grad)\n",
        "                dist.all_reduce(p.grad, group=shards)\n",
        GRADIENT + ".*bias",
    ),
    Bug(
        "muon_owner",
        "vectors are not summed",
        "        for p in net.parameters():\n            dist",
        "        for p in matrices:\n            dist",
        GRADIENT + ".*bias",
    ),
    Bug(
        "sp_layernorm",
        "the bias of a norm is taken for split",
        'SPLIT = ("up", "down")',
        'SPLIT = ("up", "down", "shift")',
        GRADIENT + ".*shift",
    ),
    Bug(
        "sp_layernorm",
        "the bias is added on every rank before the sum",
        "ReduceScatter.apply(h) + self.bias",
        "ReduceScatter.apply(h + self.bias)",
        "loss|gradient",
    ),
    Bug(
        "averaged_copies",
        "equal gradients are summed",
        "            p.grad.div_(world)\n",
        "            pass\n",
        GRADIENT,
    ),
]
