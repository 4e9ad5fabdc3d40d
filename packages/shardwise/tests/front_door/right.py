"""A user's file: every use here is right, and a strict type checker says so. Never run."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import (
    Infer,
    MeshAxis,
    P,
    PartitionSpec,
    PerMeshAxisSpmdTypes,
    R,
    S,
    Scalar,
    SpmdType,
    TrainingContract,
    V,
    all_gather,
    all_reduce,
    all_to_all,
    assert_type,
    convert,
    local_map,
    no_typecheck,
    redistribute,
    reduce_scatter,
    register_autograd_function,
    register_decomposition,
    register_no_typecheck,
    reinterpret,
    reveal_type,
    set_current_mesh,
    shard,
    typecheck,
    typeof,
    unshard,
)
from shardwise.checker import SpmdTypeMode
from shardwise.rulecheck import rulecheck
from shardwise.rules import register_rule
from shardwise.train import auxiliary, rng, token_count, token_mean

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
tp: MeshAxis = spmd.normalize_axis("tp")
group: ProcessGroup = mesh.get_group("tp")
types: PerMeshAxisSpmdTypes = {"dp": S(0), "tp": R}


inferred = {"dp": S(0), "tp": R}
local = {"dp": V, "tp": R}
by_axis = {tp: S(0)}


def step(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    x = assert_type(x, types)
    x = assert_type(x, {tp: R}, {group: R}, PartitionSpec("dp", None))
    x = assert_type(x, inferred, by_axis)
    x = assert_type(x, SpmdType(local, PartitionSpec(("dp", "tp"))), SpmdType(inferred))
    spmd.assert_type_like(x, x, inferred)
    x = spmd.mutate_type(x, src=local, dst=inferred)
    x = assert_type(x, SpmdType({"dp": V}, PartitionSpec(("dp", "tp"))), R, even=True)
    y: Tensor = all_reduce(spmd.linear(x, weight, bias, axis="tp", src=S(1), dst=P), "tp", src=P, dst=R)
    y = all_gather(y, tp, src=S(0), dst=R, backward_options={"op_dtype": torch.float32})
    y = reduce_scatter(y, group, src=P, dst=S(0), split_sizes=[1, 2])
    y = all_to_all(y, "tp", src=S(0), dst=S(1))
    y = redistribute(y, "tp", src=S(1), dst=R, op_dtype=torch.float32)
    y = convert(y, "tp", src=R, dst=S(0))
    y = unshard(y, "tp", src=S(0), dst=R, gather_dim=0)
    y = shard(y, "tp", src=R, dst=S(0), split_sizes=(1, 1))
    y = reinterpret(y, "tp", src=V, dst=P)
    y = spmd.einsum("ij,jk->ik", x, weight, out_partial_axes="tp")
    y = spmd.matmul(x, weight, out_partial_axes=("dp", "tp"))
    y = spmd.sum(y, dim=0, keepdim=True, out_partial_axes="tp")
    y = spmd.mean(y, 0, count=4, out_partial_axes="tp")
    return reveal_type(y)


@local_map(in_types=inferred, out_types=local)
def typed_body(x: Tensor) -> Tensor:
    return x


@local_map(in_types=Infer, out_types={"tp": R})
def body(x: Tensor) -> Tensor:
    return x


@no_typecheck
def quiet(x: Tensor) -> Tensor:
    return x


@no_typecheck(in_types=Infer, out_types={"tp": R})
def trusted(x: Tensor) -> Tensor:
    return x


@register_no_typecheck
def unseen(x: Tensor) -> Tensor:
    return x


@register_autograd_function
class Double(torch.autograd.Function):
    """Twice its operand."""


@register_decomposition(Double)
def double(x: Tensor) -> Tensor:
    return 2 * x


def program(model: nn.Module, losses: Tensor) -> None:
    with set_current_mesh(mesh), typecheck(local=False), SpmdTypeMode(strict_mode="permissive"), no_typecheck():
        shown: str = str(typeof(losses))
        stream = rng(0, synchronised="tp", distinct=("dp",))
        count = token_count(losses, "dp")
        loss: Tensor = token_mean(losses, "dp", count=count, averaged="dp") + auxiliary(losses, "dp", src=P)
        contract = TrainingContract(model, {"*.norm.*": {"tp": "step"}}, types={"*": {"tp": R}}, meshes=[mesh])
        norm: Tensor = spmd.grad_norm(model.parameters(), contract=contract, over=["tp"])
        scale = Scalar(2.0, {"tp": R})
        print(shown, stream, loss, norm, scale, body(losses), quiet(losses), trusted(losses), unseen(losses))
        print(Scalar(2.0, local), typed_body(losses), TrainingContract(model, types={"*": inferred}))
    with set_current_mesh({"dp": MeshAxis.of(2, 2), "tp": tp}, local_axes=["dp"]):
        spmd.mutate_type(losses, "tp", src=V, dst=P)
        spmd.mutate_type(losses, src={"tp": V}, dst={"tp": P})
        spmd.assert_type_like(losses, losses, {"tp": R})


checks: Callable[..., object] = rulecheck
rule: Callable[..., object] = register_rule
