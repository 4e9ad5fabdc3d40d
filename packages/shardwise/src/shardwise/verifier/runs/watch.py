"""Where does a run show what it computes? At its losses, its optimizer's steps and its random draws.

A function mode above the checker's sees where backward starts and what draws random numbers; PyTorch's hooks tell of
optimizer steps. What the program declares comes by ``interop.recording``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from shardwise.checker.gradients.autograd_graph import leaves_of
from shardwise.diagnostics.source import user_location
from shardwise.host.backward_modes import on_in_backward
from shardwise.host.module_calls import telling_calls
from shardwise.interop.autograd.loss_divisor import divisor_of
from shardwise.interop.calls.op_names import op_name
from shardwise.interop.running.last_references import outliving_collectives
from shardwise.interop.running.precision import CONVOLUTIONS
from shardwise.interop.running.recording import IN_EVALUATION, Recorder, Use, has_values, heard_by, is_heard
from shardwise.interop.running.wrappers import plain_class
from shardwise.interop.tensors.dtensors import is_dtensor, is_pending
from shardwise.interop.tensors.local_form import local_form, local_tensor
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import no_torch_function, tree_leaves
from shardwise.oracle.simulated_ranks.replay import collective_named
from shardwise.types.tensor_type import UNTYPED, Ground

from ..distance.difference import scale_of
from ..records.annotation_sites import SiteRecorder, is_told_by_no_one
from ..records.intervention import Intervention
from ..records.naming import Names
from .clip_factors import ClipFactors
from .feeding import Feeding
from .kept_buffers import KeptBuffers
from .made_tensors import is_made, note_made
from .perturbation import Perturbation
from .random_draws import RandomDraws, Redrawing, is_random
from .read_sums import ReadSums
from .steps import OptimizerSteps
from .summed_losses import SummedLosses
from .used_data import UsedData

PENDING = "_c10d_functional."
"""Collectives whose results are not there before ``wait_tensor``."""
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
"""What products are computed with that have a gradient, though these have none: they are cast inside of functions."""


@contextlib.contextmanager
def watching(
    recorder: Recorder,
    *,
    every: bool = False,
    alone: bool = False,
    modules: bool = False,
    layouts: bool = False,
    sites: SiteRecorder | None = None,
    changed: Intervention | None = None,
    used: UsedData | None = None,
    draws: RandomDraws | None = None,
    buffers: KeptBuffers | None = None,
) -> Iterator[None]:
    """Everything worth comparing that happens inside the ``with`` block goes to ``recorder``; for inside a check.

    ``every``  the result of every operation that the checker gives a type is worth it.
    ``modules``  so is what every module gives.
    ``alone``  this is the run on one rank, where there are no types to be had.
    ``layouts``  so are buffers, targets of losses, and gradients as backward computes them, before they are summed.
    ``sites``    is told from where the source reaches parameters and inputs.
    ``changed``  what is done to the run.
    ``used``     is told what operations are given.
    ``draws``    is told what may draw random numbers.
    ``buffers``  is told of outermost modules that train.
    """
    names = Names()
    perturbation = Perturbation.of(changed)
    feeding = Feeding(changed) if changed is not None and changed.fed else None
    weights = changed.weights if alone and changed is not None else {}
    steps = OptimizerSteps(recorder, names, layouts, sites, perturbation, weights)
    with names.watching(), heard_by(recorder), telling_calls(functools.partial(_inputs, names, steps, buffers)):
        handles: tuple[RemovableHandle, ...] = (
            register_optimizer_step_pre_hook(steps.before),
            register_optimizer_step_post_hook(steps.after),
            register_module_forward_hook(functools.partial(_evaluation, recorder, names)),
            register_module_forward_hook(functools.partial(_note_made, names)),
        )
        try:
            if every or modules or layouts:
                told: set[str] | None = None if every or modules else set()
                handles += (register_module_forward_hook(functools.partial(_outputs, recorder, names, told, feeding)),)
            if sites is not None:
                handles += sites.watch()
            draws = draws or RandomDraws(recorder)
            watch = _Watch(recorder, every, alone, steps, perturbation, used, draws)
            with on_in_backward(Redrawing(draws)), outliving_collectives(watch):
                yield
        finally:
            for handle in handles:
                handle.remove()
            steps.at_the_end()


def _inputs(
    names: Names,
    steps: OptimizerSteps,
    buffers: KeptBuffers | None,
    module: torch.nn.Module,
    args: Mapping[str, object],
) -> None:
    """What an outermost module is called with, where nobody has typed it: do both runs see the same data?"""
    if not names.is_outermost(module):
        return
    names.meet(module)
    if torch.is_grad_enabled() or not any(parameter.requires_grad for parameter in module.parameters()):
        steps.remember(module)
        if buffers is not None:
            buffers.keep(module)
    if steps.sites is not None:
        absent = (at for at, given in args.items() if not isinstance(given, (torch.Tensor, Mapping, list, tuple)))
        steps.sites.sites.absent.update(f"{at} of {_called(module)}" for at in absent)
    for at, given in _leaves(args):
        if is_dtensor(given) or given.requires_grad or (is_made(given) and not steps.layouts):
            continue  # what has a gradient, or a module has made, is no data
        if is_told_by_no_one(given):
            steps.given(f"{at} of {_called(module)}", given)


def _note_made(names: Names, module: torch.nn.Module, args: tuple[object, ...], output: object) -> None:
    """A module with parameters has made ``output``: it is no data where a loss or another module is given it."""
    if names.is_outermost(module) and next(module.parameters(), None) is not None:
        given = {id(leaf) for leaf in tree_leaves(args)}
        note_made(x for x in tree_leaves(output) if id(x) not in given)


def _leaves(args: Mapping[Any, object], path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors among arguments and in their lists and dicts, by path: ``0``, ``mask``, ``batch.ids``, ``0.1``."""
    for key, value in args.items():
        if isinstance(value, torch.Tensor):
            yield f"{path}{key}", value
        elif isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key}.")
        elif isinstance(value, (list, tuple)):
            yield from _leaves(dict(enumerate(value)), f"{path}{key}.")


