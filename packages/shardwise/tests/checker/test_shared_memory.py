"""Parameters in one memory, of which each rank writes its own part: are the parts gathered?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S, V
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector
from shardwise.interop.tensors.tagging import type_of
from shardwise.worlds.world import FakeWorld

Gather = Callable[[Tensor, Tensor, "list[nn.Parameter]"], Any]


def by_data() -> tuple[Tensor, list[nn.Parameter]]:
    flat = torch.zeros(8)
    parameters = [nn.Parameter(torch.rand(2, 2)) for _ in range(2)]
    for number, parameter in enumerate(parameters):
        spmd.assert_type(parameter, {"tp": R})
        part = flat[4 * number : 4 * number + 4]
        part.copy_(parameter.detach().flatten())
        parameter.data = part.view(2, 2)
    return flat, parameters


def by_empty_views() -> tuple[Tensor, list[nn.Parameter]]:
    flat = torch.empty(8)
    parameters = [nn.Parameter(torch.rand(2, 2)) for _ in range(2)]
    for parameter, part in zip(parameters, flat.split(4), strict=True):
        spmd.assert_type(parameter, {"tp": R})
        part.copy_(parameter.detach().flatten())
        parameter.data = part.view_as(parameter)
    return flat, parameters


def by_views() -> tuple[Tensor, list[nn.Parameter]]:
    flat = spmd.assert_type(torch.rand(8), {"tp": R})
    return flat, [nn.Parameter(part.view(2, 2)) for part in flat.split(4)]


def the_parameter_itself() -> tuple[Tensor, list[nn.Parameter]]:
    parameter = nn.Parameter(torch.rand(8))
    return spmd.assert_type(parameter, {"tp": R}), [parameter]


def its_data() -> tuple[Tensor, list[nn.Parameter]]:
    parameter = nn.Parameter(torch.rand(8))
    return spmd.assert_type(parameter, {"tp": R}).data, [parameter]


def copied_over(flat: Tensor, part: Tensor, parameters: list[nn.Parameter]) -> None:
    full = spmd.all_gather(part, "tp", src=S(0), dst=R)
    with torch.no_grad():
        for parameter, values in zip(parameters, full.split(8 // len(parameters)), strict=True):
            parameter.copy_(values.view_as(parameter))


def given_as_data(flat: Tensor, part: Tensor, parameters: list[nn.Parameter]) -> None:
    full = spmd.all_gather(part, "tp", src=S(0), dst=R)
    for parameter, values in zip(parameters, full.split(8 // len(parameters)), strict=True):
        parameter.data = values.view_as(parameter)


def sent_by_their_owners(flat: Tensor, part: Tensor, parameters: list[nn.Parameter]) -> None:
    for owner, own in enumerate(flat.detach().chunk(4)):
        dist.broadcast(own, src=owner)


MEMORIES = [by_data, by_empty_views, by_views, the_parameter_itself, its_data]
RIGHT: dict[str, Gather] = {
    "all_gather_into_tensor": lambda flat, part, _: dist.all_gather_into_tensor(flat, part.clone()),
    "all_gather": lambda flat, part, _: dist.all_gather(list(flat.chunk(4)), part.clone()),
    "copied from what is gathered": copied_over,
    "given as data": given_as_data,
    "sent by their owners": sent_by_their_owners,
}
WRONG: dict[str, Gather] = {
    "nothing": lambda flat, part, parameters: None,
    "elsewhere": lambda flat, part, _: dist.all_gather_into_tensor(torch.empty(8), part.clone()),
}


def findings(memory: Callable[[], tuple[Tensor, list[nn.Parameter]]], gather: Gather, local: bool) -> list[str]:
    collector = Collector()
    with checking(collect=collector, local=local):
        flat, parameters = memory()
        for _ in range(3):
            with torch.no_grad():
                part = flat.chunk(4)[dist.get_rank()]
                part.sub_(spmd.assert_type(torch.rand(2), {"tp": S(0)}))
                gather(flat, part, parameters)
    return [finding.code for finding in collector.result().findings]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(3)
@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: memory.__name__)
@pytest.mark.parametrize("gather", RIGHT.values(), ids=RIGHT)
def test_parts_that_are_gathered_are_no_mistake(tp_mesh: Any, memory: Any, gather: Gather, local: bool) -> None:
    assert findings(memory, gather, local) == []


@pytest.mark.one_in(2)
@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: memory.__name__)
@pytest.mark.parametrize("gather", WRONG.values(), ids=WRONG)
def test_parts_that_are_not_are_a_finding(tp_mesh: Any, memory: Any, gather: Gather, local: bool) -> None:
    assert findings(memory, gather, local) == ["SW120"]


FILLED = {"zeros": torch.zeros, "nothing": torch.empty}


@pytest.mark.parametrize("made", FILLED.values(), ids=FILLED)
def test_memory_is_what_is_written_into_its_parts(tp_mesh: Any, made: Any) -> None:
    equal, own = torch.rand(4), torch.rand(4)
    with checking():
        spmd.assert_type(equal, {"tp": R})
        spmd.assert_type(own, {"tp": V})
        for first, second, expected in ((equal, equal, R), (equal, own, V), (own, equal, V)):
            memory = made(8)
            for part, written in zip(memory.split(4), (first, second), strict=True):
                part.copy_(written)
            spmd.assert_type(memory * 1, {"tp": expected})
            spmd.assert_type(memory[4:] * 1, {"tp": expected})


@pytest.mark.parametrize("made", FILLED.values(), ids=FILLED)
def test_a_part_that_is_cut_out_after_a_write_has_a_type_of_its_own(tp_mesh: Any, made: Any) -> None:
    """What was written before says nothing of it, and what is written later, elsewhere, changes nothing."""
    equal = torch.rand(8)
    with checking():
        spmd.assert_type(equal, {"tp": R})
        memory = made(8)
        memory[:8].copy_(equal)
        own = memory.chunk(4)[dist.get_rank()]
        spmd.assert_type(own * 1, {"tp": V})
        memory[:2].copy_(equal[:2])
        spmd.assert_type(own * 1, {"tp": V})
        with pytest.raises(spmd.SpmdTypeError):
            spmd.assert_type(own * 1, {"tp": R})


@pytest.mark.parametrize("local", [True, False])
def test_writes_in_a_row_into_a_part_of_a_parameter(tp_mesh: Any, local: bool) -> None:
    """Torch does not say of such a view whether it is a leaf."""
    collector = Collector()
    with checking(collect=collector, local=local), torch.no_grad():
        parameter = spmd.assert_type(nn.Parameter(torch.rand(8)), {"tp": R})
        own = spmd.assert_type(torch.rand(2), {"tp": S(0)})
        parameter.chunk(4)[dist.get_rank()].add_(own).sub_(own)
        dist.all_gather(list(parameter.detach().chunk(4)), parameter.detach()[:2].clone())
    assert collector.result().findings == ()


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: memory.__name__)
def test_a_write_that_was_known_of_other_memory_is_judged_of_a_part(tp_mesh: Any, memory: Any, local: bool) -> None:
    collector = Collector()
    with checking(collect=collector, local=local), torch.no_grad():
        own = spmd.assert_type(torch.rand(2), {"tp": S(0)})
        for _ in range(3):
            spmd.assert_type(torch.rand(2), {"tp": S(0)}).view(2, 1)[:, 0].copy_(own)
        flat, _parameters = memory()
        flat.chunk(4)[dist.get_rank()].copy_(own)
    assert [finding.code for finding in collector.result().findings] == ["SW120"]


def test_the_contents_of_a_parameter_can_be_swapped_while_its_model_is_checked(tp_mesh: Any) -> None:
    """As ``module.to_empty`` does for DTensors: torch refuses it of a tensor to which there is a weak reference."""
    with checking(strict=False):
        parameter = nn.Parameter(torch.rand(8))
        torch.utils.swap_tensors(parameter, nn.Parameter(torch.zeros(8)))
    assert parameter.sum() == 0


def test_views_of_which_torch_does_not_say_whether_they_are_leaves_are_no_parameters(tp_mesh: Any) -> None:
    base = torch.rand(2, requires_grad=True) * 1
    views = base.unbind()
    base.mul_(2)
    with pytest.raises(RuntimeError, match="modified inplace"):
        assert views[0].is_leaf
    assert findings(its_data, WRONG["nothing"], local=True) == ["SW120"]


# A buffer that is no parameter: what each rank writes into its own part makes it vary, until all parts are gathered.

OWN_PARTS: dict[str, Callable[[torch.Tensor, torch.Tensor, int], object]] = {
    "an index": lambda buffer, part, rank: buffer.__setitem__(slice(rank * 2, rank * 2 + 2), part),
    "chunk": lambda buffer, part, rank: buffer.chunk(4)[rank].copy_(part),
    "split": lambda buffer, part, rank: torch.split(buffer, 2)[rank].copy_(part),
    "tensor_split": lambda buffer, part, rank: buffer.tensor_split(4)[rank].copy_(part),
    "narrow": lambda buffer, part, rank: buffer.narrow(0, rank * 2, 2).mul_(part),
    "view": lambda buffer, part, rank: buffer.view(4, -1)[rank].copy_(part),
    "select": lambda buffer, part, rank: buffer.view(4, -1).select(0, rank).add_(part),
    "unflatten": lambda buffer, part, rank: buffer.unflatten(0, (4, 2))[rank].mul_(part),
    "unbind": lambda buffer, part, rank: buffer.view(4, 2).unbind()[rank].copy_(part),
    "as_strided": lambda buffer, part, rank: buffer.as_strided((2,), (1,), rank * 2).copy_(part),
    "out": lambda buffer, part, rank: torch.mul(part, 2, out=buffer.chunk(4)[rank]),
    "foreach": lambda buffer, part, rank: torch._foreach_copy_([buffer[:2], buffer.chunk(4)[rank]], [part, part]),
    "a constant": lambda buffer, part, rank: buffer.chunk(4)[rank].zero_(),
    "a number": lambda buffer, part, rank: buffer[rank * 2 : rank * 2 + 2].mul_(2.0),
    "data": lambda buffer, part, rank: buffer.data.chunk(4)[rank].copy_(part),
    "detached": lambda buffer, part, rank: buffer.detach()[rank * 2 : rank * 2 + 2].copy_(part),
}


@pytest.mark.parametrize("placed", ["R", "V"])
@pytest.mark.parametrize("way", OWN_PARTS)
def test_a_buffer_varies_from_where_each_rank_writes_its_own_part(way: str, placed: str) -> None:
    found = []

    def program() -> None:
        mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
        with spmd.set_current_mesh(mesh), checking():
            part = spmd.assert_type(torch.ones(2), {"dp": R if placed == "R" or way == "foreach" else V})
            mesh_axis = spmd.MeshAxis.of(mesh.get_group("dp"))
            for _ in range(3):  # once the call is known, too
                buffer = spmd.assert_type(torch.ones(8), {"dp": R}) * 1
                OWN_PARTS[way](buffer, part, dist.get_rank())
                found.append(type_of(buffer).get(mesh_axis))
                dist.all_gather_into_tensor(buffer, buffer.chunk(4)[dist.get_rank()].clone())
                found.append(type_of(buffer).get(mesh_axis))
                buffer.chunk(4)[1].copy_(buffer[:2])
                found.append(type_of(buffer).get(mesh_axis))

    FakeWorld(4, 1).run(program)
    assert found == [V, R, R] * 3
