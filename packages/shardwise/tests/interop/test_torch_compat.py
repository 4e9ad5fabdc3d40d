"""A canary for every private name of torch: it is there, and does what it is used for."""

import inspect
import types
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.overrides import TorchFunctionMode

from shardwise.interop import torch_compat
from shardwise.interop.torch_compat import registry
from shardwise.interop.torch_compat.registry import MissingName, PatchPoint, PrivateName, missing, registered, resolve

PATCHED = [name for name in vars(torch_compat) if isinstance(getattr(torch_compat, name), PatchPoint)]


@pytest.fixture
def world():
    with torch_compat.fake_world(0, 2):
        yield


@pytest.mark.parametrize("private", registered(), ids=lambda private: private.name)
def test_the_installed_torch_has_the_name(private):
    resolve(private.name)
    assert private.purpose
    assert private.lost
    assert private.tier in (1, 2)


@pytest.mark.parametrize("name", PATCHED)
def test_what_is_replaced_is_a_function_of_its_owner(name):
    point = getattr(torch_compat, name)
    assert callable(vars(point.owner())[point.attribute].__get__(None, object))


def test_nothing_is_missing():
    assert missing() == []


@pytest.mark.parametrize(
    "name",
    [
        "torch._nowhere",
        "torch._C._nowhere",
        "torch.nn.Module:_nowhere",
        "torch.distributed.device_mesh.DeviceMesh.__init__(_nowhere)",
    ],
)
def test_a_name_that_torch_does_not_have_is_missing(name, monkeypatch):
    monkeypatch.setattr(registry, "_registry", {name: PrivateName(name, "what for", "what is lost")})
    assert [private.name for private in missing()] == [name]
    with pytest.raises(MissingName, match=r"does not have torch.*what is lost"):
        resolve(name)


@pytest.mark.parametrize(
    ("since", "until", "expected"), [("2.13.0", "", True), ("9.0", "", False), ("1.0", "2.0", False)]
)
def test_a_name_is_expected_of_the_versions_that_have_it(since, until, expected):
    assert PrivateName("torch._x", "", "", 1, since, until).expected is expected


def test_operators_of_torch_ops():
    add = torch.ops.aten.add
    assert isinstance(add, torch_compat.OpOverloadPacket)
    assert isinstance(add.Tensor, torch_compat.OpOverload)
    assert isinstance(torch.ops.higher_order.cond, torch_compat.HigherOrderOperator)
    assert torch_compat.operator_parameters(add) == ("self", "other", "alpha")
    assert torch_compat.operator_parameters(len) == ()
    assert torch_compat.qualified_name(add) == "aten::add"
    assert torch_compat.qualified_name(add.Tensor) == "aten::add.Tensor"
    assert torch_compat.schema_name(add.Tensor) == "add"
    assert torch_compat.functional_collectives.all_reduce.default.namespace in torch_compat.FUNCTIONAL_NAMESPACES
    assert torch.add.__qualname__.startswith(torch_compat.METHODS_OF_TORCH)
    for name in torch_compat.WAITS:
        assert hasattr(torch.ops._c10d_functional, name) or hasattr(torch.ops._c10d_functional_autograd, name)
    assert {torch.zeros, torch.arange} <= torch_compat.factories()
    assert resolve(torch_compat.MODULE_OF_FACTORIES).__name__ == torch_compat.MODULE_OF_FACTORIES
    assert torch_compat.parse_to("cpu", torch.float16)[:2] == (torch.device("cpu"), torch.float16)


def test_operators_of_aten_with_their_overloads():
    adding = torch_compat.aten_overloads()["add"]
    assert torch.ops.aten.add.Tensor in adding
    schema = torch_compat.schema_of(torch.ops.aten.add.Tensor)
    assert [argument.name for argument in schema.arguments] == ["self", "other", "alpha"]
    assert schema.overload_name == "Tensor"


def test_the_kernels_of_an_operator():
    assert "CompositeImplicitAutograd" in torch_compat.dispatch_keys("aten::linear")
    assert {"CPU", "Meta"} <= set(torch_compat.dispatch_keys("aten::mm"))
    assert "CompositeImplicitAutograd" not in torch_compat.dispatch_keys("aten::mm")
    assert set(torch_compat.dispatch_keys("aten::mm")) <= set(torch_compat.DISPATCH_KEYS)