def _evaluation(
    recorder: Recorder, names: Names, module: torch.nn.Module, args: tuple[object, ...], output: object
) -> None:
    """What an outermost module gives where no gradients are wanted, so that no loss tells of it."""
    if torch.is_grad_enabled() or not names.is_outermost(module):
        return
    with no_torch_function():
        if torch.is_autocast_enabled("cpu"):
            recorder.dtypes.add(torch.get_autocast_dtype("cpu"))
        for leaf in tree_leaves(output):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and not is_pending(leaf):
                local, type = local_form(leaf)
                if has_values(local):
                    recorder.add("evaluation", _called(module), local, type if is_dtensor(leaf) else UNTYPED, None)


def _called(module: torch.nn.Module) -> str:
    """The class of a module, and whether it is called in evaluation."""
    return plain_class(module) + ("" if torch.is_grad_enabled() else IN_EVALUATION)


def _outputs(
    recorder: Recorder,
    names: Names,
    told: set[str] | None,
    feeding: Feeding | None,
    module: torch.nn.Module,
    args: tuple[object, ...],
    output: object,
) -> None:
    """What a module gives, to find the first that is not what it is on one rank; with ``told`` only the first time."""
    name = names.of_module(module)
    if not name or (told is not None and name in told):
        return
    if told is not None:
        told.add(name)
    with no_torch_function():
        for leaf in tree_leaves(output):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and not is_pending(leaf):
                local = local_tensor(leaf)
                if has_values(local):
                    record = recorder.add("module", name, local, UNTYPED, None)
                    record.use = Use(0, user_location())
                    if feeding is not None:
                        feeding.correct(record.key, local)


