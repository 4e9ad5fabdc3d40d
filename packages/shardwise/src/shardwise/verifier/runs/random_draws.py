"""Which random numbers does a run draw? Those that the run on one rank draws too, wherever its tensors lie.

A DTensor that is filled gets its pieces of what the whole tensor would be filled with, as torch promises on GPUs and
does not keep on the CPU. What an accelerator would draw is drawn on the CPU, whose generator every run has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar, cast

import torch
from torch.overrides import TorchFunctionMode

from shardwise.diagnostics.source import user_location
from shardwise.host.accelerators.redirected_calls import is_accelerator
from shardwise.interop.calls.op_names import op_name
from shardwise.interop.running.recording import Draw, Recorder, has_values
from shardwise.interop.tensors.bits import digest_of
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.local_form import local_tensor, own_piece
from shardwise.interop.torch_compat import no_torch_function, tree_map
from shardwise.op_rules.registry import lookup
from shardwise.op_rules.schema import Kind

from ..records.draws import KeptDraws, RankDraw
from .given_draws import GivenDraws

UNSEEDED = 67280421310721
"""The seed that torch gives a generator of which nobody has said anything."""
LIKE = {"rand_like", "randn_like", "randint_like"}
OF_VALUES = {"dropout_", "alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_", "rrelu_"}
"""In place, and of what the tensor held before."""

Called = Callable[..., object]
T = TypeVar("T")


class RandomDraws:
    """The random draws of one run, of which ``recorder`` is told.

    ``kept``   takes how each was drawn; None: that is not kept.
    ``given``  draws what others drew, on one rank.
    """

    def __init__(self, recorder: Recorder, kept: KeptDraws | None = None, given: GivenDraws | None = None) -> None:
        self._recorder, self._kept, self._given = recorder, kept, given
        self._on_cpu: dict[torch.Generator, torch.Generator] = {}
        """For each generator of an accelerator one that is seeded alike."""
        self._drawn: dict[object, Draw] = {}
        """What each call has drawn, by the state that it found."""

    def draw(
        self, func: Called, args: Sequence[object], kwargs: Mapping[str, object], *, again: bool = False
    ) -> object:
        """``func(*args, **kwargs)``, which may draw. ``again``: it repeats what forward has drawn, if that is known."""
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Generator)]
        asked = given[0] if given else torch.default_generator
        generator = self._of_the_cpu(asked)
        before, elsewhere = _state(generator), _state_elsewhere(asked)
        result = func(*args, **kwargs)
        if elsewhere is not None and not torch.equal(elsewhere, _elsewhere(asked)):
            result = self._as_on_the_cpu(func, args, kwargs, result)
        elif (_fills(func) or _name(func) in LIKE) and _is_cut(result) and not torch.equal(before, _state(generator)):
            with no_torch_function():
                generator.set_state(before)
            self._put(func, args, kwargs, result)
        if not torch.equal(before, _state(generator)):
            shaped = next((x for x in (result, *args) if isinstance(x, torch.Tensor)), None)
            shape = () if shaped is None else tuple(shaped.shape)
            state = digest_of(before)
            place = (op_name(func).shown, state, shape)
            if not again:
                seeded = generator.initial_seed() != UNSEEDED
                self._drawn[place] = self._recorder.drawn(user_location(), place[0], state, shape, seeded)
            draw = self._drawn.get(place)
            if draw is None:
                return result
            if self._kept is not None and not again:
                self._kept.keep(draw.key, RankDraw(before, shape))
            if self._given is not None and _name(func) not in OF_VALUES and not kwargs.get("inplace"):
                together = self._given.draw(draw, func, args, kwargs, result, generator, again=again)
                if together is not None:
                    if not again:
                        self._recorder.was_given(draw)
                    return together
        return result

    def _as_on_the_cpu(
        self, func: Called, args: Sequence[object], kwargs: Mapping[str, object], result: object
    ) -> object:
        """``result``, which an accelerator has drawn, with the numbers of the CPU."""
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
        if isinstance(result, torch.Tensor) and (not tensors or _fills(func) or _name(func) in LIKE):
            self._put(func, args, kwargs, result)
            return result
        if any(map(is_dtensor, tensors)) or _name(func) in OF_VALUES or kwargs.get("inplace"):
            return result  # what was there is overwritten
        came = func(*self._moved(list(args)), **self._moved(dict(kwargs)))
        device = next(x.device for x in tensors if is_accelerator(x.device))
        return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, came)

    def _put(self, func: Called, args: Sequence[object], kwargs: Mapping[str, object], result: torch.Tensor) -> None:
        """Draw once more, the whole on the CPU, and put what this rank has of it into ``result``."""
        if not has_values(local_tensor(result)):
            return
        with no_torch_function(), torch.no_grad():
            whole: Any = func(*self._moved(list(args)), **self._moved(dict(kwargs)))
            held = local_tensor(result)
            piece = own_piece(whole, result) if is_dtensor(result) else whole
            if isinstance(piece, torch.Tensor) and piece.shape == held.shape:
                held.copy_(piece)

    def _moved(self, given: T) -> T:
        moved: Any = tree_map(self._on_the_cpu, given)
        return cast("T", moved)

    def _on_the_cpu(self, value: object) -> object:
        if isinstance(value, torch.Generator):
            return self._of_the_cpu(value)
        if isinstance(value, torch.Tensor):
            if is_dtensor(value):  # it is filled, or the result is only shaped like it
                return torch.empty(value.shape, dtype=value.dtype, device="cpu")
            return value.cpu() if is_accelerator(value.device) else value
        return "cpu" if isinstance(value, str | torch.device) and is_accelerator(value) else value

    def _of_the_cpu(self, generator: torch.Generator) -> torch.Generator:
        if not is_accelerator(generator.device):
            return generator
        known = self._on_cpu.get(generator)
        if known is None or known.initial_seed() != generator.initial_seed():
            known = self._on_cpu[generator] = torch.Generator()
            known.manual_seed(generator.initial_seed())
        return known


class Redrawing(TorchFunctionMode):
    """On in backward, where activation checkpointing computes once more what ``draws`` has seen in forward."""

    def __init__(self, draws: RandomDraws) -> None:
        super().__init__()
        self._draws = draws

    def __torch_function__(
        self, func: Called, types: object, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        kwargs = kwargs or {}
        return self._draws.draw(func, args, kwargs, again=True) if is_random(func) else func(*args, **kwargs)


_random: dict[Any, bool] = {}


def is_random(func: object) -> bool:
    """True for a function of torch that may draw random numbers."""
    known = _random.get(func)
    if known is None:
        rule = op_name(func).find(lookup)
        known = _random[func] = rule is not None and rule.kind is Kind.RANDOM
    return known


def _name(func: object) -> str:
    return str(getattr(func, "__name__", ""))


def _fills(func: object) -> bool:
    """True for what overwrites its first argument: ``x.normal_()``, ``torch.nn.init.xavier_uniform_(x)``."""
    name = _name(func)
    return name.endswith("_") and not name.startswith("__") and name not in OF_VALUES


def _is_cut(x: object) -> TypeGuard[torch.Tensor]:
    """True for a DTensor of which this rank does not hold all."""
    return isinstance(x, torch.Tensor) and is_dtensor(x) and x.shape != local_tensor(x).shape


def _state(generator: torch.Generator) -> torch.Tensor:
    with no_torch_function():
        return generator.get_state()


def _state_elsewhere(asked: torch.Generator) -> torch.Tensor | None:
    """The state of what an accelerator draws from, if one may be used."""
    return _elsewhere(asked) if is_accelerator(asked.device) or torch.accelerator.is_available() else None


def _elsewhere(asked: torch.Generator) -> torch.Tensor:
    """The state of ``asked``, or of the accelerator's default one."""
    with no_torch_function():
        if is_accelerator(asked.device):
            return asked.get_state()
        module: Any = torch.get_device_module()
        return module.get_rng_state()  # type: ignore[no-any-return]