def test_the_memory_of_tensors():
    x = torch.zeros(4, 4)
    assert torch_compat.base_of(x[0]) is x
    assert torch_compat.base_of(x) is None
    assert torch_compat.same_memory(x, x.detach())
    assert not torch_compat.same_memory(x, x.clone())
    assert torch_compat.storage_key(x[1]) == torch_compat.storage_key(x)
    assert torch_compat.storage_of(x).data_ptr() == x.data_ptr()
    assert torch_compat.storage_of(torch.eye(2).to_sparse()) is None


def test_hooks_on_tensors():
    x = torch.zeros(2, requires_grad=True)
    assert torch_compat.hook_tables(x) == ({}, {})
    before, after = (lambda gradient: None), (lambda tensor: None)
    x.register_hook(before)
    x.register_post_accumulate_grad_hook(after)
    assert [list(table.values()) for table in torch_compat.hook_tables(x)] == [[before], [after]]


def test_kernels_on_lists_and_version_counters():
    tensors = [torch.ones(4), torch.full((9,), 2.0)]
    assert [float(norm) for norm in torch_compat.foreach_norm(tensors, 2.0, torch.float64)] == [2.0, 6.0]
    torch_compat.foreach_scale_(tensors, torch.tensor(3.0))
    assert tensors[1].eq(6).all()
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    with torch_compat.keeping_version(y), torch.no_grad():
        y.mul_(1.0)
        assert torch_compat.writes_of(y) == 1
    assert torch_compat.writes_of(y) == 0
    with torch.inference_mode():
        assert torch_compat.writes_of(torch.ones(2)) is None
    y.sum().backward()
    assert x.grad is not None


def test_fake_tensors():
    real = torch.ones(2)
    mode = torch_compat.fake_tensor_mode()
    with torch_compat.without_data(mode):
        made = real + 1
    assert torch_compat.is_fake(made)
    assert not torch_compat.is_fake(real)
    assert torch_compat.fake_mode_of(made) is mode
    torch_compat.forget_fakes(mode)
    assert real.eq(1).all()


def test_backward_and_its_nodes():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):
            seen.append(torch_compat.in_backward())
            return 2 * gradient

    seen: list[bool] = []
    y = Twice.apply(torch.ones(2, requires_grad=True))
    assert torch_compat.forward_class(y.grad_fn) is Twice
    assert torch_compat.forward_class((2 * y).grad_fn) is None
    y.sum().backward()
    assert seen == [True]
    assert not torch_compat.in_backward()


