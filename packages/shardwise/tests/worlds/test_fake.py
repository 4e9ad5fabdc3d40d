"""One process plays one rank of a job: what a torchrun script asks for is there, and nothing is left behind."""

from __future__ import annotations

import inspect
import os
import re
import sys
import threading
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from shardwise.diagnostics.errors import SpmdTypeError, SpmdValueError
from shardwise.worlds.absent_objects import OtherRanksNeeded
from shardwise.worlds.fake import TorchrunJob, fake_world

EVERY_KIND = pytest.mark.parametrize("kind", [{}, {"fake": True}, {"device": "meta"}], ids=["cpu", "fake", "meta"])


@pytest.fixture
def world():
    with fake_world(5, 16) as world:
        yield world


def test_the_variables_of_torchrun_are_set(world):
    assert os.environ["RANK"] == os.environ["LOCAL_RANK"] == "5"
    assert os.environ["WORLD_SIZE"] == "16"
    assert os.environ["LOCAL_WORLD_SIZE"] == "8"
    assert {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"} <= set(os.environ)


def test_local_rank_starts_again_on_each_host():
    assert TorchrunJob(16, 13).variables["LOCAL_RANK"] == "5"
    assert TorchrunJob(16, 13).variables["GROUP_RANK"] == "1"


def test_everything_is_put_back():
    before = dict(os.environ)
    names = [(dist, "init_process_group"), (torch.cuda, "is_available"), (torch, "compile"), (torch, "load")]
    originals = [getattr(owner, name) for owner, name in names]
    init, hook = torch.nn.parallel.DistributedDataParallel.__init__, sys.excepthook
    with pytest.raises(ZeroDivisionError), fake_world(0, 4):
        dist.init_process_group("gloo")
        raise ZeroDivisionError
    assert dict(os.environ) == before
    assert [getattr(owner, name) for owner, name in names] == originals
    assert torch.nn.parallel.DistributedDataParallel.__init__ is init
    assert sys.excepthook is hook
    assert not dist.is_initialized()
    assert not torch.overrides._get_current_function_mode_stack()


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_a_rank_is_asked_for_rows_that_it_has(rank):
    rows, ids = 16, torch.tensor([13, 1, 2, 6, 9, 15, 0, 5])
    with fake_world(rank, 4):
        dist.init_process_group("gloo")
        owner = ids // (rows // 4)
        order = owner.argsort(stable=True)
        send = torch.bincount(owner, minlength=4)
        counts = torch.empty_like(send)
        dist.all_to_all_single(counts, send)
        assert counts.tolist() == send.tolist()
        asked = ids.new_empty(int(counts.sum()))
        dist.all_to_all_single(asked, ids[order], counts.tolist(), send.tolist())
        assert set(asked.tolist()) == set(ids[owner == rank].tolist())
        work = dist.all_to_all_single(asked, ids[order], async_op=True)
        work.wait()
        own = ids[order].chunk(4)[rank]
        assert asked.tolist() == own.tolist() * 4


def test_other_exchanges_give_back_what_was_sent(world):
    dist.init_process_group("gloo")
    for sent in (torch.arange(32.0), torch.arange(32) > 3, torch.arange(16)):
        came = torch.empty_like(sent)
        dist.all_to_all_single(came, sent)
        assert torch.equal(came, sent)
    nothing, lengths = torch.arange(32), [0 if at == 5 else 2 for at in range(16)]
    came = torch.zeros(32, dtype=torch.long)
    dist.all_to_all_single(came, nothing[:30], [2] * 16, lengths)
    assert came.max() < 30


def test_rows_arrive_though_nobody_asks_for_those_of_this_rank(world):
    """How many it sends has come from others, who are not there."""
    dist.init_process_group("gloo")
    came = torch.ones(32, 2)
    dist.all_to_all_single(came, torch.empty(0, 2), [2] * 16, [0] * 16)
    assert torch.equal(came, torch.zeros(32, 2))


def test_whole_numbers_are_counted_in_bins_as_on_a_gpu() -> None:
    experts = torch.tensor([0, 2, 2, 3])
    with fake_world(0, 2):
        assert torch.histc(experts, bins=4, min=0, max=3).tolist() == [1, 0, 2, 1]
        assert experts.histc(4, 0, 3).dtype == torch.int64
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        torch.histc(experts, bins=4, min=0, max=3)


def test_attention_takes_dtensors_as_the_kernels_of_gpus_do() -> None:
    with fake_world(0, 2):
        mesh = init_device_mesh("cuda", (2,))
        query = distribute_tensor(torch.randn(1, 4, 6, 8), mesh, [Shard(1)])
        seen = F.scaled_dot_product_attention(query, query, value=query, is_causal=True)
        assert (seen.shape, seen.placements) == ((1, 4, 6, 8), (Shard(1),))


@pytest.mark.parametrize("backend", ["nccl", "gloo", "cpu:gloo,cuda:nccl", None])
def test_any_backend_joins_the_fake_world(world, backend):
    dist.init_process_group(backend, init_method="env://")
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (5, 16, "fake")
    assert dist.new_group([4, 5], backend="nccl").size() == 2


def test_a_device_mesh_starts_the_world_by_itself(world):
    mesh = init_device_mesh("cuda", (4, 4), mesh_dim_names=("dp", "tp"))
    assert dist.get_world_size() == 16
    assert mesh["tp"].get_group().size() == 4
    assert tuple(mesh.get_coordinate()) == (1, 1)


@pytest.mark.parametrize(
    ("call", "words", "help"),
    [
        (lambda: dist.init_process_group(world_size=4, rank=5), "a world of 4 ranks, but the check runs with 16", "4"),
        (lambda: dist.init_process_group(world_size=16, rank=2), "it is rank 2, but the check runs rank 5", "--rank 2"),
        (lambda: dist.init_device_mesh("cpu", (8, 4)), "8 x 4 = 32 ranks does not fit into a world of 16", "32"),
    ],
)
def test_a_script_that_wants_another_world_is_told_the_numbers(world, call, words, help):
    with pytest.raises(SpmdValueError, match=words) as caught:
        call()
    assert caught.value.code == "SW903"
    assert help in caught.value.help[0]


@pytest.mark.parametrize(("rank", "size", "words"), [(4, 4, "ranks go from 0 to 3"), (0, 0, "at least one rank")])
def test_an_impossible_world_is_refused(rank, size, words):
    with pytest.raises(SpmdValueError, match=words) as caught, fake_world(rank, size):
        pass
    assert caught.value.code == "SW903"


def test_a_second_world_in_a_started_one_is_refused(world):
    dist.init_process_group()
    with pytest.raises(SpmdTypeError, match="has a process group already"), fake_world(0, 2):
        pass


@EVERY_KIND
def test_devices_of_other_kinds_are_redirected(kind):
    expected = kind.get("device", "cpu")
    with fake_world(0, 8, **kind):
        x = torch.randn(2, 2, device="cuda")
        made = [
            x,
            x.to("cuda:1", non_blocking=True),
            x.to(0),
            x.to(device=torch.device("cuda", 3)),
            x.cuda(),
            x.pin_memory(),
            torch.from_numpy(numpy.ones(2)).to("cuda"),
            torch.nn.Linear(2, 2, device="cuda").weight,
            torch.nn.Linear(2, 2).to(torch.cuda.current_device()).weight,
            torch.nn.Linear(2, 2).to(torch.device("cuda"), torch.bfloat16).weight,
            torch.nn.Linear(2, 2).cuda().weight,
        ]
        assert {str(one.device) for one in made} == {expected}


def test_an_explicit_cpu_tensor_stays_where_it_was_asked_for():
    with fake_world(0, 2, device="meta"):
        assert torch.ones(2, device="cpu").device.type == "cpu"


@EVERY_KIND
def test_a_training_step_runs(kind):
    with fake_world(0, 8, **kind):
        mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
        model = torch.nn.Linear(4, 4, device="cuda")
        optimizer = torch.optim.AdamW(model.parameters())
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.compile(model)(torch.randn(2, 4, device="cuda")).float().square().mean()
        loss.backward()
        dist.all_reduce(model.weight.grad, group=mesh["dp"].get_group())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        torch.cuda.synchronize()
        assert isinstance(f"{loss.item():.3f} {loss:.3f}", str)


def test_a_gradient_scaler_for_gpus_scales_on_the_cpu():
    with fake_world(0, 2), warnings.catch_warnings(action="error"):
        for scaler in (torch.amp.GradScaler(init_scale=8.0), torch.amp.GradScaler("cuda", 8.0)):
            assert scaler.scale(torch.ones(())).item() == 8.0
        assert torch.amp.GradScaler("cuda", enabled=False).scale(torch.ones(())).item() == 1.0


@EVERY_KIND
def test_hooks_and_threads_of_the_script_are_redirected(kind):
    seen = []

    def here(*_):
        seen.append(torch.zeros(2, device="cuda").device.type)

    class Own(threading.Thread):
        def run(self):
            here()

    with fake_world(0, 2, **kind):
        x = torch.ones(2, device="cuda", requires_grad=True)
        y = x * 2
        y.register_hook(here)
        x.register_post_accumulate_grad_hook(here)
        y.sum().backward()
        for thread in (threading.Thread(target=here), Own()):
            thread.start()
            thread.join()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(here).result()
        expected = torch.zeros(2, device="cuda").device.type
    assert seen == [expected] * 5
    threads = threading.Thread(target=here)
    assert threading.Thread.start.__module__ == "threading"
    assert threads.run.__module__ == "threading"


@pytest.mark.parametrize("kind", [{}, {"fake": True}], ids=["cpu", "fake"])
def test_data_parallel_with_a_device_number_runs(kind):
    with fake_world(0, 2, **kind):
        dist.init_process_group("nccl")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).cuda(), device_ids=[0])
        model(torch.ones(1, 2, device="cuda")).sum().backward()
        assert model.module.weight.grad is not None


