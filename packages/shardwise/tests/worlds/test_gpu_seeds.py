"""A program seeds, saves and restores the generators of GPUs that are not there; its draws are the CPU's."""

from __future__ import annotations

import pytest
import torch

from shardwise.worlds.fake import fake_world


@pytest.fixture
def world():
    with fake_world(5, 16) as world:
        yield world


def tracked() -> list[torch.Tensor]:
    """What a tracker of random states draws: shards by the rank's seed in between of what all ranks draw alike."""
    torch.manual_seed(1)
    before = torch.cuda.get_rng_state()
    torch.cuda.manual_seed(7)
    own = torch.cuda.get_rng_state()
    torch.cuda.set_rng_state(before)
    first = torch.rand(2, device="cuda")
    everyone = torch.cuda.get_rng_state()
    torch.cuda.set_rng_state(own)
    shard = torch.rand(2, device="cuda")
    torch.cuda.set_rng_state(everyone)
    return [first, shard, torch.rand(2, device="cuda")]


USES = {
    "a device of its own": lambda: torch.cuda.set_device(0),
    "a tensor made there": lambda: torch.empty(1, device="cuda:0"),
    "a tensor moved there": lambda: torch.ones(1).to("cuda"),
    "a tensor moved by number": lambda: torch.ones(1).to(0),
    "a tensor moved by name": lambda: torch.ones(1).cuda(),
    "a model moved there": lambda: torch.nn.Linear(1, 1).to(torch.device("cuda", 0)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_seeds_of_a_gpu_that_the_program_uses_are_those_of_its_draws(world, use):
    torch.manual_seed(1)
    torch.cuda.manual_seed(7)
    drawn = [torch.rand(2)]
    use()
    drawn += [torch.rand(2, device="cuda")]
    torch.cuda.manual_seed(3)
    drawn += [torch.rand(2, device="cuda")]
    for seed, numbers in zip((1, 7, 3), drawn, strict=True):
        assert torch.equal(numbers, torch.rand(2, generator=torch.Generator().manual_seed(seed)))


def test_a_gpu_that_is_seeded_as_the_cpu_is_goes_on_where_that_is(world):
    torch.manual_seed(1)
    drawn = [torch.rand(2), torch.rand(2, device="cuda")]
    assert torch.equal(torch.cat(drawn), torch.rand(4, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("first", [True, False], ids=["before", "as it draws"])
def test_seeds_of_a_gpu_that_the_program_takes_are_those_of_its_draws(world, first):
    if first:
        torch.cuda.set_device(0)
    first, shard, second = tracked()
    assert torch.equal(torch.cat([first, second]), torch.rand(4, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(shard, torch.rand(2, generator=torch.Generator().manual_seed(7)))
    torch.cuda.random._lazy_call(lambda: torch.cuda.default_generators[0].manual_seed(3))  # as Megatron does
    assert torch.equal(torch.rand(2), torch.rand(2, generator=torch.Generator().manual_seed(3)))


def test_seeds_of_a_gpu_that_nobody_uses_are_nothing(world):
    torch.manual_seed(1)
    torch.cuda.manual_seed(7)
    torch.cuda.set_rng_state(torch.Generator().manual_seed(5).get_state())
    assert torch.equal(torch.rand(6), torch.rand(6, generator=torch.Generator().manual_seed(1)))


def test_states_of_no_gpu_may_be_restored(world):
    """As lightning does, which has saved those of all that there were."""
    before = torch.get_rng_state()
    torch.cuda.set_rng_state_all([])
    assert torch.equal(torch.get_rng_state(), before)
    saved = torch.cuda.get_rng_state_all()
    torch.cuda.set_device(0)
    torch.rand(2)
    torch.cuda.set_rng_state_all(saved)
    assert torch.equal(torch.get_rng_state(), before)
