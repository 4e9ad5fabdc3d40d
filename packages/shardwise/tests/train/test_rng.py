"""Do streams draw alike along synchronised axes and differently along distinct ones, and disturb nothing else?"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.train.streams import mixed
from shardwise.worlds.world import InProcessWorld

AXES = ("dp", "cp", "tp")


def on_ranks(body: Any, sizes: tuple[int, ...] = (2, 2, 2)) -> list[Any]:
    """``body`` on every rank of a mesh dp, cp, tp, in rank order."""

    def rank() -> Any:
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=AXES)
        with spmd.set_current_mesh(mesh):
            return body()

    return InProcessWorld(int(torch.tensor(sizes).prod())).run(rank)


@pytest.mark.parametrize("distinct", [(), ("dp",), ("tp",), ("dp", "tp"), AXES])
def test_ranks_draw_alike_unless_they_differ_along_a_distinct_axis(distinct: tuple[str, ...]) -> None:
    def body() -> tuple[float, float]:
        stream = spmd.rng(7, distinct=distinct)
        with stream:
            drawn = torch.rand(()).item()
        return drawn, torch.rand((), generator=stream.generator()).item()

    for numbers in zip(*on_ranks(body), strict=True):
        kinds = {
            tuple(coordinate for axis, coordinate in zip(AXES, at, strict=True) if axis in distinct): number
            for at, number in zip(itertools.product(range(2), repeat=3), numbers, strict=True)
        }
        assert len(set(kinds.values())) == len(kinds) == 2 ** len(distinct)
        assert len(set(numbers)) == len(kinds)


def test_the_kinds_of_axes_may_be_named_from_either_side() -> None:
    def body() -> list[int]:
        return [
            spmd.rng(3, distinct=("dp", "cp")).seed,
            spmd.rng(3, synchronised="tp").seed,
            spmd.rng(3, synchronised="tp", distinct=["cp", "dp"]).seed,
        ]

    assert all(len(set(seeds)) == 1 for seeds in on_ranks(body))


def test_numbers_do_not_depend_on_the_size_of_a_synchronised_axis() -> None:
    def body() -> int:
        return spmd.rng(5, distinct="dp").seed

    first, second = set(on_ranks(body, (2, 1, 4))), set(on_ranks(body, (2, 2, 1)))
    assert first == second
    assert len(first) == 2


def test_a_stream_goes_on_where_it_stopped_and_others_are_not_disturbed() -> None:
    def body() -> tuple[Any, ...]:
        torch.manual_seed(0)
        plain = torch.rand(4)
        torch.manual_seed(0)
        stream, other = spmd.rng(1), spmd.rng(2)
        with stream:
            first = torch.rand(3)
            with other:
                between = torch.rand(2)
                with stream:
                    middle = torch.rand(2)
        outside = [torch.rand(2)]
        with stream:
            second = torch.rand(3)
        outside.append(torch.rand(2))
        with spmd.rng(1):
            both = torch.rand(8)
        with spmd.rng(2):
            of_other = torch.rand(2)
        return (plain, torch.cat(outside)), (torch.cat([first, middle, second]), both), (between, of_other)

    for drawn, expected in on_ranks(body)[0]:
        assert torch.equal(drawn, expected)


def test_an_exception_gives_the_generators_back() -> None:
    def body() -> bool:
        state = torch.get_rng_state()
        with pytest.raises(ValueError, match="inside"), spmd.rng(1):
            torch.rand(3)
            raise ValueError("inside")
        return torch.equal(state, torch.get_rng_state())

    assert all(on_ranks(body))


def test_a_stream_is_resumed_from_its_state() -> None:
    def body() -> bool:
        stream = spmd.rng(1, distinct="dp")
        with stream:
            torch.rand(5)
        saved = stream.state_dict()
        with stream:
            expected = torch.rand(5)
        resumed = spmd.rng(1, distinct="dp")
        resumed.load_state_dict(saved)
        with resumed:
            return torch.equal(torch.rand(5), expected)

    assert all(on_ranks(body))


def test_a_stream_and_its_generators_draw_numbers_of_their_own() -> None:
    def body() -> tuple[int, list[float]]:
        stream = spmd.rng(1)
        with stream:
            drawn = [torch.rand(()).item()]
        drawn += [torch.rand((), generator=stream.generator()).item() for _ in range(3)]
        resumed = spmd.rng(1)
        resumed.load_state_dict(stream.state_dict())
        drawn.append(torch.rand((), generator=resumed.generator()).item())
        return len(set(drawn)), drawn

    found = on_ranks(body)
    assert [kinds for kinds, _ in found] == [5] * 8
    assert len({tuple(drawn) for _, drawn in found}) == 1


def test_a_stream_decorates_a_function() -> None:
    def body() -> bool:
        @spmd.rng(4)
        def draw(count: int) -> torch.Tensor:
            return torch.rand(count)

        with spmd.rng(4):
            return torch.equal(draw(3), torch.rand(3))

    assert all(on_ranks(body))


def test_mixing_depends_on_every_number_and_its_place() -> None:
    seeds = [mixed(*numbers) for numbers in itertools.product(range(4), repeat=3)]
    seeds += [mixed(0), mixed(0, 0), mixed(-1), mixed(2**63), mixed(0, 0, 0, 0)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert mixed(0) == 0xE220A8397B1DCDAF >> 1  # the first output of SplitMix64 from seed 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ({"seed": 1.5}, "SW905", "the seed of rng is an integer, got 1.5"),
        ({"seed": True}, "SW905", "an integer, got True"),
        ({"seed": 2**64}, "SW905", "has 64 bits, got 18446744073709551616"),
        ({"seed": 1, "distinct": "ep"}, "SW902", "ep"),
        ({"seed": 1, "distinct": "tp", "synchronised": ("dp", "cp", "tp")}, "SW905", "tp is both"),
        ({"seed": 1, "distinct": "tp", "synchronised": "dp"}, "SW905", "is not told whether ranks along cp"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], code: str, said: str) -> None:
    def body() -> None:
        with pytest.raises(SpmdTypeError, match=said) as caught:
            spmd.rng(**arguments)
        assert caught.value.code == code

    on_ranks(body)


def test_a_stream_needs_a_mesh() -> None:
    with pytest.raises(SpmdTypeError, match="needs a current mesh") as caught:
        spmd.rng(1)
    assert caught.value.code == "SW904"


def test_a_stream_says_what_it_is() -> None:
    assert on_ranks(lambda: repr(spmd.rng(1, distinct="dp")))[0] == "RandomStream(synchronised: cp, tp; distinct: dp)"


def test_all_ranks_were_there() -> None:
    assert on_ranks(dist.get_rank) == list(range(8))
