"""``torch.utils.swap_tensors``, by which ``module.to`` moves DTensors: our weak references do not keep it from that."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace

import torch

from shardwise.host.attribute_patch import patched
from shardwise.interop.tensors.own_references import foreign_references

from .patches import Patches, Plugin

_ASKED = "weakref"
"""The module that torch asks for weak references, under the name that it has there."""


def _install(patches: Patches) -> None:
    if hasattr(torch.utils, _ASKED):
        patches.replace_attribute(torch.utils, "swap_tensors", _wrap)


def _wrap(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def swap_tensors(t1: torch.Tensor, t2: torch.Tensor) -> object:
        with patched(torch.utils, _ASKED, SimpleNamespace(getweakrefs=foreign_references)):
            return plain(t1, t2)

    return swap_tensors


PLUGIN = Plugin("tensors whose contents are swapped", _install)