@pytest.mark.parametrize("kind", [{"fake": True}, {"device": "meta"}], ids=["fake", "meta"])
def test_nothing_is_allocated_without_values(kind):
    with fake_world(0, 2, **kind):
        huge = torch.empty(1 << 20, 1 << 20)
        assert (huge @ huge).shape == (1 << 20, 1 << 20)


@pytest.mark.parametrize("kind", [{"fake": True}, {"device": "meta"}], ids=["fake", "meta"])
def test_a_value_that_does_not_exist_reads_as_one(kind):
    with fake_world(0, 2, **kind):
        x = torch.randn(2, 3)
        assert x.sum().item() == float(x.sum()) == 1.0
        assert int(x.argmax()) == 1
        assert bool(x.sum() > 0)
        assert x.tolist() == [[1.0] * 3] * 2
        assert x.numpy().shape == (2, 3)


def test_a_meshs_own_rank_numbers_are_real_under_fake_tensors():
    with fake_world(3, 4, fake=True):
        dist.init_process_group()
        mesh = DeviceMesh("cuda", [[0, 1], [2, 3]], mesh_dim_names=("a", "b"))
        assert mesh.mesh.tolist() == [[0, 1], [2, 3]]
        assert tuple(mesh.get_coordinate()) == (1, 1)


