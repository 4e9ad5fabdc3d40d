"""Where in a program's source a type could be written: how its code reaches its parameters and inputs, and from where.

For every parameter the functions of the program that were running when a module took it in, the innermost first, with
what each can call it afterwards: ``self.up.weight`` at the end of ``Block.__init__``, ``model[0].weight`` behind the
statement that binds ``model``. A function that had returned when the parameter was filled is no place for its type:
filling it would have to keep what is claimed. For every input the function that calls the module, and its name there.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import CodeType, FrameType

import torch
import torch.distributed as dist
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.utils.hooks import RemovableHandle

from shardwise.diagnostics.source import positions_of
from shardwise.interop.running.recording import has_values
from shardwise.interop.running.wrappers import FORWARDING
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import is_flattened, no_torch_function
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import CurrentMesh, current_entry
from shardwise.types.placement import UNKNOWN
from shardwise.types.tensor_type import Ground, TensorType

from .expressions import expressions_for, group_candidates, variables_holding

FOREIGN = ("site-packages", "dist-packages", ".venv", "venv", "node_modules")
"""Folders with code of others, also inside of a project."""
STATISTICS = (
    torch.nn.BatchNorm1d,
    torch.nn.BatchNorm2d,
    torch.nn.BatchNorm3d,
    torch.nn.SyncBatchNorm,
    torch.nn.InstanceNorm1d,
    torch.nn.InstanceNorm2d,
    torch.nn.InstanceNorm3d,
)
"""Modules whose buffers are statistics of what they have seen."""
DEEPEST = 12
"""So many functions of the program are looked at, from the innermost outwards."""


@dataclass(frozen=True)
class Place:
    """A function of the program, or the top of a file.

    ``function``  its name and the line where it starts; empty, and 0, for the top of a file.
    """

    file: str
    function: str
    start: int


class Held(Enum):
    """What has a parameter, and where is backward when it is met?"""

    BY_A_MODULE = "by a module"
    USED_HERE = "used here"
    USED_WITHIN = "used in a function that is called here"


@dataclass(frozen=True)
class Reach:
    """What code at ``place`` can call a tensor.

    ``expression``  Python, e.g. ``self.up.weight``.
    ``bound``       the name that it begins with.
    ``line``        what is running, and was when the tensor was last filled: the type goes behind it.
    ``call``        of an input: line, column, end line, end column of the call that it is given to.
    ``groups``      what a process group is called there, by the name of the axis on the command line.
    ``declared``    the axes of which the program says the tensor's type already.
    ``whole``       of a parameter: how many the module has that is bound to the name; 0 if it is no module.
    ``unwrapped``   of a wrapper: the expression before the name was bound to the wrapper, if it was bound before.
    ``path``        what ``named_parameters`` of the module that is bound to the name calls it, and ``holder`` which
                    module that is; empty, and 0, if it is none.
    ``held``        of a parameter that no module has: where backward runs that has reached it, in a function that is
                    called at ``line`` or at ``line`` itself. The type goes before that, behind all that has filled it.
    """

    place: Place
    expression: str
    bound: str
    line: int
    call: tuple[int, int, int, int] | None = None
    groups: tuple[tuple[str, str], ...] = ()
    declared: tuple[str, ...] = ()
    whole: int = 0
    unwrapped: str = ""
    path: str = ""
    holder: int = 0
    held: Held = Held.BY_A_MODULE


@dataclass(frozen=True)
class _Link:
    """A module that another one has taken in under a name: while which functions were running, at which of their lines,
    and as the how manieth.

    ``parent``  kept, so that no other module gets its id.
    """

    parent: torch.nn.Module
    running: Mapping[FrameType, int]
    number: int


@dataclass
class AnnotationSites:
    """What one rank tells: by name, the ways to reach each parameter, innermost function first, and each input.

    ``made``   by the ``__init__`` that they have, all modules of the program's own classes, as ``Reach.holder``.
    ``names``  what the program calls the axes of the command line's mesh.
    ``absent`` names of inputs that are no tensor in some calls.
    """

    parameters: dict[str, tuple[Reach, ...]] = dataclasses.field(default_factory=dict)
    made: dict[Place, set[int]] = dataclasses.field(default_factory=dict)
    inputs: dict[str, Reach] = dataclasses.field(default_factory=dict)
    names: dict[str, str] = dataclasses.field(default_factory=dict)
    absent: set[str] = dataclasses.field(default_factory=set)


class SiteRecorder:
    """Watches a run and fills ``sites``.

    ``project``  the folder whose files may be written to; ``given`` the mesh of the command line.
    """

    def __init__(self, project: Path, given: CurrentMesh) -> None:
        self.sites = AnnotationSites()
        self._project = project
        self._given = given
        self._axes = given.names
        self._own_files: dict[CodeType, bool] = {}
        self._frames: dict[int, tuple[torch.Tensor, dict[FrameType, int], int]] = {}
        """By id of the parameter: it, the functions with their lines, and how many modules had been taken in."""
        self._links: dict[tuple[int, str], _Link] = {}
        self._taken_in = 0
        self._by_memory: dict[int, int] = {}
        self._wrapped: dict[int, tuple[torch.Tensor, dict[FrameType, int]]] = {}
        """By id of a parameter that a wrapper may still make equal on all ranks: its values, and what was running."""

    def watch(self) -> tuple[RemovableHandle, ...]:
        """Listen to modules that take parameters and buffers in, until the handles are removed."""
        return (
            register_module_parameter_registration_hook(self._registered),
            register_module_buffer_registration_hook(self._registered),
            register_module_module_registration_hook(self._linked),
        )

    def _registered(self, module: torch.nn.Module, name: str, parameter: object) -> None:
        if isinstance(module, STATISTICS) and not isinstance(parameter, torch.nn.Parameter):
            return  # each rank's own, until somebody synchronises them
        if isinstance(parameter, torch.Tensor) and not is_dtensor(parameter) and id(parameter) not in self._frames:
            self._frames[id(parameter)] = (parameter, self._running(), self._taken_in)
            with no_torch_function():
                self._by_memory[parameter.data_ptr()] = id(parameter)

    def _linked(self, module: torch.nn.Module, name: str, inner: object) -> None:
        if inner is not None:
            self._taken_in += 1
            running = self._running()
            self._links[id(module), name] = _Link(module, running, self._taken_in)
            if isinstance(module, torch.nn.parallel.DistributedDataParallel) and isinstance(inner, torch.nn.Module):
                with no_torch_function():
                    values = {id(one): one.detach().clone() for one in inner.parameters() if has_values(one)}
                self._wrapped |= {which: (value, running) for which, value in values.items()}

    def _stands_since(self, module: object, path: str, frame: FrameType, since: int) -> int | None:
        """Behind which line of ``frame`` does ``path`` lead from ``module`` to its parameter? None: while it ran it did
        not, as another module is there since; 0: behind the one that made it.

        ``since``  how many modules had been taken in when the frame was seen running.
        """
        line = 0
        for part, following in itertools.pairwise(path.split(".")):
            link = self._links.get((id(module), part))
            if link is not None and link.number > since and following not in FORWARDING:
                if frame not in link.running:
                    return None
                line = max(line, link.running[frame])
            module = getattr(module, part, None)
        return line

    def filled(self, x: torch.Tensor) -> None:
        """``x`` is written into: a parameter, or a view of one, that nobody has used yet."""
        with no_torch_function():
            known = self._frames.get(id(x)) or self._frames.get(self._by_memory.get(x.data_ptr(), 0))
        if known is None:
            return
        self._keep_running(known[1], self._running())

    @staticmethod
    def _keep_running(frames: dict[FrameType, int], running: Mapping[FrameType, int]) -> None:
        """Leave of the functions that can name a parameter those that run as it is filled, with where they are."""
        for frame in list(frames):
            if frame in running:
                frames[frame] = max(frames[frame], running[frame])
            else:
                del frames[frame]

    def used(self, module: torch.nn.Module, parameters: Mapping[str, torch.Tensor]) -> None:
        """``module``, which has these parameters, by name, is called for the first time: all of them are made."""
        for inner in module.modules():
            for cls in type(inner).__mro__:
                code = getattr(vars(cls).get("__init__"), "__code__", None)
                if code is not None and self._is_own(code):
                    self.sites.made.setdefault(_place_of(code), set()).add(id(inner))
        mesh = current_entry()
        if mesh is not None and mesh is not self._given:
            own = {axis: name for name, axis in mesh.names.items()}
            self.sites.names = {name: own[axis] for name, axis in self._axes.items() if axis in own}
        for name, parameter in parameters.items():
            # What FSDP has made of a parameter is not what the module took in, and has its type from the wrapper.
            _, frames, since = self._frames.get(id(parameter), (None, {}, 0))
            frames = {} if is_flattened(parameter) else frames
            before, running = self._wrapped.pop(id(parameter), (None, {}))
            with no_torch_function():
                if before is not None and not torch.equal(before, parameter.detach()):
                    self._keep_running(frames, running)
            found: list[Reach] = []
            with no_torch_function():
                declared = self._declared(parameter)
                for frame, line in frames.items():
                    for bound, expression, unwrapped, path in expressions_for(frame, parameter):
                        place, groups = _place_of(frame.f_code), self._groups(frame)
                        value = frame.f_locals[bound]
                        behind = self._stands_since(value, path, frame, since) if path else 0
                        if behind is None:
                            continue
                        whole = 0
                        if isinstance(value, torch.nn.Module) and isinstance(parameter, torch.nn.Parameter):
                            whole = len(list(value.parameters()))
                        found.append(
                            Reach(
                                place,
                                expression,
                                bound,
                                max(line, behind),
                                None,
                                groups,
                                declared,
                                whole,
                                unwrapped,
                                path,
                                id(value) if path else 0,
                            )
                        )
            self.sites.parameters[name] = tuple(found)
            self._by_memory.pop(parameter.data_ptr(), None)

    def held(self, name: str, parameter: torch.Tensor, frame: FrameType) -> None:
        """A parameter that no module has, which backward is about to reach, is ``name`` in ``frame``."""
        if not self._is_own(frame.f_code):
            return
        bound = name.partition("[")[0].partition(".")[0]
        listed, innermost = frame.f_locals.get(bound), next(iter(self._running()), None)
        own = listed if isinstance(listed, (list, tuple)) else ()
        with no_torch_function():
            declared = self._declared(parameter)
        self.sites.parameters[name] = (
            Reach(
                _place_of(frame.f_code),
                name,
                bound,
                frame.f_lineno,
                groups=self._groups(frame),
                declared=declared,
                whole=len(own) if all(isinstance(one, torch.Tensor) for one in own) else 0,
                held=Held.USED_HERE if frame is innermost else Held.USED_WITHIN,
            ),
        )

    def called(self, name: str, x: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """``x``, known as ``name``, is given to a module or a loss; gives its companions, with what they are called.

        Companions are tensors of the same batch: other fields of the tuple or dict that ``x`` is in.
        """
        frame = next(iter(self._running()), None)
        if frame is None or name in self.sites.inputs:
            return
        line, end_line, column, end_column = positions_of(frame.f_code, frame.f_lasti)
        if line is None or end_line is None or column is None or end_column is None:
            return
        call = (line, column, end_line, end_column)
        place, groups = _place_of(frame.f_code), self._groups(frame)
        bound, expression, others = next(variables_holding(frame, x), ("", "", ()))
        self.sites.inputs[name] = Reach(place, expression, bound, line, call, groups)
        for other, tensor in others:
            if other not in self.sites.inputs and not tensor.requires_grad and is_untyped(tensor):
                self.sites.inputs[other] = Reach(place, other, bound, line, call, groups)
                yield other, tensor

    def _declared(self, parameter: torch.Tensor) -> tuple[str, ...]:
        known = type_of(parameter)
        return () if is_untyped(parameter) else tuple(name for name, axis in self._axes.items() if axis in known.local)

    def _running(self) -> dict[FrameType, int]:
        """The functions of the program that are running, innermost first, with their lines."""
        found: dict[FrameType, int] = {}
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and len(found) < DEEPEST:
            if self._is_own(frame.f_code):
                found[frame] = frame.f_lineno
            frame = frame.f_back
        return found

    def _is_own(self, code: CodeType) -> bool:
        if code not in self._own_files:
            path = Path(code.co_filename)
            own = path.is_absolute() and path.is_relative_to(self._project) and path.suffix == ".py"
            inner = path.relative_to(self._project).parts if own else ()
            self._own_files[code] = own and not set(FOREIGN) & set(inner) and not path.is_relative_to(_OWN)
        return self._own_files[code]

    def _groups(self, frame: FrameType) -> tuple[tuple[str, str], ...]:
        wanted = {axis: name for name, axis in self._axes.items() if axis.size() > 1}
        found: dict[str, str] = {}
        for expression, value in group_candidates(frame):
            name = wanted.get(MeshAxis.of(value)) if isinstance(value, dist.ProcessGroup) else None
            if name is not None:
                found.setdefault(name, expression)
        return tuple(found.items())


_OWN = Path(__file__).resolve().parents[2]


def is_untyped(x: torch.Tensor) -> bool:
    """Has nobody said what ``x`` is? What a constant is, follows from how it was made, and is nobody's word."""
    known = type_of(x)
    return not known.axes or known.ground is not Ground.ABSENT


def is_told_by_no_one(x: torch.Tensor) -> bool:
    """Has nobody said how the ranks' ``x`` lie? What is made with a rank's number varies, which is no word on it."""
    known = type_of(x)
    return says_no_layout(known) or known.ground is not Ground.ABSENT


def says_no_layout(type: TensorType) -> bool:
    """Does the type leave open how the ranks' tensors combine?"""
    return type.spec is None and all(place.is_varying or place is UNKNOWN for place in type.placements)


def _place_of(code: CodeType) -> Place:
    if code.co_name == "<module>":
        return Place(code.co_filename, "", 0)
    return Place(code.co_filename, code.co_name, code.co_firstlineno)
