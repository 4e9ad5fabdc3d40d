"""Values that leave torch and come back: nothing that is made of them counts as equal on every rank.

What keeps the tensor's type has it; what cannot has none, and that is listed. Each row is one way round.
"""

from __future__ import annotations

import copy
import io
import math
import pickle
import statistics
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import shardwise as spmd
from shardwise import P, R, V
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector, RunResult
from shardwise.host.number_calls import carrying_numbers
from shardwise.interop.tensors.tagging import type_of
from shardwise.types.tensor_type import TensorType

from .helpers import make, refused

Way = Callable[[Tensor], Tensor]


def saved(x: Tensor) -> Tensor:
    buffer = io.BytesIO()
    torch.save(x, buffer)
    buffer.seek(0)
    loaded: Tensor = torch.load(buffer)
    return loaded


def through_numpy(x: Tensor) -> Tensor:
    out = torch.zeros(4, 4)
    out.numpy()[:] = x.numpy()
    return out


def on_another_thread(x: Tensor) -> Tensor:
    out = torch.zeros(4, 4)
    thread = threading.Thread(target=out.copy_, args=(x,))
    thread.start()
    thread.join()
    return out


def in_a_pool(x: Tensor) -> Tensor:
    out = torch.ones(4, 4)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(torch.mul, x, 2, out=out).result()
    return out


KEPT: dict[str, Way] = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "save and load": saved,
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "shared memory": lambda x: x.share_memory_(),
}
READ: dict[str, Way] = {
    "tolist": lambda x: torch.tensor(x.tolist()),
    "the sum of a list": lambda x: torch.tensor(sum(x[0].tolist())),
    "the largest of a list": lambda x: torch.tensor(max(x[0].tolist())),
    "item": lambda x: torch.full((4, 4), x[0, 0].item()),
    "rounded": lambda x: torch.tensor(round(x[0, 0].item(), 3)),
}
LOST: dict[str, Way] = {
    "tensor": lambda x: torch.tensor(x.numpy()),
    "as_tensor": lambda x: torch.as_tensor(np.asarray(x)),
    "asarray": lambda x: torch.asarray(x.detach().cpu().numpy() * 2 + 1),
    "in a list": lambda x: torch.tensor([x.numpy(), x.numpy()]),
    "new_tensor": lambda x: x.new_tensor(x.numpy()) if x.ndim == 0 else torch.zeros(1).new_tensor(x.numpy()),
    "a number": lambda x: torch.tensor(x.numpy().sum()),
    "a float of numpy": lambda x: torch.ones(4, 4) * x.double().numpy().sum(),
    "full": lambda x: torch.full((4, 4), x.numpy().max()),
    "in place": lambda x: torch.ones(4, 4).mul_(x.numpy().max()),
    "a write into the array": through_numpy,
    "a write on another thread": on_another_thread,
    "a write in a pool": in_a_pool,
    "the storage": lambda x: torch.empty(0).set_(x.untyped_storage(), 0, (4, 4)),
}
UNTYPED: dict[str, Way] = {
    "from_numpy": lambda x: torch.from_numpy(x.numpy()),
    "a memoryview": lambda x: torch.frombuffer(memoryview(x.numpy().reshape(-1)), dtype=torch.float32),
    "bytes": lambda x: torch.frombuffer(bytearray(x.numpy().tobytes()), dtype=torch.float32),
    "dlpack": lambda x: torch.from_dlpack(x),
    "numpy's dlpack": lambda x: torch.from_dlpack(x.numpy()),
    "a class": lambda x: torch.Tensor(x.tolist()),
}


def went(way: Way, place: Any) -> tuple[TensorType, RunResult]:
    collector = Collector()
    with checking(collect=collector, strict=False):
        x = make(place)
        result = type_of(way(x))
    return result, collector.result()


@pytest.mark.parametrize("place", ["V", "P", "R"])
@pytest.mark.parametrize("way", KEPT)
def test_a_copy_keeps_the_type(tp_mesh: Any, way: str, place: str) -> None:
    type, result = went(KEPT[way], place)
    assert {repr(p) for p in type.placements} == {place}
    assert not result.findings


@pytest.mark.parametrize("way", READ)
def test_numbers_keep_that_they_differ(tp_mesh: Any, way: str) -> None:
    assert list(went(READ[way], "V")[0].placements) == [V]
    assert went(READ[way], "R")[0].varying_axes == ()
    assert [finding.code for finding in went(READ[way], "P")[1].findings] == ["SW115"]