def test_cuda_answers_without_a_gpu(world):
    torch.cuda.set_device(0)
    torch.cuda.manual_seed_all(0)
    torch.cuda.reset_peak_memory_stats()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
        start.record()
        end.record()
    assert start.elapsed_time(end) == 0.0
    assert (torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.current_device()) == (False, 8, 5)
    assert torch.cuda.max_memory_allocated() == 0
    assert torch.accelerator.get_device_capability()["supported_dtypes"] >= {torch.float32, torch.bfloat16}
    assert torch.cuda.get_device_capability("cuda:0") == (0, 0)


def properties_that_torch_lists() -> dict[str, type]:
    """The names of the properties of a GPU, with their types, in torch's own stub; and those it leaves out there."""
    stub = (Path(torch.__file__).parent / "_C" / "__init__.pyi").read_text()
    listed = re.search(r"class _CudaDeviceProperties:\n((?:    \w+: \w+\n)+)", stub)
    assert listed is not None
    kinds = {"str": str, "_int": int}
    found = {name: kinds[kind] for name, kind in re.findall(r"(\w+): (\w+)", listed[1])}
    return {**found, "regs_per_multiprocessor": int, "shared_memory_per_block_optin": int, "uuid": uuid.UUID}


@pytest.mark.parametrize(("name", "kind"), properties_that_torch_lists().items())
def test_every_property_of_a_gpu_is_answered(world, name, kind):
    for device in (None, 0, "cuda:0", torch.device("cuda", 0)):
        assert isinstance(getattr(torch.cuda.get_device_properties(device), name), kind)


def test_data_loader_workers_are_not_started(world):
    loader = torch.utils.data.DataLoader([torch.ones(2)] * 4, num_workers=3, prefetch_factor=2, persistent_workers=True)
    assert loader.num_workers == 0
    assert len(list(loader)) == 4


