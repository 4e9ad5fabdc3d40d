"""Parameters with the values that they have before anything is computed of them: by these they are told apart.

What a module is called with may not be what it has: in ``functional_call(model, values, x)`` the parameters of
``model`` are away. They are trained all the same where the program changes them by hand, so their values are kept until
the end.

A parameter may get another name. ``features(torch.zeros(1, 3, 8, 8)).shape`` calls a module that becomes a part of the
model only afterwards: ``0.weight`` is ``features.0.weight`` from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from shardwise.interop.running.recording import Record, Recorder, has_values
from shardwise.interop.tensors.local_form import local_form, local_tensor
from shardwise.interop.torch_compat import no_torch_function
from shardwise.types.tensor_type import UNTYPED, Ground, TensorType

from ..records.naming import NAMELESS, Names


@dataclass
class Start:
    """A parameter as it starts.

    ``type``    what somebody says of it, asked for when it was met: at the end the process groups may be gone.
    ``record``  of its initial value.
    ``latest``  its value when backward reached it last; None where it had none.
    ``settled`` a step has been recorded under its name, which it keeps from then on.
    """

    tensor: torch.Tensor
    type: TensorType
    record: Record
    latest: torch.Tensor | None
    settled: bool = False

    @property
    def name(self) -> str:
        return self.record.key.name

    def is_changed(self) -> bool:
        """Is its value another one than at first?"""
        return self.differs_from(self.record.value)

    def differs_from(self, before: torch.Tensor | None) -> bool:
        """Is its value known, and not ``before``?"""
        now = local_tensor(self.tensor)
        return before is not None and has_values(now) and not torch.equal(before, now.detach().cpu())


class InitialValues:
    """The parameters that have been met, by id.

    ``given``  values that parameters are to start from, by name.
    ``met``    told of every parameter that is met.
    """

    def __init__(
        self,
        recorder: Recorder,
        names: Names,
        given: Mapping[str, torch.Tensor],
        met: Callable[[torch.Tensor], None],
    ) -> None:
        self._recorder, self._names, self._given, self._met = recorder, names, given, met
        self._held: dict[int, Start] = {}
        self._away: dict[int, tuple[torch.Tensor, torch.UntypedStorage]] = {}
        """Parameters that a module was called without, by id, and a copy of their memory then."""
        self._paths: dict[int, set[str]] = {}
        """The paths of the parameters of an outermost module, by its id."""
        self.awaited: dict[int, str] = {}
        """Parameters that are without elements until they are used, by id: their names."""

    def __contains__(self, parameter: object) -> bool:
        return id(parameter) in self._held

    def __iter__(self) -> Iterator[Start]:
        return iter(self._held.values())

    def of(self, parameter: torch.Tensor) -> Start | None:
        """As which the parameter was met."""
        return self._held.get(id(parameter))

    def name_of(self, parameter: torch.Tensor, otherwise: str) -> str:
        """What the parameter is called now."""
        known = self.of(parameter)
        return otherwise if known is None else known.name

    def new_of(self, module: torch.nn.Module) -> dict[str, torch.Tensor]:
        """The parameters of an outermost module that have not been met, by name."""
        held = self._paths.setdefault(id(module), set())
        # What has a path that another tensor had before is that parameter as FSDP has gathered it.
        found = {path: parameter for path, parameter in module.named_parameters() if path not in held}
        held.update(found)
        if not found:
            return {}
        self._keep_away(module)
        new = {id(one) for one in found.values() if one not in self and has_values(local_tensor(one))}
        known = self._names.parameters()
        for name, parameter in known.items():
            self.named(parameter, name)
        return {name: one for name, one in known.items() if id(one) in new}

    def _keep_away(self, module: torch.nn.Module) -> None:
        with no_torch_function():
            for parameter in self._names.replaced_in(module):
                if id(parameter) not in self._away and has_values(local_tensor(parameter)):
                    # Under ``torch.func.grad`` a clone would be a stand-in, whose values are gone at the end.
                    self._away[id(parameter)] = (parameter, local_tensor(parameter).untyped_storage().clone())  # type: ignore[no-untyped-call]

    def start(self, name: str, parameter: torch.Tensor) -> None:
        """``parameter`` has its initial value; if one is given, it gets that."""
        given, local = self._given.get(name), local_tensor(parameter)
        if given is not None and given.shape == local.shape:
            with no_torch_function(), torch.no_grad():
                local.detach().copy_(given)
        self.remember(name, parameter)

    def remember(self, name: str, parameter: torch.Tensor) -> None:
        """``parameter`` has its initial value."""
        type = claimed(parameter)
        with no_torch_function():
            record = self._recorder.add("parameter", name, local_tensor(parameter), type, None)
        self._held[id(parameter)] = Start(parameter, type, record, record.value)
        self._met(parameter)

    def used(self, args: Sequence[object]) -> None:
        """A function is called with these: is there a parameter among them that has got its elements?"""
        for x in args:
            if id(x) in self.awaited and isinstance(x, torch.Tensor):
                with no_torch_function():
                    there = bool(x.numel()) and has_values(x)
                if there:
                    self.start(self.awaited.pop(id(x)), x)

    def update(self, leaf: torch.Tensor) -> None:
        """The program has changed a parameter by hand, if it is not what it was at the last backward."""
        known = self.of(leaf)
        if known is None:
            return
        with no_torch_function():
            if known.differs_from(known.latest):
                known.latest = self._recorder.add("updated", known.name, local_tensor(leaf), known.type, None).value

    def follow(self, before: torch.Tensor, after: torch.Tensor) -> None:
        """``after`` has taken the place of ``before``, which was a parameter."""
        known = self._held.pop(id(before), None)
        if known is not None:
            self._names.call(after, known.name)
            self._held[id(after)] = replace(known, tensor=after)

    def named(self, parameter: torch.Tensor, name: str) -> str:
        """What a parameter whose name is ``name`` by now is called in all records."""
        known = self.of(parameter)
        if known is None or name.startswith(NAMELESS):
            return name
        if not known.settled and known.name != name:
            known.record.key = replace(known.record.key, name=name)
        return known.name

    def settle(self, parameter: torch.Tensor) -> None:
        """A step is recorded under the parameter's name."""
        known = self.of(parameter)
        if known is not None:
            known.settled = True

    def forget(self, names: set[str]) -> None:
        """What has these names is no parameter."""
        self._recorder.forget(names)
        self._held = {key: one for key, one in self._held.items() if one.name not in names}

    def changed(self) -> Iterator[Start]:
        """At the end: the parameters that are not what they were, also those that modules were called without."""
        names = {id(parameter): name for name, parameter in self._names.parameters().items()}
        for parameter, memory in self._away.values():
            name = names.get(id(parameter))
            if name is None or parameter in self:
                continue
            with no_torch_function(), torch.no_grad():
                now = local_tensor(parameter)
                before = torch.empty(0, dtype=now.dtype, device=now.device)
                before.set_(memory, now.storage_offset(), now.shape, now.stride())
                record = self._recorder.add("parameter", name, before, UNTYPED, None)
            self._held[id(parameter)] = Start(parameter, claimed(parameter), record, before)
        with no_torch_function():
            yield from [one for one in self if one.is_changed()]


def claimed(x: torch.Tensor) -> TensorType:
    """What somebody says that ``x`` is. What a constant is follows from how it was made, and is nobody's word."""
    type = local_form(x)[1]
    return type if type.ground is Ground.ABSENT else UNTYPED
