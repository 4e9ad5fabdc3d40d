"""The record of a run ends in the thread that ran it."""

from __future__ import annotations

import threading
import time
import weakref

import pytest
import torch
import torch.distributed as dist

from shardwise.interop.running.recording import Record, Recorder
from shardwise.verifier.runs.watch import watching
from shardwise.worlds.processes import run_processes


def threads_in_which_a_model_dies() -> list[str]:
    died: list[str] = []
    with watching(Recorder()):
        model = torch.nn.Linear(4, 2)
        weakref.finalize(model, lambda: died.append(threading.current_thread().name))
        model(torch.ones(3, 4)).sum().backward()
        del model
        if dist.get_rank() == 1:
            time.sleep(1.0)
        dist.barrier(async_op=True)
    time.sleep(2.0)  # meanwhile gloo's thread lets go of the barrier, and of the modes under which it was called
    return died


@pytest.mark.processes
def test_what_a_watch_has_met_does_not_die_with_a_collective_in_a_thread_of_gloos():
    for died in run_processes(threads_in_which_a_model_dies, 2, timeout_s=60.0):
        assert set(died) <= {threading.main_thread().name}


def test_a_gradient_is_recorded_before_a_hook_of_the_program_changes_it():
    """A hook that sums it over the ranks makes it equal there: that says nothing of what backward has computed."""
    model = torch.nn.Linear(4, 1, bias=False)
    order: list[str] = []
    model.weight.register_hook(lambda gradient: order.append("first") or gradient * 2)
    model.weight.register_hook(lambda gradient: order.append("second") or gradient + 1)
    recorder = Recorder()
    with watching(recorder, layouts=True):
        model(torch.ones(3, 4)).sum().backward()
    (computed,) = (entry for entry in recorder.entries if isinstance(entry, Record) and entry.key.kind == "computed")
    assert order == ["first", "second"]
    torch.testing.assert_close(computed.value, torch.full((1, 4), 3.0))
    torch.testing.assert_close(model.weight.grad, torch.full((1, 4), 7.0))
