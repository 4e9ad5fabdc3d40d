"""A parameter has one name in all that is recorded of it, and its first value, however the program comes to it."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from shardwise.interop.running.recording import Record, Recorder
from shardwise.verifier.runs.watch import watching


def recorded(recorder: Recorder, *kinds: str) -> list[tuple[str, str]]:
    return [
        (entry.key.kind, entry.key.name)
        for entry in recorder.entries
        if isinstance(entry, Record) and entry.key.kind in kinds
    ]


def value_of(recorder: Recorder, kind: str, name: str) -> torch.Tensor:
    (record,) = (
        entry
        for entry in recorder.entries
        if isinstance(entry, Record) and (entry.key.kind, entry.key.name) == (kind, name)
    )
    assert record.value is not None
    return record.value


@pytest.mark.parametrize("by_hand", [False, True])
def test_what_is_called_before_it_is_a_part_of_the_model_has_its_name_in_the_model(by_hand):
    recorder = Recorder()
    with watching(recorder, layouts=True):
        features = nn.Sequential(nn.Linear(4, 3))
        width = features(torch.zeros(1, 4)).shape[1]
        model = nn.Sequential(OrderedDict(features=features, head=nn.Linear(width, 1)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(2, 4)).sum().backward()
        if by_hand:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= parameter.grad
        else:
            optimizer.step()
    names = ["features.0.bias", "features.0.weight", "head.bias", "head.weight"]
    kinds = ("parameter", "computed", "trained") if by_hand else ("parameter", "computed", "gradient", "trained")
    for kind in kinds:
        assert sorted(name for _, name in recorded(recorder, kind)) == names


def test_what_is_trained_keeps_its_name_where_the_model_becomes_a_part_of_another():
    recorder = Recorder()
    with watching(recorder):
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            whole = nn.Sequential(model)
        whole(torch.ones(1, 4))
    assert {name for _, name in recorded(recorder, "parameter", "gradient", "trained")} == {"weight", "bias"}


@pytest.mark.parametrize("mapped", [False, True])
def test_parameters_that_a_function_of_torch_is_given_in_another_form_have_their_own_values(mapped):
    """As DP-SGD takes the gradient of each sample, and changes the model by hand."""
    recorder = Recorder()
    with watching(recorder):
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        first = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

        def loss(values, x):
            return functional_call(model, values, (x,)).sum()

        taken = vmap(grad(loss), in_dims=(None, 0)) if mapped else grad(loss)
        x = torch.arange(8.0).view(2, 4)
        values = {name: parameter.detach() for name, parameter in model.named_parameters()}
        for name, gradient in taken(values, x).items():
            with torch.no_grad():
                model.get_parameter(name).sub_(gradient.sum(0) if mapped else gradient)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(value_of(recorder, "parameter", name), first[name], rtol=0, atol=0)
        torch.testing.assert_close(value_of(recorder, "trained", name), parameter.detach(), rtol=0, atol=0)
        assert not torch.equal(parameter, first[name])


def test_a_model_that_is_called_in_another_form_and_not_changed_has_not_been_trained():
    recorder = Recorder()
    with watching(recorder):
        model = nn.Linear(4, 1)
        values = {name: parameter.detach() for name, parameter in model.named_parameters()}
        grad(lambda values: functional_call(model, values, (torch.ones(4),)).sum())(values)
    assert recorded(recorder, "trained") == []