def test_what_a_node_keeps_for_backward():
    x = torch.ones(3, 2, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(x, torch.tensor([0, 1, -100]))
    half = loss / 2
    assert torch_compat.saved_by(loss.grad_fn, "total_weight") == torch.tensor(2.0)
    assert torch_compat.saved_by(half.grad_fn, "other") == torch.tensor(2)
    assert torch_compat.saved_by(x.mean().grad_fn, "self_sym_numel") == 6
    assert torch_compat.saved_by(half.grad_fn, "nothing") is None
    half.backward()
    assert torch_compat.saved_by(loss.grad_fn, "self") is None


@pytest.mark.parametrize(
    "name",
    ["BACKWARD_HOOK_FUNCTION", "POST_BACKWARD_FUNCTION", "FUNCTIONAL_COLLECTIVES", "DDP_SINK", "MASK_INDEXING"],
)
def test_autograd_functions_of_torch_are_where_they_were(name):
    found = resolve(getattr(torch_compat, name))
    assert isinstance(found, types.ModuleType) or issubclass(found, torch.autograd.Function)


class Counting(TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "hidden", [torch_compat.no_torch_function, torch_compat.without_torch_function, torch_compat.no_modes]
)
def test_modes_that_are_kept_from_seeing(hidden):
    with Counting() as mode:
        assert torch_compat.function_modes()[-1] is mode
        assert torch_compat.count_function_modes() == len(torch_compat.function_modes())
        with hidden():
            torch.ones(2) + 1
        assert mode.calls == 0
        torch.ones(2)
    assert mode.calls == 1


def test_a_dispatch_mode_sees_operators():
    class Watch(torch_compat.DispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen: list[object] = []
    with Watch():
        torch.ones(2) + 1
        with torch_compat.no_modes():
            torch.ones(2) * 2
    assert torch.ops.aten.add.Tensor in seen
    assert torch.ops.aten.mul.Tensor not in seen


def test_nested_containers():
    value = {"a": [1, (2, None)]}
    assert torch_compat.tree_leaves(value) == [1, 2, None]
    assert torch_compat.tree_map(str, value) == {"a": ["1", ("2", "None")]}
    assert torch_compat.tree_match([1, 2], ["x", ["y"]]) == ([1, 2], ["x", ["y"]])
    assert torch_compat.tree_structure([1, 2]) == torch_compat.tree_structure([3, 4])


def test_tensors_of_torch_func():
    batched, differentiated, outside = [], [], []

    def inside(x):
        batched.append((torch_compat.is_batched(x), torch_compat.is_transformed(x)))
        assert torch_compat.transforms_active()
        with torch_compat.outside_transforms():
            outside.append(torch_compat.is_transformed(torch.ones(2) + 1))
        return x.sum()

    def derived(x):
        differentiated.append((torch_compat.is_batched(x), torch_compat.is_transformed(x)))
        return x.sum()

    assert not torch_compat.transforms_active()
    torch.vmap(inside)(torch.ones(2, 3))
    torch.func.grad(derived)(torch.ones(3))
    assert (batched, differentiated, outside) == ([(True, True)], [(False, True)], [False])


def test_what_stands_behind_a_tensor_of_torch_func():
    flowing, behind = [], []

    def inside(x):
        flowing.append(torch_compat.takes_gradient(x))
        behind.append(torch_compat.within_transforms(x))
        return x.sum()

    plain, weight = torch.ones(2, 3), torch.ones(2, 3, requires_grad=True)
    for x in (plain, weight):
        torch.vmap(inside)(x)
        assert behind[-1] is x
        assert torch_compat.within_transforms(x) is x
    assert flowing == [False, True]
    assert (torch_compat.takes_gradient(plain), torch_compat.takes_gradient(weight)) == (False, True)


def test_notes_for_the_compiler_are_arguments_of_higher_order_operators():
    known = set()
    for operator in (torch.ops.higher_order.scan, torch.ops.higher_order.map_impl):
        known |= set(inspect.signature(type(operator).__call__).parameters)
    since = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)
    assert (known >= torch_compat.COMPILERS_NOTES) == since


def test_functions_that_are_constants_when_compiled():
    @torch_compat.constant_when_compiled
    def constant():
        return 3

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * constant(), backend="eager", fullgraph=True)
    assert compiled(torch.ones(1)).item() == 3


def test_each_call_of_a_compiled_function_asks_whether_to_compile(monkeypatch):
    asked = []
    plain = torch._dynamo.eval_frame._callback_from_stance
    name = torch_compat.COMPILING_CALLBACK.attribute
    monkeypatch.setattr(torch_compat.COMPILING_CALLBACK.owner(), name, lambda given: asked.append(given) or None)
    torch._dynamo.reset()
    assert torch.compile(lambda x: x * 2, backend=lambda graph, inputs: 1 / 0)(torch.ones(2)).tolist() == [2, 2]
    assert any(callable(callback) for callback in asked)
    assert plain(None) is None


def test_a_function_that_must_be_compiled_whole_may_be_left_as_it_is(monkeypatch):
    name = torch_compat.COMPILING_CALLBACK.attribute
    torch._dynamo.reset()
    whole = torch.compile(lambda x: x * 2, backend="eager", fullgraph=True)
    monkeypatch.setattr(torch_compat.COMPILING_CALLBACK.owner(), name, lambda given: None)
    with pytest.raises(RuntimeError, match="no compiled frames"):
        whole(torch.ones(2))
    monkeypatch.setattr(torch_compat.COMPILING_CALLBACK.owner(), name, lambda given: torch_compat.expect_no_graph())
    assert whole(torch.ones(2)).tolist() == [2, 2]


