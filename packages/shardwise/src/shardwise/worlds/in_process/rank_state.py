"""What must every rank have to itself, although a process has it only once? It is swapped when the turn passes on.

Random generators (torch's on the CPU, Python's, NumPy's if it is loaded), the default dtype, and the variables by which
``torchrun`` tells a rank who it is.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from typing import Any

import torch

from shardwise.interop.torch_compat import no_modes


class RankState:
    """The state of one rank while another one runs. Made from the state of the process as it is now."""

    def __init__(self, variables: Mapping[str, str | None]) -> None:
        self._names = tuple(variables)
        self.save()
        self._variables: Mapping[str, str | None] = variables

    def save(self) -> None:
        """Take the state of the process."""
        with no_modes():
            self._torch = torch.get_rng_state()
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy: Any = None if numpy is None else numpy.random.get_state()
        self._dtype = torch.get_default_dtype()
        self._variables = {name: os.environ.get(name) for name in self._names}

    def restore(self) -> None:
        """Give it back to the process."""
        with no_modes():
            torch.set_rng_state(self._torch)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        torch.set_default_dtype(self._dtype)
        for name, value in self._variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
