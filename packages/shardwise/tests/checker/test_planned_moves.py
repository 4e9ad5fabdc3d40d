"""``redistribute`` between whole types under the checker: the operand is held to src_spec, the result has dst_spec."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

from shardwise import P, PartitionSpec, R, S, SpmdTypeError, V, assert_type, redistribute, set_current_mesh, typeof
from shardwise.checker import typecheck
from shardwise.interop.torch_compat import fake_world


@pytest.fixture
def mesh():
    with fake_world(0, 8):
        found = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        with set_current_mesh(found):
            yield found


def test_the_result_has_the_type_that_was_asked_for(mesh):
    with typecheck(local=False):
        x = assert_type(torch.ones(4, 8), {"dp": V, "tp": V}, PartitionSpec(("dp", "tp"), None))
        y = redistribute(x, PartitionSpec(("dp", "tp"), None), PartitionSpec(("tp", "dp"), None))
        assert str(typeof(y)) == "f32[4@(tp,dp), 8]"
        assert str(typeof(redistribute(y, PartitionSpec(("tp", "dp"), None), {"dp": R, "tp": S(1)}))) == (
            "f32[32, 2@tp] {dp: R}"
        )


@pytest.mark.parametrize("local", [True, False])
def test_an_operand_that_is_something_else_is_refused_before_anything_is_sent(mesh, local):
    with typecheck(local=local):
        x = assert_type(torch.ones(4, 8), {"dp": R, "tp": R})
        with pytest.raises(SpmdTypeError, match=r"x is P .* over tp, but it is R") as refused:
            redistribute(x, {"dp": R, "tp": P}, {"dp": R, "tp": R})
        assert refused.value.finding.code == "SW201"


def test_a_shard_of_another_dim_is_refused_where_dims_are_followed(mesh):
    with typecheck(local=False):
        x = assert_type(torch.ones(4, 8), {"dp": R, "tp": S(1)})
        with pytest.raises(SpmdTypeError, match=r"is S\(0\) over tp, but it is S\(1\)"):
            redistribute(x, {"dp": R, "tp": S(0)}, {"dp": R, "tp": R})
