"""What torch hides from modes is patched by plug-ins: they switch off where torch has changed, and say so."""

import math
import re
import sys
import types

import pytest
import torch

from shardwise.checker import typecheck
from shardwise.checker.patching import installation, patches
from shardwise.checker.patching.patches import Patches, Plugin
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.formats import from_json, to_json
from shardwise.diagnostics.result import Collector
from shardwise.diagnostics.text import render_result
from shardwise.interop.running.session import SpmdTypeWarning
from shardwise.interop.torch_compat import MissingName, PatchPoint

GONE = PatchPoint("torch._functorch.vmap._gone")


def _half(patches: Patches) -> None:
    patches.replace_attribute(torch.masked, "is_masked_tensor", lambda plain: None)
    patches.replace(GONE, lambda plain: plain)


@pytest.fixture
def planted(monkeypatch):
    """Plants a plug-in whose torch has changed; what is switched off is forgotten afterwards."""

    def plant(tier):
        plugin = Plugin("parameters of FSDP1", _half, tier)
        monkeypatch.setattr(installation, "PLUGINS", (plugin, *installation.PLUGINS[:-1]))

    monkeypatch.setattr(installation, "_switched_off", {})
    return plant


def test_a_plug_in_whose_torch_has_changed_switches_itself_off_and_the_others_stay(planted):
    planted(tier=2)
    original, apply = torch.masked.is_masked_tensor, torch.autograd.Function.__dict__["apply"]
    collector = Collector()
    with checking(collect=collector):
        assert torch.masked.is_masked_tensor is original
        assert torch.autograd.Function.__dict__["apply"] is not apply
    (said,) = collector.result().not_followed
    assert said.startswith(f"parameters of FSDP1 are not followed on torch {torch.__version__}: ")
    assert "torch._functorch.vmap._gone" in said
    assert f"not followed: {said}" in render_result(collector.result())
    assert from_json(to_json(collector.result())).not_followed == (said,)


def test_without_a_report_it_is_a_warning(planted):
    planted(tier=2)
    check = typecheck()
    check.__enter__()
    with pytest.warns(SpmdTypeWarning, match="not followed: parameters of FSDP1"):
        check.__exit__(None, None, None)


def test_there_is_no_check_without_what_every_check_needs(planted):
    planted(tier=1)
    original = torch.autograd.Function.apply
    with pytest.raises(MissingName, match=re.escape(GONE.name)), typecheck():
        pass
    assert torch.autograd.Function.apply == original
    assert installation._threads == 0


def test_nothing_is_switched_off_on_the_installed_torch():
    collector = Collector()
    with checking(collect=collector):
        pass
    assert collector.result().not_followed == ()


def _replaced():
    return [torch.autograd.Function.__dict__["apply"], torch.nn.Parameter.__dict__["__new__"], torch.masked.mean]


def test_everything_is_put_back():
    before = _replaced()
    with typecheck():
        assert all(now is not then for now, then in zip(_replaced(), before, strict=True))
    assert _replaced() == before


def test_a_function_is_replaced_under_every_name_that_a_module_has(monkeypatch):
    module = types.ModuleType("a_module_of_the_program")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.average = original = torch.masked.mean
    with typecheck():
        assert module.average is torch.masked.mean is not original
    assert module.average is torch.masked.mean is original


def test_a_function_is_found_again_where_another_has_stood_in_between(monkeypatch):
    """As ``torch.manual_seed``, which a world of several ranks replaces for as long as it lasts."""

    def replaced(function):
        patches = Patches()
        patches.replace_everywhere({function: print})
        found = math.floor is print
        patches.undo()
        return found

    def first(): ...
    def second(): ...

    for function in (first, second, first):
        monkeypatch.setattr(math, "floor", function)
        assert replaced(function)


def test_after_a_rehearsal_only_the_program_and_what_is_loaded_later_are_searched(monkeypatch):
    monkeypatch.setattr(patches, "_lengths", {})
    monkeypatch.setattr(patches, "_calm", {})
    installation.rehearse()
    assert set(patches._calm) == {"__main__"}
    module = types.ModuleType("a_module_that_is_loaded_later")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.average = original = torch.masked.mean
    with typecheck():
        assert module.average is torch.masked.mean is not original
    assert module.average is original
