"""Costs against rings that are walked through step by step, every element counted where it arrives."""

from __future__ import annotations

import pytest

from shardwise.planner.cost import FREE, Cost, Interconnect, cost_of, itemsize


def pieces(elements: int, size: int) -> list[int]:
    """Lengths of the pieces in which a tensor goes round; the last may be shorter, and is padded on the wire."""
    longest = -(-elements // size)
    return [longest] * size


def ring(lengths: list[int]) -> tuple[int, int]:
    """Messages, and elements that rank 0 receives, when every rank hands on n - 1 times what it got last."""
    size = len(lengths)
    arrived = [lengths[(-1 - turn) % size] for turn in range(size - 1)]
    return len(arrived), sum(arrived)


def exchange(lengths: list[int]) -> tuple[int, int]:
    """The same when every rank sends each other rank its piece."""
    arrived = [length for rank, length in enumerate(lengths) if rank != 0]
    return len(arrived), sum(arrived)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("elements", [1, 7, 24, 4096])
def test_a_collective_costs_what_its_ring_moves(elements, size):
    scattered, gathered = ring(pieces(elements, size)), ring([elements] * size)
    both = tuple(map(sum, zip(scattered, ring(pieces(elements, size)), strict=True)))
    expected = {
        "reduce_scatter": scattered,
        "all_gather": gathered,
        "all_reduce": both,
        "all_to_all": exchange(pieces(elements, size)),
        "convert": (0, 0),
        "reinterpret": (0, 0),
    }
    for op, (messages, received) in expected.items():
        assert cost_of(op, elements, size, "bfloat16") == Cost(messages, received, 2 * received), op


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float32", 4), ("bfloat16", 2), ("int64", 8), ("bool", 1), ("float8_e4m3fn", 1), ("complex64", 8)],
)
def test_the_size_of_an_element_follows_from_its_name(dtype, size):
    assert itemsize(dtype) == size


def test_time_is_latency_per_message_and_bytes_over_bandwidth():
    cost = Cost(3, 500, 1000) + Cost(1, 0, 0) + FREE
    assert cost.seconds(Interconnect(latency_s=2.0, bytes_per_s=100.0)) == 4 * 2.0 + 10.0
