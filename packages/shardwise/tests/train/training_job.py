"""A training job of one rank of two, over the fake backend, that uses every public runtime function; run as a program.

``USES`` has an entry per name, so that a test can compare it with the public names. It fails if a module of the checker
is loaded at the end.
"""

import sys

import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate

import shardwise as spmd
from shardwise import train
from shardwise.interop.torch_compat import fake_world
from shardwise.types.placement import I, P, R, S, V


class Scale(torch.autograd.Function):
    """A user's autograd function."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class Ruled(Scale):
    @staticmethod
    def spmd_typecheck(out, *, x):
        return None


class Decomposed(Scale):
    pass


def leaf(*shape):
    return torch.ones(shape or (4, 4), requires_grad=True)


def typed(x=None):
    return spmd.assert_type(leaf() if x is None else x, {"tp": R})


def backward(x):
    x.sum().backward()
    return x


def in_block(context):
    with context:
        return backward(F.linear(leaf(), leaf()))


def declared(decorate):
    return decorate(lambda x: 2 * x)(leaf())


def applied(cls):
    return backward(cls.apply(leaf()))


def hooked(register):
    model = torch.nn.Linear(4, 4)
    model.register_full_backward_hook(register(lambda module, inputs, outputs: None))
    return backward(model(leaf()))


def redistributed():
    sharding = spmd.TensorSharding(None, None)
    return spmd.spmd_redistribute(DTensor.from_local(torch.ones(4, 4), MESH, [Replicate()]), sharding, sharding)


def gradients():
    model = torch.nn.Linear(4, 4)
    backward(model(torch.ones(2, 4)))
    return model


def contract(model, **options):
    return spmd.TrainingContract(model, types={"*": {"tp": R}}, **options)


def norm():
    model = gradients()
    return train.grad_norm(model.parameters(), contract=contract(model))


def step():
    made = contract(gradients(), owed={"*": {"tp": "step"}})
    made.finalize()
    return str(made)


USES = {
    "assert_type": typed,
    "assert_type_like": lambda: spmd.assert_type_like(typed(), typed()),
    "assert_local_type": lambda: spmd.assert_local_type(leaf(), {"tp": R}),
    "assert_local_type_like": lambda: spmd.assert_local_type_like(typed(), typed()),
    "merge_types": lambda: spmd.merge_types({"tp": R}, {"tp": R}),
    "mutate_type": lambda: spmd.mutate_type(typed(), "tp", src=R, dst=I),
    "reinterpret_no_grad": lambda: spmd.reinterpret_no_grad(typed(torch.ones(4)), "tp", dst=R),
    "get_local_type": lambda: spmd.get_local_type(typed()),
    "get_axis_local_type": lambda: spmd.get_axis_local_type(spmd.Scalar(1.0, {"tp": R}), "tp"),
    "maybe_get_axis_local_type": lambda: spmd.maybe_get_axis_local_type(typed(), "tp"),
    "has_local_type": lambda: spmd.has_local_type(typed()),
    "get_partition_spec": lambda: spmd.get_partition_spec(typed()),
    "typeof": lambda: spmd.typeof(typed()),
    "draw": lambda: str(spmd.draw(typed())),
    "Drawing": lambda: spmd.draw("f32[4@tp]", mesh={"tp": 2}).svg(),
    "reveal_type": lambda: spmd.reveal_type(typed()),
    "reinterpret_mesh": lambda: spmd.reinterpret_mesh(typed(), {"tp": R}),
    "Scalar": lambda: spmd.Scalar(2.0, {"tp": R}) * leaf(),
    "all_reduce": lambda: backward(spmd.all_reduce(leaf(), "tp", src=P, dst=R)),
    "all_gather": lambda: backward(spmd.all_gather(leaf(), "tp", src=S(0), dst=R)),
    "reduce_scatter": lambda: backward(spmd.reduce_scatter(leaf(), "tp", src=P, dst=S(0))),
    "all_to_all": lambda: backward(spmd.all_to_all(leaf(), "tp", src=S(0), dst=S(1))),
    "unshard": lambda: backward(spmd.unshard(leaf(), "tp", src=S(0), dst=R)),
    "convert": lambda: backward(spmd.convert(leaf(), "tp", src=I, dst=R)),
    "reinterpret": lambda: backward(spmd.reinterpret(leaf(), "tp", src=R, dst=V, expert_mode=True)),
    "shard": lambda: backward(spmd.shard(leaf(), "tp", src=R, dst=S(0))),
    "invariant_to_replicate": lambda: backward(spmd.invariant_to_replicate(leaf(), "tp")),
    "redistribute": lambda: backward(spmd.redistribute(leaf(), "tp", src=S(0), dst=R)),
    "linear": lambda: backward(spmd.linear(leaf(), leaf(), out_partial_axes="tp")),
    "matmul": lambda: backward(spmd.matmul(leaf(), leaf(), out_partial_axes="tp")),
    "einsum": lambda: backward(spmd.einsum("ij,jk->ik", leaf(), leaf(), out_partial_axes="tp")),
    "sum": lambda: backward(spmd.sum(leaf(), 0, out_partial_axes="tp")),
    "mean": lambda: backward(spmd.mean(leaf(), 0, out_partial_axes="tp")),
    "set_dist": lambda: spmd.set_dist(None),
    "spmd_type_to_dtensor_placement": lambda: spmd.spmd_type_to_dtensor_placement(R),
    "dtensor_placement_to_spmd_type": lambda: spmd.dtensor_placement_to_spmd_type(Replicate(), Replicate()),
    "spmd_redistribute": redistributed,
    "checkpoint_value": lambda: spmd.checkpoint_value("x", leaf()),
    "is_type_checking": lambda: spmd.is_type_checking(),
    "TYPE_CHECKING": lambda: bool(spmd.TYPE_CHECKING),
    "local": lambda: in_block(spmd.local()),
    "local_map": lambda: declared(spmd.local_map(out_types={"tp": V})),
    "no_typecheck": lambda: declared(spmd.no_typecheck(out_types={"tp": V})),
    "register_no_typecheck": lambda: declared(spmd.register_no_typecheck),
    "register_autograd_function": lambda: applied(spmd.register_autograd_function(Ruled)),
    "register_local_autograd_function": lambda: applied(spmd.register_local_autograd_function(Scale)),
    "register_straight_through": lambda: applied(spmd.register_straight_through(Scale)),
    "register_decomposition": lambda: (spmd.register_decomposition(Decomposed, lambda x: 2 * x), applied(Decomposed)),
    "register_local_backward_hook": lambda: hooked(spmd.register_local_backward_hook),
    "trace": lambda: in_block(spmd.trace()),
    "synchronised_rng": lambda: in_block(spmd.synchronised_rng("tp")),
    "traceback_filtering": lambda: spmd.traceback_filtering(),
    "MeshAxis": lambda: spmd.MeshAxis.of(2, 1),
    "set_current_mesh": lambda: in_block(spmd.set_current_mesh(MESH)),
    "current_mesh": lambda: spmd.current_mesh(),
    "current_mesh_names": lambda: spmd.current_mesh_names(),
    "current_mesh_all_names": lambda: spmd.current_mesh_all_names(),
    "normalize_axis": lambda: spmd.normalize_axis("tp"),
    "normalize_mesh": lambda: spmd.normalize_mesh({"tp"}),
    "normalize_partition_spec": lambda: spmd.normalize_partition_spec(spmd.PartitionSpec("tp", None)),
    "rng": lambda: in_block(train.rng(0, synchronised="tp")),
    "RandomStream": lambda: isinstance(train.rng(0, synchronised="tp"), train.RandomStream),
    "TrainingContract": step,
    "grad_norm": norm,
    "clip_grad_norm_": lambda: train.clip_grad_norm_(gradients().parameters(), 1.0, over=("tp",)),
    "token_count": lambda: train.token_count(torch.ones(2, 4), "tp"),
    "token_mean": lambda: backward(train.token_mean(leaf(2, 4), "tp", count=16)),
    "auxiliary": lambda: train.auxiliary(leaf(1)[0], "tp", src=R),
}

if __name__ == "__main__":
    with fake_world(0, 2):
        MESH = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        for name, use in USES.items():
            try:
                with spmd.set_current_mesh(MESH):
                    use()
            except Exception as error:
                raise RuntimeError(f"while using {name}") from error
    loaded = sorted(module for module in sys.modules if module.startswith("shardwise.checker"))
    sys.exit(f"loaded: {loaded}" if loaded else 0)