def test_a_scripted_function_remembers_what_it_was_made_of():
    def double(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    assert torch_compat.function_scripted(torch.jit.script(double)) is double
    assert torch_compat.function_scripted(torch.jit.trace(double, torch.ones(1))) is double
    assert torch_compat.function_scripted(double) is None


def test_the_database_of_operators():
    assert "add" in {op.name for op in torch_compat.op_database()}


def test_dtensors(world):
    mesh = init_device_mesh("cpu", (2,))
    local = torch.ones(2, 2, requires_grad=True)
    made = DTensor.from_local(local, mesh, [Shard(0)])
    assert torch_compat.enters_dtensor(torch_compat.forward_class(made.grad_fn))
    assert torch_compat.leaves_dtensor(torch_compat.forward_class(made.to_local().grad_fn))
    assert torch_compat.local_tensor_of(made).data_ptr() == local.data_ptr()
    assert not torch_compat.is_strided_shard(Shard(0))
    assert torch_compat.is_strided_shard(
        resolve("torch.distributed.tensor.placement_types._StridedShard")(0, split_factor=2)
    )
    whole = DTensor.from_local(torch.ones(4, 2), mesh, [Replicate()])
    with pytest.raises(RuntimeError), torch_compat.without_redistribution():
        made.detach() + whole.redistribute(placements=[Shard(1)])
    with torch_compat.decompositions_without_redistribution():
        loss = torch.nn.functional.huber_loss(made.detach(), made.detach(), reduction="none")
    assert loss.placements == (Shard(0),)


def test_results_of_dtensors_have_an_old_mesh_until_it_is_forgotten(world):
    old, new = (DeviceMesh("cpu", [0, 1]) for _ in range(2))
    assert old == new
    assert old is not new
    torch_compat.forget_dtensor_calls()
    results = []
    for mesh in (old, new):
        x = DTensor.from_local(torch.ones(2, 2), mesh, [Shard(0)])
        results.append(torch.cumsum(x, 1))
    assert [made.device_mesh is old for made in results] == [True, True]
    torch_compat.forget_dtensor_calls()
    made = torch.cumsum(DTensor.from_local(torch.ones(2, 2), new, [Shard(0)]), 1)
    assert made.device_mesh is new


def test_parameters_of_fully_shard(world):
    from torch.distributed.fsdp import fully_shard

    made = []
    point = torch_compat.MAKE_PARAMETER
    with pytest.MonkeyPatch.context() as patch:
        plain = vars(point.owner())[point.attribute]
        patch.setattr(
            point.owner(), point.attribute, lambda self, *args, **kw: (made.append(self), plain(self, *args, **kw))[1]
        )
        model = fully_shard(torch.nn.Linear(4, 4, bias=False), mesh=init_device_mesh("cpu", (2,)))
    (parameter,) = made
    assert torch_compat.gathered_parameter(parameter) is None
    kept, mesh = torch_compat.sharded_parameter(parameter)
    assert kept is model.weight
    assert mesh.size() == 2
    model.unshard()
    assert torch_compat.gathered_parameter(parameter).shape == (4, 4)
    assert not torch_compat.keeps_gradient(parameter)
    torch_compat.gathered_parameter(parameter).grad = torch.zeros(4, 4)
    assert torch_compat.keeps_gradient(parameter)
    assert not torch_compat.is_flattened(model.weight)
    assert torch_compat.held_over_replicas(model) == []


@pytest.mark.parametrize("kept", [True, False], ids=["originals kept", "flat"])
def test_parameters_of_the_older_wrapper(world, kept):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(torch.nn.Linear(4, 4), use_orig_params=kept, device_id=torch.device("cpu"))
    assert [torch_compat.is_flattened(one) for one in model.parameters()] == ([True, True] if kept else [True])


def test_groups_and_handles(world):
    group = dist.group.WORLD
    assert torch_compat.default_group_exists()
    assert torch_compat.groups_in_order() == [group]
    assert torch_compat.ranks_by_group_name() == {group.group_name: (0, 1)}
    assert torch_compat.group_named(group.group_name) is group
    told = []
    with torch_compat.groups_watched(told.append), torch_compat.default_backend_everywhere():
        made = dist.new_group([0, 1], backend="nccl")
    assert told == [(0, 1)]
    assert dist.get_backend(made) == "fake"
    work = dist.all_reduce(torch.ones(1), async_op=True)
    assert isinstance(work, torch_compat.fake_work())
    assert isinstance(work, torch_compat.Work)
    assert torch_compat.async_tensor(torch.ones(2)).shape == (2,)
    torch_compat.forget_groups()
    assert not torch_compat.default_group_exists()
    dist.init_process_group("fake", rank=0, world_size=2, store=dist.HashStore())


def test_ranks_that_one_process_simulates(world):
    from torch.distributed._local_tensor import LocalTensorMode

    assert torch_compat.simulated_ranks() is None
    with LocalTensorMode(2) as mode:
        assert torch_compat.simulated_ranks() is mode
        assert mode.ranks == {0, 1}
        numbered = mode.rank_map(lambda rank: torch.full((1,), float(rank)))
        mode.tensor_map(numbered, lambda rank, own: own.add_(rank))
        assert str(numbered.sum()).count("2.") == 1
    assert torch_compat.simulated_ranks() is None


def test_what_operators_of_c10d_are_given(world):
    class Watch(torch_compat.DispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if func.namespace == "c10d":
                seen.append((torch_compat.schema_name(func), torch_compat.unboxed_group(args[1]), result[1]))
            return result

    seen: list[tuple[str, object, object]] = []
    with Watch():
        work = dist.all_reduce(torch.ones(1), async_op=True)
    ((name, group, boxed),) = seen
    assert (name, group) == ("allreduce_", dist.group.WORLD)
    assert torch_compat.unboxed_work(boxed) is work


def test_flight_records_are_read(world):
    assert isinstance(torch_compat.flight_records(), list)


def test_meshes_of_one_rank(world):
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    args, options = torch_compat.mesh_of_one_rank(("cpu", [0, 1]), {})
    assert DeviceMesh(*args, **options).size() == 1
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        plain = DeviceMesh.__init__
        patch.setattr(DeviceMesh, "__init__", lambda self, *a, **o: (asked.append(o), plain(self, *a, **o))[1])
        init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))["tp"]
    whole, *parts = [torch_compat.is_part_of_mesh(options) for options in asked]
    assert not whole
    assert parts
    assert all(parts)
    assert mesh.size() == 2


