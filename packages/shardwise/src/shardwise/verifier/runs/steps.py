"""Parameters and gradients as a run shows them: when they enter an optimizer, at its steps, and where it ends."""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from shardwise.diagnostics.source import user_location
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.running.recording import Record, Recorder, StepSettings, Use, has_values
from shardwise.interop.running.wrappers import is_data_parallel, plain_name
from shardwise.interop.tensors.bits import digest_of
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.local_form import local_form, local_tensor
from shardwise.interop.tensors.tagging import tag_of, type_of
from shardwise.interop.torch_compat import hook_tables, no_torch_function, tree_leaves
from shardwise.types.tensor_type import UNTYPED, TensorType

from ..records.annotation_sites import SiteRecorder, is_told_by_no_one
from ..records.flat_parts import FlatPart, FlatParts, held_elements
from ..records.naming import NAMELESS, Names
from .initial_values import InitialValues, claimed
from .perturbation import Perturbation
from .plain_parameters import PlainParameters
from .swapped_data import UNPLACED, SwappedData

Named = list[tuple[str, torch.Tensor]]
SCALED = (torch.optim.SGD, torch.optim.ASGD, torch.optim.LBFGS)
"""Optimizers whose steps are as large as gradients are; those of others may not depend on that."""


class OptimizerSteps:
    """Parameters and gradients as they enter the optimizer; without one, gradients as the program leaves them."""

    def __init__(
        self,
        recorder: Recorder,
        names: Names,
        layouts: bool,
        sites: SiteRecorder | None,
        perturbation: Perturbation | None,
        weights: Mapping[str, torch.Tensor],
    ) -> None:
        self.sites = sites
        self.perturbation = perturbation
        self.recorder = recorder
        self.starts = InitialValues(recorder, names, weights, self._move)
        self.names = names
        self.layouts = layouts
        self.optimizers: dict[int, Any] = {}
        self.counts: Counter[int] = Counter()
        """How many steps each has taken, by id."""
        self.inside: list[Any] = []
        """Optimizers that are taking a step, each within the one before it."""
        self.entering: dict[int, Record | None] = {}
        """The gradients with which the outermost of them was called, by the ids of its parameters."""
        self.shares: set[int] | None = None
        """Those of its parameters that optimizers inside of it step; None if there are none for parameters of its."""
        self.stepped: dict[int, tuple[str, torch.Tensor, TensorType]] = {}
        self.entered: set[int] = set()
        """Parameters that have entered an optimizer, by id."""
        self.graded: set[int] = set()
        """Those of them that had a gradient in some step."""
        self.plain = PlainParameters()
        self.swapped = SwappedData()
        self.uses: dict[int, Use] = {}
        """Where the leaves are first used since the last step of their optimizer, by id."""
        self._used = 0

    def use(self, args: Sequence[object], result: object) -> None:
        """A function of torch has made ``result`` of ``args``: which are leaves, for the first time part of a graph?"""
        made = result if isinstance(result, (list, tuple)) else (result,)
        if not any(isinstance(x, torch.Tensor) and x.grad_fn is not None for x in made):
            return
        for x in tree_leaves(args):
            if isinstance(x, torch.Tensor) and id(x) not in self.uses and x.requires_grad and x.is_leaf:
                self._used += 1
                self.uses[id(x)] = Use(self._used, user_location())

    def given(self, name: str, x: torch.Tensor) -> None:
        """``x`` is given to a module or a loss, by which it has its name."""
        if not has_values(x):
            return
        with no_torch_function():
            self.recorder.add("input", name, x, UNTYPED, None).use = Use(0, user_location())
            if self.layouts:
                # On every rank, so that companions have the same names in every run.
                for other, tensor in self.sites.called(name, x) if self.sites is not None else ():
                    self.recorder.add("input", other, tensor, UNTYPED, None)

    def before_call(self, func: object, args: Sequence[Any]) -> None:
        """A function of torch is about to be called: does it fill a parameter, or compare with a target?"""
        name = getattr(func, "__name__", "")
        if self.sites is not None and name.endswith("_") and not name.startswith(("__", "requires_grad")) and args:
            if isinstance(args[0], torch.Tensor):
                self.sites.filled(args[0])
        elif (name.endswith("_loss") or "cross_entropy" in name) and len(args) > 1:
            target = args[1]
            plain = isinstance(target, torch.Tensor) and not is_dtensor(target)
            if plain and not target.requires_grad and is_told_by_no_one(target):
                self.given(f"1 of {name}", target)

    def remember(self, module: torch.nn.Module) -> None:
        """The parameters of an outermost module, as it is called for the first time."""
        self.recorder.data_parallel |= any(map(is_data_parallel, module.modules()))
        own = self.starts.new_of(module)
        if not own:
            return
        if self.sites is not None:
            with no_torch_function():
                self.sites.used(
                    module, {**{plain_name(name): buffer for name, buffer in module.named_buffers()}, **own}
                )
        for name, parameter in own.items():
            if parameter.numel():
                self.starts.start(name, parameter)
            else:  # gathered where it is used, and taken apart again
                self.starts.awaited[id(parameter)] = name
            self._hear(name, parameter)
        if self.layouts:
            with no_torch_function():
                for name, buffer in module.named_buffers():
                    self._add("buffer", plain_name(name), buffer, UNTYPED, None)

    def _hear(self, name: str, parameter: torch.Tensor) -> None:
        """Listen to the gradients that backward computes, before anybody sums them."""
        if self.layouts and parameter.requires_grad and not is_dtensor(parameter):
            with no_torch_function():
                _hook_first(parameter, functools.partial(self._computed, name, weakref.ref(parameter)))

    def reach(self, leaves: Sequence[torch.Tensor]) -> None:
        """Backward is about to reach ``leaves``: which of them are parameters that no module's call has shown?"""
        new = {id(leaf): leaf for leaf in leaves if leaf not in self.starts and has_values(local_tensor(leaf))}
        owned = self.names.parameters() if new else {}
        known = {start.name for start in self.starts}
        for name, parameter in owned.items():
            # What has the name of another is that parameter as FSDP has gathered it.
            if new.pop(id(parameter), None) is not None and name not in known:
                self.starts.remember(name, parameter)
        # Beside modules a plain leaf is rather what a stage has received, or an input whose gradient is wanted.
        plain = [one for one in new.values() if not owned or isinstance(one, torch.nn.Parameter)]
        for name, leaf, before in self.plain.named(plain):
            if before is None:
                self.names.call(leaf, name)
                if self.sites is not None:
                    self.sites.held(name, leaf, self.plain.frame_of(name))
                self._hear(name, leaf)
                self.starts.remember(name, leaf)
            else:
                self.starts.follow(before, leaf)
        if not self.optimizers:
            for leaf in dict.fromkeys(leaves):
                self.starts.update(leaf)

    def _move(self, x: torch.Tensor) -> None:
        if self.perturbation is not None and has_values(local_tensor(x)):
            with no_torch_function():
                self.perturbation.parameter(x)

    def _computed(self, name: str, of: weakref.ref[torch.Tensor], gradient: torch.Tensor) -> None:
        """Backward has computed the gradient of a parameter on this rank."""
        parameter = of()
        name = name if parameter is None else self.starts.name_of(parameter, name)
        with no_torch_function():
            self.recorder.add("computed", name, gradient, UNTYPED, None)

    def after(self, optimizer: object, args: object, kwargs: object) -> None:
        """A step of ``optimizer`` has been taken."""
        while self.inside and self.inside.pop() is not optimizer:
            pass
        if not self.inside and self.shares is not None:
            for key, record in self.entering.items():
                if record is not None:
                    record.unused = key not in self.shares

    def before(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        """A step of ``optimizer`` is about to be taken."""
        if optimizer in self.inside:
            self.inside = self.inside[: self.inside.index(optimizer)]  # its last step has raised
        self.inside.append(optimizer)
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if len(self.inside) > 1:  # a part of the step of an optimizer that shards its state
            if own <= self.entering.keys():
                self.shares = own | (self.shares or set())
            return
        self.entering, self.shares = dict.fromkeys(own), None
        self.counts[id(optimizer)] += 1
        if self.counts[id(optimizer)] > len(self.recorder.steps):  # the first of several that step in turns
            self.recorder.steps.append(len(self.recorder.entries))
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        location = user_location()
        which = [*self.counts].index(id(optimizer))
        taken = StepSettings(which, self.counts[id(optimizer)] - 1, location, _settings(optimizer))
        self.recorder.settings.append(taken)
        now = zip(self.names.of(parameters), parameters, strict=True)
        named = self._without_parts([(self.starts.named(one, name), one) for name, one in now], location)
        if id(optimizer) not in self.optimizers:
            self.optimizers[id(optimizer)] = optimizer  # kept, so that no other optimizer gets its id
            self.recorder.scale_free |= not isinstance(optimizer, SCALED)
            for name, parameter in named:
                if parameter not in self.starts:
                    self._add("parameter", name, parameter, UNTYPED, location)
        for name, parameter in named:
            # Its type is asked for now: at the end the process groups may be gone.
            self.entered.add(id(parameter))
            self.starts.settle(parameter)
            self.stepped[id(parameter)] = (name, parameter, claimed(parameter))
            gradient = _gradient(parameter)
            if gradient is not None:
                self.graded.add(id(parameter))
                self._move(gradient)
                # Whatever is owed must have been paid: here a gradient is what the parameter is.
                record = self._add("gradient", name, gradient, type_of(parameter), location)
                self._place(record, name, parameter)
                record.use = self.uses.pop(id(parameter), None)
                record.digest = _digest(parameter)
                self.entering[id(parameter)] = record

    def _place(self, record: Record, name: str, parameter: torch.Tensor) -> None:
        """Note which elements ``record``, the gradient of a parameter, is of where that is only a part for now."""
        known = self.starts.of(parameter)
        before = None if known is None else known.record.value
        if before is None or record.value is None or is_dtensor(parameter) or before.shape == parameter.shape:
            return
        record.held = self.swapped.held(name, parameter, before)
        if record.held is None:
            record.value, record.missing = None, UNPLACED

    def _without_parts(self, named: Named, location: SourceLocation | None) -> Named:
        """What is a tensor of its own. Of views of parameters' memory the gradients go to those parameters."""
        if not any(name.startswith(NAMELESS) for name, _ in named):
            return named
        whole: Named = []
        found: dict[str, list[tuple[FlatPart, torch.Tensor]]] = {}
        with no_torch_function():
            flat = FlatParts((start.name, start.tensor) for start in self.starts)
            for name, parameter in named:
                parts = flat.of(parameter) if name.startswith(NAMELESS) else []
                if not parts:
                    whole.append((name, parameter))
                elif parameter.grad is not None:
                    self._move(parameter.grad)
                    values = parameter.grad.reshape(-1)
                    for part in parts:
                        value = values[part.first : part.first + part.stop - part.start]
                        found.setdefault(part.name, []).append((part, value))
            for name, pieces in found.items():
                value, held = held_elements(pieces)
                self.recorder.add("gradient", name, value, UNTYPED, location, held=held)
        return whole

    def at_the_end(self) -> None:
        """The program has run."""
        for _, leaf, last in list(self.plain.at_the_end()):
            self.starts.follow(leaf, last)
        stepped = {name for name, tensor, _ in self.stepped.values()}
        self.starts.forget(self.plain.others | (self.plain.renewed - stepped if self.optimizers else set()))
        for name, parameter in self.names.parameters().items():
            self.starts.named(parameter, name)
        for start in self.starts.changed():  # by hand, if no optimizer has it
            self.stepped.setdefault(id(start.tensor), (start.name, start.tensor, start.type))
        for key, (name, tensor, _) in self.stepped.items():
            if key in self.entered and key not in self.graded and tensor.requires_grad:
                self.recorder.untrained.append(name)
        for name, tensor, type in self.stepped.values():
            with no_torch_function():
                record = self.recorder.add("trained", name, local_tensor(tensor), type, None)
            record.digest = _digest(tensor)
        told = set(self.entered)
        owned: list[tuple[str, torch.Tensor, SourceLocation | None]]
        owned = [(name, one, None) for name, one in self.names.parameters().items()]
        owned += [(start.name, start.tensor, None) for start in self.starts]
        declared = [("what is declared", leaf, location) for leaf, location in self.recorder.leaves]
        for name, tensor, location in (*owned, *declared):
            gradient = _gradient(tensor)
            if gradient is not None and id(tensor) not in told:
                told.add(id(tensor))
                self._add_unfinished(name, tensor, gradient, location)

    def _add(
        self, kind: str, name: str, x: torch.Tensor, declared: TensorType, location: SourceLocation | None
    ) -> Record:
        with no_torch_function():
            return self.recorder.add(kind, name, local_tensor(x), declared if declared.axes else claimed(x), location)

    def _add_unfinished(
        self, name: str, parameter: torch.Tensor, gradient: torch.Tensor, location: SourceLocation | None
    ) -> None:
        """Nothing says whether the sums that it owes have been done; its own type does, where gradients have one."""
        tag = tag_of(gradient)
        try:
            local, type = local_form(gradient)
        except RuntimeError:
            return  # a DTensor whose process groups are gone
        declared = type_of(parameter)
        with no_torch_function():
            if tag is not None and tag.current().axes:
                self.recorder.add("left", name, local, tag.current(), location)
            else:
                owing = declared.backward_type() if declared.axes else None
                self.recorder.add("left", name, local, declared if declared.axes else type, location, owing=owing)


def _settings(optimizer: torch.optim.Optimizer) -> tuple[dict[str, float], ...]:
    """The numbers of each of its groups. A rate that is a tensor is one where it can be read without waiting."""
    found = []
    with no_torch_function():
        for group in optimizer.param_groups:
            rate = group.get("lr")
            told = {name: value for name, value in group.items() if isinstance(value, (int, float))}
            numbers = {name: float(value) for name, value in told.items() if not isinstance(value, bool)}
            if isinstance(rate, torch.Tensor) and rate.device.type == "cpu" and has_values(rate):
                numbers["lr"] = float(rate)
            found.append(numbers)
    return tuple(found)


def _hook_first(parameter: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> None:
    """``hook`` sees the gradient before those of the program, which may sum it over ranks, do."""
    own = parameter.register_hook(hook).id  # type: ignore[no-untyped-call]
    hooks, _ = hook_tables(parameter)
    for key in [key for key in hooks if key != own]:
        hooks[key] = hooks.pop(key)


def _digest(parameter: torch.Tensor) -> bytes:
    """The same for the same bits; nothing where there are none to be looked at."""
    with no_torch_function(), torch.no_grad():
        local = local_tensor(parameter)
        if not has_values(local):
            return b""
        return digest_of(local)


def _gradient(parameter: torch.Tensor) -> torch.Tensor | None:
    with no_torch_function():
        return parameter.grad
