"""Arguments of the wrong kind are type errors with a code, whatever they are, and never an error of our own."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import torch

import shardwise as spmd
from shardwise import I, MeshAxis, P, PartitionSpec, R, S, SpmdType, SpmdTypeError, TensorSharding, V
from shardwise.checker import typecheck


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


WRONG = [1.5, float("nan"), "zz", [[1], [2]], np.ones((2, 2)), -(10**30), Mute(), {"tp": 3}, {3: R}, lambda: 0, b"tp"]


def ones(placement: Any) -> torch.Tensor:
    return spmd.assert_type(torch.ones(4, 4), {"tp": placement})


CALLS = {
    "all_reduce of it": lambda wrong: spmd.all_reduce(wrong, "tp", dst=R),
    "all_gather of it": lambda wrong: spmd.all_gather(wrong, "tp", dst=R),
    "convert of it": lambda wrong: spmd.convert(wrong, "tp", src=I, dst=R),
    "redistribute of it": lambda wrong: spmd.redistribute(wrong, "tp", src=P, dst=R),
    "src": lambda wrong: spmd.all_reduce(ones(P), "tp", src=wrong, dst=R),
    "dst": lambda wrong: spmd.all_reduce(ones(P), "tp", dst=wrong),
    "axis": lambda wrong: spmd.all_reduce(ones(P), wrong, dst=R),
    "split sizes": lambda wrong: spmd.all_gather(ones(V), "tp", src=S(0), dst=R, split_sizes=wrong),
    "backward options": lambda wrong: spmd.all_reduce(ones(P), "tp", dst=R, backward_options=wrong),
    "assert_type": lambda wrong: spmd.assert_type(torch.ones(4, 4), wrong),
    "assert_type on an axis": lambda wrong: spmd.assert_type(torch.ones(4, 4), {"tp": wrong}),
    "overrides": lambda wrong: spmd.assert_type_like(torch.ones(4, 4), ones(R), wrong),
    "mutate_type on an axis": lambda wrong: spmd.mutate_type(ones(R), wrong, src=R, dst=I),
    "mutate_type to": lambda wrong: spmd.mutate_type(ones(R), "tp", src=R, dst=wrong),
    "partition spec": lambda wrong: SpmdType({"tp": V}, wrong),
    "normalised spec": lambda wrong: spmd.normalize_partition_spec(wrong),
    "mesh": lambda wrong: spmd.set_current_mesh(wrong).__enter__(),
    "stride": lambda wrong: MeshAxis.of(2, wrong),
    "strictness": lambda wrong: typecheck(wrong).__enter__(),
    "filtering": lambda wrong: spmd.traceback_filtering(wrong).__enter__(),
    "spmd_redistribute": lambda wrong: spmd.spmd_redistribute(wrong, TensorSharding(None), TensorSharding(None)),
}


@pytest.mark.parametrize("checked", [False, True], ids=["erased", "checked"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_wrong_argument_is_told(tp: None, call: Any, checked: bool) -> None:
    for wrong in WRONG:
        with typecheck() if checked else contextlib.nullcontext(), pytest.raises(SpmdTypeError) as caught:
            call(wrong)
        assert caught.value.code.startswith("SW")
        assert caught.value.message == caught.value.message.strip()


@pytest.mark.parametrize("checked", [False, True], ids=["erased", "checked"])
def test_strings_are_no_placements(tp: None, checked: bool) -> None:
    with typecheck() if checked else contextlib.nullcontext(), pytest.raises(ValueError, match="not strings"):
        spmd.all_reduce(ones(P), "tp", src="P", dst="R")


def test_the_help_for_a_replicate_that_is_to_vary_can_be_pasted(tp: None) -> None:
    x = ones(R)
    with pytest.raises(SpmdTypeError) as caught:
        spmd.assert_type(x, {"tp": V})
    made = eval(caught.value.help[0], {**vars(spmd), "x": x, "reinterpret": spmd.reinterpret, "R": R, "V": V})
    assert isinstance(made, torch.Tensor)


def test_a_spec_may_be_a_plain_tuple_of_names(tp: None) -> None:
    assert spmd.normalize_partition_spec((None, "tp")) == PartitionSpec(None, spmd.normalize_axis("tp"))
