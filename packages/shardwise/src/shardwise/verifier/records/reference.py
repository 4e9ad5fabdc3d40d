"""An independent single-device program that stands in for the program's own run on one rank.

def step(parameters):                       # their values before the first step, by name, whole
    model = Plain(); model.load_state_dict(parameters)
    loss_of(model).backward()               # recorded like any run: loss, gradients, optimizer, parameters

def step(parameters):                       # or without modules: what it returns is compared
    return {"loss": loss, "up.weight": its_gradient}
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from shardwise.host.no_run import NoProgram
from shardwise.interop.running.recording import Draw, Record, recorded

from .record import RankRun
from .subject import Named

LOSS = "loss"
SIGNATURE = "a reference takes nothing, or one argument: the initial parameters by name"
RESULT = (
    "a reference returns nothing, or a dict of tensors (or a list of them, one for each step): 'loss' and gradients"
)


@dataclass(frozen=True)
class Reference(Named):
    """A function by name that computes on one device what the program should compute.

    ``parameters``  the initial values of the program's parameters, whole, as the run on one rank has them.
    """

    parameters: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def prepare(self, sizes: Mapping[str, int]) -> Callable[[object], object]:
        return self._called

    def _called(self, mesh: object) -> None:
        function = self.loaded().function
        values = {name: value.clone() for name, value in self.parameters.items()}
        made = function(values) if self._takes_parameters(function) else function()
        steps = [] if made is None else made if isinstance(made, (list, tuple)) else [made]
        for number, step in enumerate(steps):
            self._record(step, first=number == 0)

    def _takes_parameters(self, function: Callable[..., object]) -> bool:
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            return False
        positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        needed = [one for one in parameters if one.default is one.empty and one.kind in _NEEDED]
        if len(needed) > 1 or needed != positional[: len(needed)]:
            raise NoProgram(f"{self} takes {', '.join(one.name for one in needed)}: {SIGNATURE}")
        return bool(positional)

    def _record(self, step: object, *, first: bool) -> None:
        if not isinstance(step, Mapping) or not all(isinstance(one, torch.Tensor) for one in step.values()):
            raise NoProgram(f"{self} returns {type(step).__name__}: {RESULT}")
        unknown = [str(name) for name in step if name != LOSS and name not in self.parameters]
        if unknown:
            known = ", ".join(list(self.parameters)[:5])
            raise NoProgram(f"{self} returns {unknown[0]!r}, which is no parameter of the program: it has {known}")
        for name, value in step.items():
            if name == LOSS:
                recorded("loss", "", value)
                continue
            if first:
                recorded("parameter", name, self.parameters[name])
                recorded("left", name, value)
            recorded("gradient", name, value)


_NEEDED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def reference_named(text: str) -> Reference:
    """The function that ``text`` names. NoProgram if it names none, or there is no such file."""
    home, colon, function = text.rpartition(":")
    if not colon or not home or not function.replace(".", "").isidentifier():
        raise NoProgram(f"{text!r} names no function: write FILE.py:FUNCTION or MODULE:FUNCTION")
    reference = Reference(home, function)
    reference.require()
    return reference


def compare_only_common(ranks: Sequence[RankRun], own: RankRun, alone: RankRun) -> None:
    """Leave in the runs what can be told of both: which random numbers either draws is no business of the other."""
    inputs = {entry.key.name for entry in alone.entries if entry.key.kind == "input"}
    for run in (*ranks, own, alone):
        run.entries = [
            entry
            for entry in run.entries
            if not isinstance(entry, Draw) and (entry.key.kind != "input" or entry.key.name in inputs)
        ]
    # The n-th loss is the n-th loss, at whichever line either has it.
    own_losses = [entry.key for entry in ranks[0].entries if entry.key.kind == "loss"]
    losses = [entry for entry in alone.entries if isinstance(entry, Record) and entry.key.kind == "loss"]
    for key, loss in zip(own_losses, losses, strict=False):
        loss.key = key