class _Watch(TorchFunctionMode):
    """Records roots of backward, random draws, and which dtypes have gradients."""

    def __init__(
        self,
        recorder: Recorder,
        every: bool,
        alone: bool,
        steps: OptimizerSteps,
        perturbation: Perturbation | None,
        used: UsedData | None,
        draws: RandomDraws,
    ) -> None:
        super().__init__()
        self.used = used
        self.perturbation = perturbation
        self.steps = steps
        self.recorder = recorder
        self.every = every
        self.alone = alone
        self.draws = draws
        self.sums = ReadSums(lambda x, sums: recorder.add("read", "", x, UNTYPED, user_location(), keep=sums))
        self.clips = ClipFactors(
            lambda: (start.tensor for start in steps.starts),
            lambda name, factor, at: recorder.add("clip", name, factor, UNTYPED, at),
        )
        self.summed = SummedLosses()
        self.twice = False
        """Gradients have been computed of which there will be gradients."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if not is_heard():
            return func(*args, **kwargs)
        if func is torch.Tensor.backward or func is torch.autograd.backward or func is torch.autograd.grad:
            self._backward(args, kwargs, accumulating=func is not torch.autograd.grad)
        if self.steps.layouts:
            self.steps.before_call(func, args)
        if self.steps.starts.awaited:
            self.steps.starts.used((*args, *kwargs.values()))
        collective = collective_named(func)
        if self.steps.inside and collective is not None:
            self.recorder.talking_steps = True
        if self.used is not None:
            args = self.used.operands(func, args)
        self.sums.before(func, args)
        if collective is not None:
            self.summed.before_collective(args, kwargs)
        self.clips.before(func, args, self.steps.counts.total() + 1)
        result = self.draws.draw(func, args, kwargs) if is_random(func) else func(*args, **kwargs)
        self._note_computed((*args, *kwargs.values()), result)
        if self.used is not None:
            result = self.used.result(func, result)
        self.sums.after(func, collective, args, kwargs, result)
        self.clips.after(func, args, kwargs, result)
        if isinstance(result, torch.Tensor):
            with no_torch_function():
                if result.requires_grad or result.dtype in FLOAT8:
                    self.recorder.dtypes.add(result.dtype)
                if func in CONVOLUTIONS:
                    self.recorder.convolves = True
        if self.perturbation is not None and not torch.compiler.is_compiling() and not _is_attribute(func):
            with no_torch_function():
                self.perturbation.result((*args, *kwargs.values()), result)
        if self.every:
            with no_torch_function():
                self.steps.use((*args, *kwargs.values()), result)
            self._result(func, args, result)
        return result

    def _note_computed(self, args: Sequence[object], result: object) -> None:
        """What is computed of what a module has made, or of a leaf, is no data either: ``fake.detach()``, a sample."""
        results = result if isinstance(result, (list, tuple)) else (result,)
        with no_torch_function():
            new = [x for x in results if isinstance(x, torch.Tensor) and not x.requires_grad]
            if new and any(_is_of_the_program(x) for arg in args for x in _listed(arg)):
                note_made(new)

    def _result(self, func: object, args: Sequence[Any], result: object) -> None:
        """What an operation has made, if its type says anything; integers may tip over with the last bit of a float."""
        made = result if isinstance(result, (list, tuple)) else (result,)
        with no_torch_function():
            floats = [x for x in made if _is_plain(x)]
            if not floats or _is_attribute(func):
                return
            name = getattr(func, "__shardwise_op__", None) or op_name(func).shown
            if name.startswith(PENDING) and not name.endswith("wait_tensor"):
                return
            location = user_location()
            size = scale_of(*(x for x in args if _is_plain(x)))
            for x in floats:
                type = type_of(x)
                # A constant's type is nobody's word: which part of it a rank takes may follow from the rank's number.
                claimed = bool(type.axes) and type.ground is Ground.ABSENT
                self.recorder.add("result", name, x, type, location, size=size, keep=self.alone or claimed)

    def _backward(self, args: Sequence[object], kwargs: Mapping[str, object], *, accumulating: bool) -> None:
        """Backward is about to start: from which losses, and to which parameters?"""
        named = [kwargs[name] for name in ("tensors", "outputs", "self") if name in kwargs]
        roots = _listed(args[0] if args else named[0] if named else ())
        inputs = () if accumulating else _listed(args[1] if len(args) > 1 else kwargs.get("inputs", ()))
        leaves = [leaf for leaf in leaves_of(roots, inputs) if leaf.is_leaf]
        self.steps.reach(leaves)
        # A gradient of a gradient, as of a penalty, is linear in no batch: nothing says how ranks' terms combine.
        self.twice |= bool(kwargs.get("create_graph"))
        training = accumulating or (not self.twice and any(leaf in self.steps.starts for leaf in leaves))
        for root in roots:
            if isinstance(root, torch.Tensor):
                with no_torch_function():
                    of_its_own = root.numel() == 1 and training
                    typed = bool(local_form(root)[1].axes)
                if of_its_own or typed:  # what is passed back with a gradient of another stage is no loss
                    self.recorder.hear("loss", "", self.summed.as_derived(root))
                    with no_torch_function():
                        divisor = divisor_of(root) if of_its_own else None
                    if divisor is not None:
                        self.recorder.divisors[self.recorder.entries[-1].key] = divisor


def _is_of_the_program(x: object) -> bool:
    return isinstance(x, torch.Tensor) and (x.requires_grad or is_made(x))


def _listed(given: object) -> Sequence[object]:
    """A tensor, or several, as several."""
    return given if isinstance(given, (list, tuple)) else (given,)


def _is_plain(x: object) -> bool:
    """True for a tensor of floating-point values that can be looked at without any rank but this one."""
    return isinstance(x, torch.Tensor) and not is_dtensor(x) and x.is_floating_point() and has_values(x)


def _is_attribute(func: object) -> bool:
    return op_name(func).prop is not None
