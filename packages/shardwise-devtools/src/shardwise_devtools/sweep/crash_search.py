"""Does a call ever end in an error that is neither the program's nor a finding? Any operator, placement and argument.

Samples of PyTorch's op database, with types drawn by chance along two axes, and with one argument made hostile now and
then: a dim that is not there, a huge number, text, None, an empty or a 0-dim tensor. What the checker may do is let the
call run, fail as the call fails without it, or give a finding. Everything is drawn from a seed, so a crash that was
seen once is seen again.
"""

from __future__ import annotations

import itertools
import random
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

import shardwise as spmd
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.result import Collector
from shardwise.diagnostics.text import render_result
from shardwise.interop.running.session import Partials
from shardwise.interop.torch_compat import op_database, tree_leaves, tree_map
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh

from .preconditions import check_arguments
from .samples import LARGEST, full_name, seed_everything

AXES = {"dp": (2, 2), "tp": (2, 1)}
"""Size and stride of each axis."""
DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)
SAMPLES = 12
"""Samples of one operator and dtype that are looked at."""
HOSTILE_NUMBERS = (-1, 0, 1, 7, -7, 99, -99, 2**31, -(2**63), 2**63 - 1, 2**70, True, 0.5, float("nan"))
HOSTILE_OBJECTS: tuple[object, ...] = (None, "tp", "", [], [[0]], {}, object(), 1j, slice(None), ...)
TIMEOUT_S = 120
_HUGE_BYTES = 1 << 33


@dataclass(frozen=True, slots=True)
class Crash:
    """An error of the checker's own. ``place``: where it was raised; ``number``: of the try, to see it again."""

    op: str
    number: int
    call: str
    error: str
    place: str

    def __str__(self) -> str:
        return f"{self.op} #{self.number}: {self.error} ({self.place})\n    {self.call}"


@dataclass
class Search:
    """What came of the tries with one operator."""

    op: str
    tries: int = 0
    crashes: list[Crash] = field(default_factory=list)


def search(name: str, tries: int, seed: int = 0) -> Search:
    """Try the entry of the database called ``name`` so often, with types and arguments drawn from ``seed``."""
    op = next(op for op in op_database() if full_name(op) == name)
    found = Search(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = _samples(op, seed)
        if not samples:
            return found
        for number in range(tries):
            rng = random.Random(f"{seed} {name} {number}")
            found.tries += 1
            found.crashes += _try(op, rng.choice(samples), rng, number)
    return found


def _samples(op: Any, seed: int) -> list[Any]:
    found: list[Any] = []
    for dtype in DTYPES:
        if not op.supports_dtype(dtype, "cpu"):
            continue
        seed_everything(f"{full_name(op)} {dtype} {seed}")
        drawn = itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False, set_seed=False), SAMPLES)
        found += [sample for sample in drawn if _is_small(sample)]
    return found


def _is_small(sample: Any) -> bool:
    tensors = [leaf for leaf in tree_leaves((sample.input, sample.args, sample.kwargs)) if torch.is_tensor(leaf)]
    return all(tensor.layout is torch.strided and tensor.numel() <= LARGEST for tensor in tensors)


def _try(op: Any, sample: Any, rng: random.Random, number: int) -> Iterator[Crash]:
    function, spelling = _spelling(op, rng)
    structure = (sample.input, list(sample.args), dict(sample.kwargs))
    if rng.random() < 0.4:
        structure = _hostile(structure, rng)
    backward, seed = rng.random() < 0.3, rng.randrange(2**31)
    drawn = _Types(rng)

    def run(fresh: Callable[[Any], Any]) -> None:
        torch.manual_seed(seed)
        input, args, kwargs = tree_map(fresh, structure)
        check_arguments(op.name, (input, *args))
        _backward(function(input, *args, **kwargs)) if backward else function(input, *args, **kwargs)

    plain = _error_of(lambda: run(_fresh(backward)))
    checked = _error_of(lambda: _checked(drawn, lambda: run(_typed(drawn, backward))))
    if checked is None or isinstance(checked, SpmdTypeError) or _is_same(checked, plain):
        return
    shown = f"{spelling}({_text(structure)}) with {drawn}" + (", backward" if backward else "")
    last = traceback.extract_tb(checked.__traceback__)[-1]
    place = f"{'/'.join(last.filename.split('/')[-2:])}:{last.lineno}"
    yield Crash(full_name(op), number, shown, f"{type(checked).__name__}: {checked}".splitlines()[0], place)


def _spelling(op: Any, rng: random.Random) -> tuple[Callable[..., Any], str]:
    """The function, or another spelling of it: a method, in place."""
    spellings = [(op.op, op.name), (op.op, op.name)]
    spellings += [(op.get_method(), f"Tensor.{op.name}")] if op.get_method() is not None else []
    spellings += [(op.get_inplace(), f"{op.name}_")] if op.get_inplace() is not None else []
    return rng.choice(spellings)