@pytest.mark.parametrize("way", READ)
def test_the_mean_of_a_ranks_own_share_may_be_read_and_is_that_ranks_own(tp_mesh: Any, way: str) -> None:
    """As of the loss of a batch, which rank 0 prints for itself."""
    collector = Collector()
    with checking(collect=collector, strict=False):
        mean = spmd.assert_type(torch.randn(4, 4), {"tp": P("avg")})
        number = type_of(READ[way](mean))
    with checking(collect=collector, strict=False, local=False):
        mean = spmd.assert_type(torch.randn(2, 4, 4), {"tp": spmd.S(0)}).mean(0)
        READ[way](mean)
    assert collector.result().findings == ()
    assert list(number.placements) == [V]
    assert 1 not in number.scale.values(), "it is no sum of means"


@pytest.mark.parametrize("read", [lambda x: 1 if x.item() else 0, lambda x: 1 if x else 0], ids=["item", "bool"])
def test_no_rank_goes_on_by_the_mean_of_its_own_share(tp_mesh: Any, read: Any) -> None:
    with checking(local=False), refused("SW115"):
        read(spmd.assert_type(torch.randn(2), {"tp": spmd.S(0)}).mean())


@pytest.mark.parametrize("way", LOST)
def test_what_has_no_type_any_more_is_listed(tp_mesh: Any, way: str) -> None:
    for place in ("V", "P"):
        type, result = went(LOST[way], place)
        assert not type.axes
        assert not type.ground.is_constant
        assert len(result.lost) == 1
        assert {finding.code for finding in result.findings} <= {"SW115"}


@pytest.mark.parametrize("way", UNTYPED)
def test_what_never_had_one_has_none(tp_mesh: Any, way: str) -> None:
    for place in ("V", "P", "R"):
        type, _ = went(UNTYPED[way], place)
        assert not type.axes
        assert not type.ground.is_constant


def test_arrays_are_constants_as_long_as_only_equal_numbers_have_left(tp_mesh: Any) -> None:
    collector = Collector()
    with checking(collect=collector):
        table = torch.tensor(np.linspace(0, 1, 4))
        assert type_of(table).ground.is_constant
        make("R").numpy()
        assert type_of(torch.tensor(np.linspace(0, 1, 4))).ground.is_constant
        made = spmd.assert_type(torch.randn(4) * np.float32(2), {"tp": R})
        assert type_of(made * np.float32(2)).axes
    assert not collector.result().lost


def test_a_collective_on_another_thread_leaves_no_pending_sum(tp_mesh: Any) -> None:
    collector = Collector()
    with checking(collect=collector):
        x = spmd.assert_type(torch.randn(4).clone(), {"tp": P})
        thread = threading.Thread(target=dist.all_reduce, args=(x,), kwargs={"group": tp_mesh.get_group()})
        thread.start()
        thread.join()
        torch.relu(x)
    assert not collector.result().findings


@pytest.mark.parametrize(
    ("expression", "exponent"),
    [
        ("len(x)", -1),
        ("len(x.t())", 0),
        ("float(len(x))", -1),
        ("1 / len(x)", 1),
        ("len(x) * x.shape[1]", -1),
        ("len([1, 2])", None),
        ("len('text')", None),
        ("len(torch.ones(3))", None),
        ("1.0 / len(x)", 1),
        ("-0.5 * x.shape[0]", -1),
        ("1e-3 / x.size(0) ** 2", 2),
        ("(0.5 + 1) / x.numel()", 1),
        ("(1 / 3) * x.shape[0]", -1),
        ("0.5 * x.shape[1]", 0),
        ("math.sqrt(x.shape[0] ** 2)", -1),
        ("math.sqrt(x.shape[0])", Fraction(-1, 2)),
        ("1.0 * x.shape[0] ** -0.5", Fraction(1, 2)),
        ("1.0 / x.shape[0] ** 0.5", Fraction(1, 2)),
        ("math.sqrt(x.shape[0]) * math.sqrt(x.shape[0])", -1),
        ("1.0 * x.shape[0] ** 0.3333", None),
        ("int(x.numel() ** 0.5)", None),
        ("math.ceil(x.numel() ** 0.5)", None),
        ("round(len(x) ** 0.5)", None),
        ("math.ceil(x.shape[0] / 1.5)", -1),
        ("math.log(x.shape[1])", 0),
        ("math.log(x.shape[0])", None),
        ("RATE / x.shape[0]", 1),
        ("max(x.shape[0], 0)", -1),
        ("min(x.shape[0], x.shape[1])", None),
        ("min(5, 7)", None),
    ],
)
def test_numbers_in_a_programs_own_files_have_the_scale_of_the_dim(
    tp_mesh: Any, expression: str, exponent: int | Fraction | None
) -> None:
    code = carrying_numbers(f"RATE = 0.25\nnumber = {expression}".encode(), "program.py")
    assert code is not None
    with checking(local=False):
        x = spmd.assert_type(torch.rand(2, 3), {"tp": spmd.S(0)})
        names: dict[str, Any] = {"x": x, "torch": torch, "math": math}
        exec(code, names)
        number = names["number"]
        assert number == eval(expression, names)
        known = type_of(number).exponent(spmd.normalize_axis("tp")) if hasattr(number, "by_rank") else None
    assert known == exponent


