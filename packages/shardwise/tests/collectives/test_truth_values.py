"""Truth values have no sum, so none is pending of them, however it would be made; their extremes and counts are."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

from shardwise import (
    I,
    P,
    R,
    S,
    V,
    all_reduce,
    assert_type,
    assert_type_like,
    convert,
    get_local_type,
    mutate_type,
    redistribute,
    reduce_scatter,
    reinterpret,
    set_current_mesh,
    typecheck,
)
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.worlds.world import InProcessWorld


def bools(place=None):
    x = torch.tensor([True, False, True, True])
    return x if place is None else assert_type(x, {"dp": place})


def like():
    x = bools()
    assert_type_like(x, assert_type(torch.zeros(4), {"dp": P}))


REFUSED = {
    "assert P": lambda: bools(P),
    "assert P(avg)": lambda: bools(P("avg")),
    "assert like P": like,
    "mutate V -> P": lambda: mutate_type(bools(V), "dp", src=V, dst=P),
    **{
        f"convert {src} -> P": lambda src=src: convert(bools(src), "dp", src=src, dst=P, expert_mode=True)
        for src in (R, I, V, S(0))
    },
    **{
        f"reinterpret {src} -> P": lambda src=src: reinterpret(bools(src), "dp", src=src, dst=P, expert_mode=True)
        for src in (R, I, V)
    },
    "all_reduce": lambda: all_reduce(bools(V), "dp", src=P, dst=R),
    "all_reduce, average": lambda: all_reduce(bools(V), "dp", src=P, dst=R, op="avg"),
    "reduce_scatter": lambda: reduce_scatter(bools(V), "dp", src=P, dst=S(0)),
    "redistribute": lambda: redistribute(bools(V), "dp", src=P, dst=R),
    "redistribute, whole types": lambda: redistribute(bools(), {"dp": P}, {"dp": R}),
    "redistribute to P": lambda: redistribute(bools(R), {"dp": R}, {"dp": P}),
}
ADMITTED = {
    "assert P(max)": (lambda: bools(P("max")), P("max")),
    "any rank": (lambda: all_reduce(bools(P("max")), "dp", src=P("max"), dst=R), R),
    "counted": (lambda: all_reduce(bools(V), "dp", src=P, dst=R, op_dtype=torch.int64), R),
    "moved": (lambda: convert(bools(R), "dp", src=R, dst=S(0)), V),
    "a sum of integers": (lambda: assert_type(torch.ones(4, dtype=torch.int64), {"dp": P}), P),
}


def on_two_ranks(function):
    def main():
        with set_current_mesh(init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))):
            return function()

    return InProcessWorld(2).run(main)


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("way", REFUSED)
def test_no_sum_of_truth_values_is_made(way, checked):
    def refused():
        with pytest.raises(SpmdTypeError, match="the sum of truth values is none") as error:
            if checked:
                with typecheck():
                    REFUSED[way]()
            else:
                REFUSED[way]()
        return error.value.code, error.value.help

    for code, help in on_two_ranks(refused):
        assert code == "SW202"
        assert any("P(max)" in line for line in help)
        assert any("to count" in line for line in help)


@pytest.mark.parametrize("way", ADMITTED)
def test_what_is_no_sum_of_truth_values_is(way):
    make, place = ADMITTED[way]

    def typed():
        with typecheck():
            return list(get_local_type(make()).values())

    assert on_two_ranks(typed) == [[place]] * 2


def test_complex_numbers_have_no_pending_extreme():
    def refused():
        with pytest.raises(SpmdTypeError, match="complex numbers have no order") as error:
            assert_type(torch.ones(4, dtype=torch.complex64), {"dp": P("max")})
        return error.value.code

    assert on_two_ranks(refused) == ["SW202"] * 2
