"""Does any public function answer a strange argument with an error of its insides? A clear error of ours or torch's."""

from __future__ import annotations

import contextlib
import inspect
import random
import re
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import shardwise as spmd
from shardwise import rules, train, types
from shardwise.checker.scopes.activation import typecheck
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.communication import backend
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.types.placement import P, R, S, V

NO_TEXT = "no text for this"


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError(NO_TEXT)


STRANGE: tuple[Any, ...] = (
    *(None, "tp", "nope", "", 0, -1, 99, 2**70, -(2**63), 1.5, float("nan"), True, b"tp", 1j, ..., slice(None)),
    *([], [[["tp"]]], {}, {"tp": R}, {"tp": "R"}, {1: R}, {"tp": None}, {"dp": S(9)}, ("tp",), ("tp", None), set()),
    *(R, P, V, S(0), S(-7), P("max"), frozenset({"tp"}), range(3), int, torch.float32, lambda x: x, object()),
    *(torch.ones(()), torch.ones(0), torch.ones(4), [torch.ones(4)], numpy.float32(2), numpy.int64(1), numpy.ones(3)),
    *(spmd.PartitionSpec("tp"), MeshAxis.of(2, 7), Unprintable()),
)
X, M = torch.ones(4), torch.ones(2, 2)
RIGHT: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "all_reduce": ((X, "tp"), {"src": P, "dst": R}),
    "all_gather": ((X, "tp"), {"src": S(0), "dst": R}),
    "reduce_scatter": ((X, "tp"), {"src": P, "dst": S(0)}),
    "all_to_all": ((X, "tp"), {"src": S(0), "dst": S(0)}),
    "redistribute": ((X, "tp"), {"src": P, "dst": R}),
    "convert": ((X, "tp"), {"src": R, "dst": P}),
    "reinterpret": ((X, "tp"), {"src": R, "dst": V}),
    "shard": ((X, "tp"), {"src": R, "dst": S(0)}),
    "unshard": ((X, "tp"), {"src": S(0), "dst": R}),
    "invariant_to_replicate": ((X, "tp"), {}),
    "assert_type": ((X, {"tp": R}), {}),
    "assert_type_like": ((X, torch.ones(4)), {}),
    "assert_local_type": ((X, {"tp": R}), {}),
    "mutate_type": ((X, "tp"), {"src": R, "dst": V}),
    "einsum": (("ij,jk->ik", M, M), {"out_partial_axes": "tp"}),
    "linear": ((M, M), {"axis": "tp", "dst": P}),
    "matmul": ((M, M), {"axis": "tp", "src": S(1), "dst": P}),
    "sum": ((M,), {"axis": "tp", "dim": 0}),
    "mean": ((M,), {"axis": "tp", "dim": 0, "count": 4}),
}
"""Calls that are right but for one argument, which is put in the place of each."""
APART = {"verify", "trace", "set_dist", "reveal_type", "TYPE_CHECKING", "public_names"}
"""What starts processes, writes to the terminal, or changes the process for everybody after it."""
INSIDE = re.compile(
    r"has no attribute|is not iterable|not subscriptable|unsupported operand|index out of range|unhashable|"
    r"must be a mapping|cannot unpack|not enough values|not callable|object cannot be interpreted"
)
"""How Python complains about code that took its arguments for something else."""


def _functions() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for module in (spmd, rules, train, types):
        for name in dir(module):
            function = getattr(module, name)
            if name.startswith("_") or name in APART or not inspect.isfunction(function):
                continue
            found.setdefault(name if module is spmd else f"{module.__name__}.{name}", function)
    return found


FUNCTIONS = _functions()


def _calls(name: str, function: Callable[..., Any]) -> list[tuple[list[Any], dict[str, Any]]]:
    """With one argument strange, and with all of them drawn by chance."""
    parameters = list(inspect.signature(function).parameters.values())
    made: list[tuple[list[Any], dict[str, Any]]] = [([], {})]
    if name in RIGHT:
        args, named = RIGHT[name]
        keys = [
            one.name for one in parameters[len(args) :] if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
        for strange in STRANGE:
            made += [([*args[:at], strange, *args[at + 1 :]], dict(named)) for at in range(len(args))]
            made += [(list(args), {**named, key: strange}) for key in {**named, **dict.fromkeys(keys)}]
    rng = random.Random(name)
    needed = [one for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    keys = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    made += [([strange], {}) for strange in STRANGE]
    for _ in range(60):
        args = tuple(rng.choice(STRANGE) for _ in range(len(needed) or 1))
        made.append((list(args), {key: rng.choice(STRANGE) for key in keys if rng.random() < 0.5}))
    return made


def _complaint(function: Callable[..., Any], args: list[Any], named: dict[str, Any]) -> str | None:
    """What the call says that no user should have to read; None if it runs, or is refused in words."""
    try:
        with warnings.catch_warnings(), contextlib.ExitStack() as stack:
            warnings.simplefilter("ignore")
            result = function(*args, **named)
            if hasattr(result, "__enter__") and not isinstance(result, torch.Tensor):
                stack.enter_context(result)
    except SpmdTypeError as error:
        str(error)
        return None
    except (KeyError, AttributeError, AssertionError, UnboundLocalError, MemoryError, OverflowError) as error:
        return f"{type(error).__name__}: {error} at {traceback.extract_tb(error.__traceback__)[-1]}"
    except Exception as error:
        passed = traceback.extract_tb(error.__traceback__)
        last = next((frame for frame in reversed(passed) if "/src/shardwise/" in frame.filename), passed[-1])
        inside = ("/shardwise/" in passed[-1].filename and INSIDE.search(str(error))) or NO_TEXT in str(error)
        return f"{type(error).__name__}: {error} at {last}" if inside else None
    return None


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(4)
@pytest.mark.parametrize("local", [True, False, None], ids=["local", "global", "unchecked"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_strange_argument_gets_a_clear_error(name, local):
    function = FUNCTIONS[name]
    mesh = {"dp": MeshAxis.of(2, 2), "tp": MeshAxis.of(2, 1)}
    checked = contextlib.nullcontext() if local is None else typecheck(local=local)
    with set_current_mesh(mesh), checked:
        said = [found for args, named in _calls(name, function) if (found := _complaint(function, args, named))]
    assert sorted(set(said)) == []


@pytest.mark.parametrize("made", [spmd.S, spmd.types.Shard])
def test_a_value_that_cannot_be_printed_is_named_by_its_class(made):
    with pytest.raises((TypeError, ValueError), match="Unprintable whose repr raises ValueError"):
        made(Unprintable())


@pytest.mark.parametrize("stand_in", ["torch", 5, torch.nn.Linear(2, 2), NotImplemented])
def test_what_cannot_move_bytes_is_refused_and_does_not_stay(stand_in):
    with pytest.raises(TypeError, match="set_dist takes a module with the functions"):
        spmd.set_dist(stand_in)
    assert backend.current is torch.distributed


def test_most_public_names_are_functions_that_are_tried():
    assert len(FUNCTIONS) > 60
    assert set(RIGHT) <= set(FUNCTIONS)