TENSORS_BESIDE_FLOATS = """
import torch

HALF = 0.5


@torch.compile(fullgraph=True, backend="eager")
def compiled(x):
    return 1.0 / x + HALF * x - 2.5 % x + 0 * max(x.shape[0], len(x) + 1)


def shadowed(HALF):
    return HALF * 2


def other(rate=0.5):
    return rate * 2
"""


def test_what_a_float_meets_is_else_what_it_was() -> None:
    names: dict[str, Any] = {}
    code = carrying_numbers(TENSORS_BESIDE_FLOATS.encode(), "program.py")
    assert code is not None
    exec(code, names)
    x = torch.rand(4) + 1
    assert torch.equal(names["compiled"](x), 1.0 / x + 0.5 * x - 2.5 % x)
    assert torch.equal(names["shadowed"](x), x * 2)
    assert "__shardwise_beside__" in names["compiled"].__wrapped__.__code__.co_names
    assert "__shardwise_beside__" not in names["shadowed"].__code__.co_names + names["other"].__code__.co_names


@pytest.mark.parametrize(
    "number", ["statistics.mean(x[:, 0].tolist())", "float(x.numpy().mean())", "int(x.numpy().max())", "type(one)(3)"]
)
def test_a_plain_number_that_is_made_of_what_varies_is_listed(tp_mesh: Any, number: str) -> None:
    program = f"one = x[0, 0].item()\nnumber = {number}"
    code = carrying_numbers(program.encode(), "program.py") or compile(program, "program.py", "exec")
    collector = Collector()
    with checking(collect=collector, local=True):
        names: dict[str, Any] = {"x": make("V"), "statistics": statistics}
        exec(code, names)
    assert type(names["number"]) in (int, float)
    assert ["its type is lost" in claim.what for claim in collector.result().trusted[-1:]] == [True]


def test_a_tensor_of_the_numbers_of_a_shard_is_listed(tp_mesh: Any) -> None:
    collector = Collector()
    with checking(collect=collector, local=False, strict=False):
        x = spmd.assert_type(torch.randn(2, 4), {"tp": spmd.S(0)})
        assert type_of(torch.tensor(x.tolist())).local == {}
    assert [lost.what for lost in collector.result().lost] == ["the type of a tensor that is made of numbers that vary"]


@pytest.mark.parametrize("number", ["1.0 / ranks", "(1.0 / dist.get_world_size())", "SHARE / ranks"])
def test_a_share_of_each_rank_is_a_term_however_it_is_written(tp_mesh: Any, number: str) -> None:
    program = f"SHARE = 1.0\nranks = dist.get_world_size(group)\ny = x + r * ({number})"
    code = carrying_numbers(program.encode(), "program.py")
    assert code is not None
    with checking(local=True):
        x, r = spmd.assert_type(torch.rand(4), {"tp": P}), spmd.assert_type(torch.rand(4), {"tp": R})
        names: dict[str, Any] = {"x": x, "r": r, "dist": dist, "group": tp_mesh.get_group()}
        exec(code, names)
        assert type_of(names["y"]).is_partial(spmd.normalize_axis("tp"))


@pytest.mark.parametrize("chosen", ["max(0, rank * 4)", "max(rank * 4, 0)", "min(rank * 4 + 4, 4, 8) * rank"])
def test_which_of_several_numbers_is_the_largest_differs_as_they_do(tp_mesh: Any, chosen: str) -> None:
    """The imagined rank is the first, on which the first of two equal ones is the plain one."""
    code = carrying_numbers(f"rank = dist.get_rank(group)\npart = x[{chosen}:]".encode(), "program.py")
    assert code is not None
    with checking(local=True):
        names: dict[str, Any] = {"x": make("R"), "dist": dist, "group": tp_mesh.get_group()}
        exec(code, names)
    assert type_of(names["part"]).is_varying(spmd.normalize_axis("tp"))


def test_a_power_of_a_float_by_a_ranks_number_differs_as_that_does(tp_mesh: Any) -> None:
    code = carrying_numbers(b"rank = dist.get_rank(group)\nnumber = 0.5 ** rank\nx = 0.5 ** x", "program.py")
    assert code is not None
    with checking(local=True):
        names: dict[str, Any] = {"dist": dist, "group": tp_mesh.get_group(), "x": torch.ones(2)}
        exec(code, names)
    assert type_of(names["number"]).is_varying(spmd.normalize_axis("tp"))
    assert torch.equal(names["x"], torch.full((2,), 0.5))


def test_a_power_by_a_number_that_all_ranks_have_is_a_plain_number(tp_mesh: Any) -> None:
    with checking(local=True):
        assert type(0.9 ** dist.get_world_size(tp_mesh.get_group())) is float