def test_what_stands_in_for_a_constructor_shows_its_options():
    constructors = (torch.utils.data.DataLoader, torch.nn.parallel.DistributedDataParallel, torch.autocast, DeviceMesh)
    before = [inspect.signature(made.__init__) for made in constructors]
    with fake_world(0, 2):
        assert [inspect.signature(made.__init__) for made in constructors] == before
        assert "map_location" in inspect.signature(torch.load).parameters


def test_a_default_device_outlives_nothing():
    for kind in ({}, {"device": "meta"}):
        with fake_world(0, 2, **kind):
            torch.set_default_device("cuda")
            assert torch.ones(2).device.type == kind.get("device", "cpu")
    assert torch.get_default_device().type == "cpu"
    assert not torch.overrides._get_current_function_mode_stack()


def test_torch_accelerator_agrees_that_there_is_none(world):
    torch.accelerator.set_device_index(3)
    torch.accelerator.synchronize()
    assert (torch.accelerator.is_available(), torch.accelerator.device_count()) == (False, 8)


def test_a_store_waits_for_nobody(world):
    store = dist.TCPStore("127.0.0.1", 29500, world_size=16, is_master=True)
    store.set("key", "value")
    dist.init_process_group("gloo", store=store, rank=5, world_size=16)
    assert store.get("key") == b"value"


@pytest.mark.parametrize("where", [{}, {"map_location": "cuda:0"}, {"map_location": torch.device("cuda")}])
def test_checkpoints_are_loaded_to_the_one_device(tmp_path, where):
    torch.save({"weight": torch.ones(2)}, tmp_path / "model.pt")
    for kind in ({}, {"device": "meta"}):
        with fake_world(0, 2, **kind):
            assert torch.load(tmp_path / "model.pt", **where)["weight"].device.type == kind.get("device", "cpu")


def test_objects_from_ranks_that_do_not_run_leave_the_list_as_it_was(world):
    dist.init_process_group()
    mine, other = ["own"], [None]
    dist.broadcast_object_list(mine, src=5)
    dist.broadcast_object_list(other, src=0)
    assert (mine, other) == (["own"], [None])


