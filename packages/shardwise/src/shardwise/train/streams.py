"""How do ranks get random numbers that are equal where they must be and different where they should be? By streams.

Dropout on a replicate activation needs the same mask on every rank along the axis, dropout on shards a mask of their
own on each. ``rng`` says which, seeds accordingly, and the checker reads what it said.

The seed of a stream is mixed from the user's seed and this rank's coordinates along the distinct axes, and from nothing
else: ranks that differ only along synchronised axes draw the same numbers, whatever the sizes of these axes.
The mixing is SplitMix64's finaliser, once per number. Source: Steele, Lea, Flood: Fast splittable pseudorandom number
generators, OOPSLA 2014.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import ParamSpec, TypeVar

import torch

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, SpmdValueError, shown
from shardwise.interop.calls.boundary import boundary
from shardwise.interop.communication.process_groups import communicator
from shardwise.interop.tensors.generators import Agreement, default_promise, promise
from shardwise.interop.torch_compat import simulated_ranks
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import CurrentMesh, current_entry
from shardwise.mesh.normalize import format_axis, normalize_axis
from shardwise.types.aliases import DeviceMeshAxes

Params = ParamSpec("Params")
Result = TypeVar("Result")
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_GENERATORS = "generators"


@boundary
def rng(
    seed: int, *, synchronised: DeviceMeshAxes | None = None, distinct: DeviceMeshAxes | None = None
) -> RandomStream:
    """A stream of random numbers, equal on all ranks along some axes of the current mesh and different along others.

    ``seed``          an integer of 64 bits, signed or not; the same on every rank.
    ``synchronised``  an axis, or several in a tuple: along these every rank draws the same numbers.
    ``distinct``      along these every rank draws its own.
    One of the two may be left out and is then all other axes of the current mesh; both left out, all are synchronised.

    Errors: SW904 without a current mesh; SW902 for an unknown axis; SW905 for an axis that both name or neither, and
    for a seed that is no integer.

    Example:
        >>> with rng(0, synchronised=("dp", "tp")):
        ...     print(typeof(torch.randn(4)))
        f32[4] {dp: R, tp: R}
    """
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise SpmdArgumentError(f"the seed of rng is an integer, got {shown(seed)}", code="SW905")
    if not -(1 << 63) <= seed <= _MASK:
        raise SpmdValueError(f"the seed of rng has 64 bits, got {seed}", code="SW905")
    mesh = current_entry()
    if mesh is None:
        raise SpmdTypeError(
            "rng needs a current mesh: its axes say which ranks draw alike",
            code="SW904",
            help=("with set_current_mesh(mesh):",),
        )
    equal, different = _split(mesh, _axes(synchronised), _axes(distinct))
    if different and simulated_ranks() is not None:
        raise SpmdTypeError(
            "rng has one generator in a process, and LocalTensorMode simulates several ranks in this one",
            code="SW904",
            help=("rng(seed, synchronised=...) of all axes", "or a process per rank, or shardwise's in-process world"),
        )
    coordinates = [communicator(axis).rank for axis in mesh.ordered_axes if axis in different]
    return RandomStream(mixed(seed, *coordinates), Agreement(equal, different))


def _axes(given: DeviceMeshAxes | None) -> frozenset[MeshAxis] | None:
    if given is None:
        return None
    listed = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    return frozenset(axis for axis in map(normalize_axis, listed) if axis.size() > 1)


def _split(
    mesh: CurrentMesh, synchronised: frozenset[MeshAxis] | None, distinct: frozenset[MeshAxis] | None
) -> tuple[frozenset[MeshAxis], frozenset[MeshAxis]]:
    """The axes of both kinds, the kind that was left out made of the rest."""
    if synchronised is None:
        synchronised = mesh.axes - (distinct or frozenset())
    if distinct is None:
        distinct = mesh.axes - synchronised
    for axis in synchronised & distinct:
        raise SpmdValueError(f"rng is told that {format_axis(axis)} is both synchronised and distinct", code="SW905")
    for axis in mesh.axes - synchronised - distinct:
        name = format_axis(axis)
        raise SpmdValueError(
            f"rng is not told whether ranks along {name} draw the same numbers",
            code="SW905",
            help=(f'synchronised="{name}"', f'distinct="{name}"', "leave one of the two out: it is then all the rest"),
        )
    for axis in (synchronised | distinct) - mesh.axes:
        raise SpmdValueError(f"{format_axis(axis)} is no axis of the current mesh", code="SW902")
    return synchronised, distinct


def mixed(seed: int, *numbers: int) -> int:
    """A seed of 63 bits made of ``seed`` and ``numbers``, in this order; all of them matter."""
    state = _finalised(seed & _MASK)
    for number in numbers:
        state = _finalised((state + _GOLDEN * (number + 1)) & _MASK)
    return state >> 1


def _finalised(state: int) -> int:
    state = (state + _GOLDEN) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


class _Holder:
    """Where the default generators of each device are while they belong to somebody else."""

    def __init__(self) -> None:
        self.states: dict[str, torch.Tensor] = {}

    def give_up(self, devices: Iterable[_Device]) -> None:
        """Remember where the generators are."""
        self.states |= {device.name: device.state() for device in devices}

    def take_over(self, devices: Iterable[_Device]) -> None:
        """Put the generators where they were."""
        for device in devices:
            if device.name in self.states:
                device.restore(self.states[device.name])
            else:
                self.begin(device)

    def begin(self, device: _Device) -> None:
        """The generator of ``device`` has not been held yet."""


class _Stack(threading.local):
    """Who draws from the default generators, innermost last; the first is the program outside of all streams."""

    def __init__(self) -> None:
        self.holders: list[_Holder] = [_Holder()]


_stack = _Stack()


class RandomStream(_Holder):
    """Random numbers of its own, drawn inside ``with stream:`` or by the generators that it makes.

    Inside the block the default generators, of the CPU and of an accelerator that is in use, draw from the stream; at
    its end they are what they were, and the next block, nested or later, goes on where this one stopped. Also a
    decorator.

    Example:
        >>> stream = rng(0, synchronised=("dp", "tp"))
        >>> with stream:
        ...     print(typeof(torch.randn(4)))
        f32[4] {dp: R, tp: R}
    """

    def __init__(self, seed: int, agreement: Agreement) -> None:
        super().__init__()
        self.seed = seed
        """What this rank's generators are seeded with."""
        self.agreement = agreement
        self._made = 0
        """How many generators there are."""
        self._promises: list[contextlib.AbstractContextManager[None]] = []

    def __repr__(self) -> str:
        equal, different = (
            ", ".join(sorted(map(format_axis, axes))) or "none"
            for axes in (self.agreement.synchronised, self.agreement.distinct)
        )
        return f"RandomStream(synchronised: {equal}; distinct: {different})"

    def __enter__(self) -> RandomStream:
        devices = _devices()
        _stack.holders[-1].give_up(devices)
        self.take_over(devices)
        _stack.holders.append(self)
        self._promises.append(default_promise(self.agreement))
        self._promises[-1].__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._promises.pop().__exit__(None, None, None)
        devices = _devices()
        _stack.holders.pop().give_up(devices)
        _stack.holders[-1].take_over(devices)

    def begin(self, device: _Device) -> None:
        device.seed(self.seed)

    def __call__(self, function: Callable[Params, Result]) -> Callable[Params, Result]:
        @functools.wraps(function)
        def with_stream(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            with self:
                return function(*args, **kwargs)

        return with_stream

    def generator(self, device: torch.device | str | int = "cpu") -> torch.Generator:
        """A new generator for ``generator=`` arguments, with numbers of its own: no other of this stream draws them."""
        self._made += 1
        made = torch.Generator(device)
        made.manual_seed(mixed(self.seed, self._made))
        promise(made, self.agreement)
        return made

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Where the stream is, by device, for a checkpoint. Take it outside of the block."""
        return {**self.states, _GENERATORS: torch.tensor(self._made)}

    def load_state_dict(self, states: Mapping[str, torch.Tensor]) -> None:
        """Go on from ``states``, which ``state_dict`` of this rank gave."""
        self.states = {name: state for name, state in states.items() if name != _GENERATORS}
        self._made = int(states.get(_GENERATORS, torch.tensor(0)))


class _Device:
    """The default generator of a kind of device."""

    def __init__(
        self,
        name: str,
        state: Callable[[], torch.Tensor],
        restore: Callable[[torch.Tensor], object],
        seed: Callable[[int], object],
    ) -> None:
        self.name, self.state, self.restore, self.seed = name, state, restore, seed


def _devices() -> list[_Device]:
    """The CPU, and the accelerator of this process once it has been used."""
    cpu = torch.default_generator
    devices = [_Device("cpu", cpu.get_state, cpu.set_state, cpu.manual_seed)]
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is not None:
        module = torch.get_device_module(accelerator)
        if getattr(module, "is_initialized", lambda: True)():
            devices.append(_Device(accelerator.type, module.get_rng_state, module.set_rng_state, module.manual_seed))
    return devices