class _Types:
    """Types drawn by chance for the tensors of one call, and how it is checked."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = random.Random(rng.random())
        self.local = rng.random() < 0.4
        self.strict = rng.random() < 0.5
        self.collects = rng.random() < 0.5
        self.explicit = rng.random() < 0.2
        self.given: list[str] = []

    def annotate(self, tensor: torch.Tensor) -> None:
        places = {axis: place for axis in AXES if (place := self._place(tensor)) is not None}
        if self.rng.random() < 0.15 or not places:
            self.given.append("untyped")
            return
        try:
            spmd.assert_type(tensor, places)
            self.given.append(str(places))
        except SpmdTypeError as error:
            self.given.append(f"untyped ({error.code})")

    def _place(self, tensor: torch.Tensor) -> Any:
        shards = [spmd.S(dim) for dim in range(tensor.ndim)]
        kinds = [spmd.R, spmd.R, spmd.I, spmd.V, spmd.P, spmd.P("max"), spmd.P("avg"), None, *shards, *shards]
        return self.rng.choice(kinds)

    def __str__(self) -> str:
        options = ["local" if self.local else "global", "strict" if self.strict else "permissive"]
        options += [*(["explicit"] if self.explicit else []), *(["collecting"] if self.collects else [])]
        return f"{'; '.join(self.given) or 'no tensor'} ({', '.join(options)})"


def _checked(types: _Types, call: Callable[[], None]) -> None:
    """The call as a program makes it, and its report as a person reads it."""
    mesh = {name: MeshAxis.of(size, stride) for name, (size, stride) in AXES.items()}
    collector = Collector(mesh="dp=2, tp=2", script="call.py") if types.collects else None
    partials: Partials = "explicit" if types.explicit else "infer"
    with (
        set_current_mesh(mesh),
        checking(
            strict=types.strict, local=types.local, partials=partials, collect=collector, observe=not types.strict
        ),
    ):
        call()
    if collector is not None:
        render_result(collector.result())


def _fresh(grad: bool) -> Callable[[Any], Any]:
    def fresh(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        own = leaf.detach().clone()
        return own.requires_grad_() if grad and (own.is_floating_point() or own.is_complex()) else own

    return fresh


def _typed(types: _Types, grad: bool) -> Callable[[Any], Any]:
    copied = _fresh(grad)

    def typed(leaf: Any) -> Any:
        own = copied(leaf)
        if isinstance(own, torch.Tensor):
            types.annotate(own)
        return own

    return typed


def _backward(result: Any) -> None:
    for leaf in tree_leaves(result):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            (leaf.abs() if leaf.is_complex() else leaf).sum().backward()  # type: ignore[no-untyped-call]
            return


def _hostile(structure: Any, rng: random.Random) -> Any:
    """The arguments with one of them made strange, the first tensor left alone half of the time."""
    leaves = tree_leaves(structure)
    if not leaves:
        return structure
    at, counter = rng.randrange(len(leaves)), itertools.count()
    return tree_map(lambda leaf: _strange(leaf, rng) if next(counter) == at else leaf, structure)


def _strange(leaf: Any, rng: random.Random) -> Any:
    if isinstance(leaf, torch.Tensor):
        kind = rng.choice(["empty", "0-dim", "expanded", "double", "text", "number", "numpy", "list"])
        others: dict[str, Callable[[], Any]] = {
            "empty": lambda: leaf.reshape(-1)[:0].reshape([0] * max(leaf.ndim, 1)),
            "0-dim": lambda: leaf.reshape(-1)[:1].sum(),
            "expanded": lambda: leaf[None],
            "double": lambda: leaf.double() if leaf.is_floating_point() else leaf.float(),
            "text": lambda: rng.choice(HOSTILE_OBJECTS),
            "number": lambda: rng.choice(HOSTILE_NUMBERS),
            "numpy": lambda: numpy.float32(2.0),
            "list": lambda: [leaf, [leaf]],
        }
        return others[kind]()
    if rng.random() < 0.5:
        return rng.choice([*HOSTILE_NUMBERS, numpy.int64(1), torch.tensor(1)])
    return rng.choice(HOSTILE_OBJECTS)


def _error_of(call: Callable[[], None]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def _is_same(error: Exception, plain: Exception | None) -> bool:
    """Does the call fail in this way without the checker too? Kernels may word one mistake in two ways."""
    if plain is None:
        return False
    if type(error) is type(plain) and str(error) == str(plain):
        return True
    return _raised_by_torch(error) and type(error) in (type(plain), RuntimeError, TypeError, ValueError, IndexError)


def _raised_by_torch(error: Exception) -> bool:
    """Not in a function of ours, unless that only calls torch."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    own = f"{'/shardwise/'}" in last.filename
    return not own or "func(" in (last.line or "")


def _text(structure: Any) -> str:
    input, args, kwargs = tree_map(
        lambda leaf: f"{leaf.dtype}{list(leaf.shape)}" if isinstance(leaf, torch.Tensor) else leaf, structure
    )
    return ", ".join([repr(input), *map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])


def limit_memory() -> None:
    """In a process of its own: a huge number in place of a size is refused and takes nobody's memory."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (_HUGE_BYTES, _HUGE_BYTES))


def names_of(pattern: Callable[[str], bool] = lambda name: True) -> Sequence[str]:
    """The full names of the database's entries that fit."""
    return [name for op in op_database() if pattern(name := full_name(op))]