def test_a_tensor_is_handed_to_another_stream():
    with fake_world(0, 2):
        x = torch.ones(2, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            x.record_stream(torch.cuda.current_stream())
    assert torch.Tensor.record_stream.__name__ == "record_stream"


def test_a_generator_of_an_accelerator_draws_on_the_cpu():
    with fake_world(0, 2):
        generator = torch.Generator(device="cuda").manual_seed(0)
        assert isinstance(generator, torch.Generator)
        assert isinstance(torch.default_generator, torch.Generator)
        drawn = torch.randn(2, generator=generator, device="cuda")
    assert torch.equal(drawn, torch.randn(2, generator=torch.Generator().manual_seed(0)))
    assert type(torch.Generator()) is torch.Generator


@pytest.mark.parametrize(("rank", "source"), [(0, 1), (1, 0), (3, 0)])
def test_what_comes_from_anybody_comes_from_the_first_of_the_others(rank, source):
    with fake_world(rank, 4):
        dist.init_process_group()
        assert dist.recv(torch.zeros(2)) == source
        pair = dist.new_group([rank, (rank + 2) % 4])
        assert dist.recv(torch.zeros(2), group=pair) == (rank + 2) % 4


NOT_COVERED = {
    "caching_allocator_disabled",
    "current_blas_handle",
    "current_solver_handle",
    "get_gencode_flags",
    "get_per_process_memory_fraction",
    "host_memory_stats_as_nested_dict",
    "memory_stats_as_nested_dict",
}


@pytest.mark.parametrize("module", ["", "random", "memory", "graphs", "nvtx", "profiler"])
def test_what_needs_no_arguments_answers_in_every_module_of_cuda(world, module):
    owner = getattr(torch.cuda, module) if module else torch.cuda
    called = 0
    for name in set(owner.__all__) - NOT_COVERED:
        function = getattr(owner, name)
        if isinstance(function, type) or not callable(function) or required_parameters(function):
            continue
        function()
        called += 1
    assert called


def required_parameters(function):
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return True
    return any(one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters)


@pytest.mark.parametrize("spelling", ["call", "range", "profile"])
def test_marks_for_profilers_do_nothing(world, spelling):
    if spelling == "call":
        torch.cuda.nvtx.range_push("forward")
        torch.cuda.nvtx.mark("here")
        torch.cuda.nvtx.range_pop()
    with torch.cuda.nvtx.range("step") if spelling == "range" else torch.cuda.profiler.profile():
        assert torch.cuda.cudart().cudaProfilerStart() == 0


def test_a_tensor_says_the_type_that_it_would_have_on_a_gpu_or_here(world):
    name = torch.ones(2, device="cuda").type()
    assert name == "torch.cuda.FloatTensor" == name
    assert name == "torch.FloatTensor"
    assert name in ["torch.cuda.HalfTensor", "torch.cuda.FloatTensor"]
    assert name != "torch.cuda.HalfTensor"
    assert len({name, torch.zeros(1).type()}) == 1
    assert isinstance(torch.ones(2), torch.cuda.FloatTensor)
    assert torch.cuda.LongTensor([1, 2]).device.type == "cpu"
    assert torch.ones(2).type("torch.cuda.LongTensor").dtype is torch.int64


def test_code_that_is_captured_in_a_graph_runs_as_it_stands(world):
    x = torch.ones(2, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()), torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        y = x * 2
    graph.replay()
    assert y.tolist() == [2, 2]
    assert torch.cuda.make_graphed_callables(abs, (x,)) is abs


@pytest.mark.parametrize("device", [{}, {"device_id": 5}], ids=["found", "given"])
def test_the_older_wrapper_shards_on_the_cpu_whatever_device_is_named(world, device):
    from torch.distributed.fsdp import FullyShardedDataParallel

    dist.init_process_group("nccl")
    model = FullyShardedDataParallel(torch.nn.Linear(32, 4).cuda(), **device)
    model(torch.ones(2, 32, device="cuda")).sum().backward()
    assert {one.device.type for one in model.parameters()} == {"cpu"}


def test_flex_attention_has_its_backward(world):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q = torch.randn(1, 2, 16, 4, device="cuda", requires_grad=True)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cuda")
    torch.compile(flex_attention)(q, q, q, block_mask=mask).sum().backward()
    assert q.grad is not None


def test_objects_of_ranks_that_are_not_run_leave_a_list_as_it_is():
    with fake_world(0, 2):
        dist.init_process_group("gloo")
        held = ["mine"]
        assert dist.recv_object_list(held, src=1) == 1
        assert held == ["mine"]


def test_one_rank_alone_can_not_go_on_with_objects_of_another():
    with fake_world(0, 2, alone=True):
        dist.init_process_group("gloo")
        with pytest.raises(OtherRanksNeeded, match="rank 0 receives objects from 1"):
            dist.recv_object_list([None], src=1)


@pytest.mark.parametrize(
    ("receive", "needed"),
    [
        (lambda: dist.broadcast(torch.zeros(1, dtype=torch.long), src=1), "received numbers from 1"),
        (lambda: dist.broadcast_object_list([None], src=1), "received objects from 1"),
        (lambda: dist.broadcast(torch.zeros(1, dtype=torch.long), src=0), ""),
        (lambda: dist.broadcast(torch.zeros(1), src=1), ""),
    ],
    ids=["a length", "objects", "an own length", "weights"],
)
@pytest.mark.parametrize("alone", [True, False])
def test_what_fails_after_lengths_or_objects_did_not_come_needs_the_other_ranks(receive, needed, alone):
    kind = OtherRanksNeeded if needed and alone else EOFError
    with pytest.raises(kind, match=needed if kind is OtherRanksNeeded else "ran out"), fake_world(0, 2, alone=alone):
        dist.init_process_group("gloo")
        receive()
        raise EOFError("ran out of input")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(3, 4),
        lambda: torch.empty_like(torch.full((3, 4), torch.nan)),
        lambda: torch.ones(2).new_empty(3, 4),
        lambda: torch.empty_strided((3, 4), (1, 3)),
    ],
    ids=["empty", "empty_like", "new_empty", "empty_strided"],
)
def test_what_is_received_in_open_memory_is_no_chance_value(make, world):
    """A matrix that another rank has inverted is to be a matrix here too, and not what lay in memory."""
    dist.init_process_group()
    left = [torch.full((3, 4), torch.nan) for _ in range(20)]
    del left
    buffer = make()
    dist.broadcast(buffer, 1)
    assert torch.equal(buffer, torch.zeros(3, 4))


def test_no_two_names_for_a_current_stream_are_one_object_which_dynamo_refuses(world):
    """Dynamo has one handler for each of them, and registers none twice."""
    found = [module.current_stream for module in (torch.accelerator, torch.cuda, torch.xpu)]
    assert len({id(one) for one in found}) == 3
    assert torch.cuda.current_stream().query()
    assert torch.accelerator.current_stream().query()
