"""What wrappers of modules put into names is taken out again."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from shardwise.interop.running.wrappers import plain_class, plain_name, wrapped_by
from shardwise.worlds.fake import fake_world


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("0.weight", "0.weight"),
        ("module.0.weight", "0.weight"),
        ("_orig_mod.module.layers.1.bias", "layers.1.bias"),
        ("layers.1._checkpoint_wrapped_module.bias", "layers.1.bias"),
        ("encoder.module.weight", "encoder.weight"),
        ("submodule.weight", "submodule.weight"),
    ],
)
def test_a_name_is_that_of_what_is_wrapped(name, plain):
    assert plain_name(name) == plain


@pytest.mark.slow
def test_a_wrapper_is_called_as_what_it_wraps():
    inner = torch.nn.Linear(2, 2)
    wrapper = torch.compile(checkpoint_wrapper(inner))
    assert wrapped_by(inner) is None
    assert wrapped_by(wrapped_by(wrapper)) is inner
    assert plain_class(wrapper) == "Linear"


def test_a_sharded_module_keeps_the_name_of_its_class():
    module = torch.nn.Linear(4, 4)
    with fake_world(0, 2):
        fully_shard(module, mesh=init_device_mesh("cpu", (2,), mesh_dim_names=("dp",)))
    assert type(module).__name__ == "FSDPLinear"
    assert plain_class(module) == "Linear"
