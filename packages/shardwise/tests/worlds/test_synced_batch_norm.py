"""SyncBatchNorm on the CPU normalises as one rank would with the samples of all, forward and backward."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.nn import BatchNorm2d, SyncBatchNorm
from torch.nn.parallel import DistributedDataParallel

import shardwise as spmd
from shardwise import P, R, S, V
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.host.accelerators import synced_batch_norm
from shardwise.worlds.fake import fake_world
from shardwise.worlds.world import InProcessWorld


def trained(layer, x, *, synced):
    """Two steps' results, gradients and running statistics."""
    forward = synced_batch_norm.forward if synced else BatchNorm2d.forward
    for _ in range(2):
        x = x.detach().requires_grad_()
        y = forward(layer, x)
        layer.zero_grad()
        (y * torch.linspace(-1, 1, y[0].numel()).view_as(y[0]) * y.relu()).sum().backward()
    return y.detach(), x.grad, layer.weight, layer.bias, layer.running_mean, layer.running_var


def batch(dtype=torch.float32):
    return torch.randn(7, 3, 2, 5, generator=torch.Generator().manual_seed(3)).to(dtype)


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("parts", [(3, 4), (1, 6), (2, 2, 3)], ids=str)
def test_ranks_with_unequal_shares_of_a_batch_agree_with_one_rank(parts, momentum):
    def program():
        layer = SyncBatchNorm(3, momentum=momentum)
        own = batch().split(parts)[dist.get_rank()].clone()
        return [*trained(layer, own, synced=True), layer.weight.grad, layer.bias.grad]

    whole = BatchNorm2d(3, momentum=momentum)
    y, grad, *_, mean, variance = trained(whole, batch(), synced=False)
    ranks = InProcessWorld(len(parts)).run(program)
    torch.testing.assert_close(torch.cat([rank[0] for rank in ranks]), y)
    torch.testing.assert_close(torch.cat([rank[1] for rank in ranks]), grad)
    for rank in ranks:
        torch.testing.assert_close(rank[4], mean)
        torch.testing.assert_close(rank[5], variance)
    torch.testing.assert_close(sum(rank[6] for rank in ranks), whole.weight.grad)
    torch.testing.assert_close(sum(rank[7] for rank in ranks), whole.bias.grad)


def test_half_precision_goes_in_and_comes_out():
    (y,) = {
        out.dtype
        for out in InProcessWorld(2).run(lambda: synced_batch_norm.forward(SyncBatchNorm(3), batch(torch.bfloat16)))
    }
    assert y is torch.bfloat16


@pytest.mark.parametrize("training", [True, False])
def test_alone_and_in_evaluation_it_is_batch_normalisation(training):
    layer, plain = SyncBatchNorm(3).train(training), BatchNorm2d(3).train(training)
    torch.testing.assert_close(synced_batch_norm.forward(layer, batch()), plain(batch()))


def test_a_wrapper_takes_it_on_the_cpu():
    with fake_world(0, 2):
        dist.init_process_group("nccl")
        # What follows writes into its result, as in most convolutional networks.
        network = torch.nn.Sequential(BatchNorm2d(3), torch.nn.ReLU(inplace=True))
        layer = SyncBatchNorm.convert_sync_batchnorm(network).cuda()
        wrapped = DistributedDataParallel(layer, device_ids=[0])
        wrapped(batch()).sum().backward()
        assert layer[0].weight.grad is not None


@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "permissive"])
@pytest.mark.parametrize(
    ("given", "group", "refused"),
    [(S(0), "dp", ""), (R, "dp", ""), (P, "dp", "SW112"), (S(0), "tp", "SW411")],
    ids=["samples", "copies", "addends", "other group"],
)
def test_types(given, group, refused, local, strict):
    with fake_world(0, 4), checking(strict=strict, local=local):
        mesh = dist.init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
        with spmd.set_current_mesh(mesh):
            layer = SyncBatchNorm(3, process_group=mesh.get_group(group))
            for one in (*layer.parameters(), *layer.buffers()):
                spmd.assert_type(one, R)
            x = spmd.assert_type(batch(), {"dp": given, "tp": R})
            if refused and not (local and refused == "SW411"):
                with pytest.raises(SpmdTypeError) as error:
                    layer(x)
                assert error.value.code == refused
                return
            y = spmd.assert_type(layer(x), {"dp": given, "tp": R})
            with pytest.raises(SpmdTypeError):
                spmd.assert_type(y, {"dp": V if given is R else R, "tp": R})