def test_flattened_meshes():
    with torch_compat.fake_world(0, 4):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        assert torch_compat.flattened_meshes(mesh) == {}
        flat = mesh["dp", "tp"]._flatten("both")
        assert torch_compat.flattened_meshes(mesh) == {"both": flat}
        assert torch_compat.flattened_meshes(mesh["tp"]) == {"both": flat}


def test_the_steps_of_a_redistribution():
    with torch_compat.fake_world(0, 4):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        steps = torch_compat.redistribution_steps(
            mesh, (4, 8), torch.float32, (Shard(0), Replicate()), (Replicate(), Shard(1))
        )
    assert steps == [(1, Replicate(), Shard(1)), (0, Shard(0), Replicate())]


def test_hooks_of_a_wrapper(world):
    wrapper = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    assert torch_compat.communication_hooks(wrapper) == []

    def hook(state, bucket):
        return bucket.buffer()

    wrapper.register_comm_hook("state", hook)
    assert torch_compat.communication_hooks(wrapper) == [(hook, "state")]


def test_parameters_that_a_wrapper_reduces(world):
    """Those that the module had, whatever it has by now."""
    module = torch.nn.Linear(2, 2)
    wrapper, before = torch.nn.parallel.DistributedDataParallel(module), list(module.parameters())
    del module.weight
    assert [id(one) for one in torch_compat.reduced_parameters(wrapper)] == [*map(id, before)]


ELSEWHERE = {
    "flat_parameters": "checker/test_sharded_parameters.py",
    "groups_per_thread": "worlds/test_in_process.py",
    "preload": "verifier/test_verify.py",
}
"""Accessors whose canary is a test of what they are for."""
OF_THE_REGISTRY = {"TESTED", "MissingName", "PatchPoint", "PrivateName", "missing", "outside", "registered", "resolve"}


def test_every_accessor_has_its_canary():
    here = Path(__file__).read_text("utf-8")
    public = {
        name
        for name, value in vars(torch_compat).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    used = {name for name in public if f"torch_compat.{name}" in here or f'"{name}"' in here}
    assert public - used - OF_THE_REGISTRY - set(PATCHED) == set()
    tests = Path(__file__).parents[1]
    assert [path for path in ELSEWHERE.values() if not (tests / path).is_file()] == []


def test_the_matrix_runs_the_range_that_is_said_to_be_tested():
    root = Path(__file__).parents[4]
    ((torches,),) = [
        line.split("?=")[1:] for line in (root / "Makefile").read_text().splitlines() if line[:7] == "TORCHES"
    ]
    assert tuple(torches.split()) == registry.TESTED
    wanted = registry.TESTED[0].rpartition(".")[0]
    assert f'"torch>={wanted}"' in (root / "packages/shardwise/pyproject.toml").read_text()


def test_a_registered_container_is_looked_into_and_comes_back_as_a_plain_tuple():
    class Pieces(tuple[int, ...]):
        pass

    assert torch_compat.tree_leaves(Pieces((1, 2)))[0] == (1, 2)
    torch_compat.register_container(Pieces, tuple)
    torch_compat.register_container(Pieces, tuple)
    assert torch_compat.tree_leaves(Pieces((1, 2))) == [1, 2]
    assert type(torch_compat.tree_map(str, Pieces((1, 2)))) is tuple
