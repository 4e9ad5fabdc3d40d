"""A call that is known by its key has the verdict that it would have if it were judged: every ingredient is in the key.

Each call is made over and over with everything about its operands varied, by handlers that remember all of it, and
each time by a handler that remembers nothing.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import shardwise as spmd
from shardwise.checker import mode
from shardwise.checker.patching.installation import installed
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector

from .helpers import make, operand

Call = Callable[..., Any]
Verdict = tuple[Any, ...]

WRITES: dict[str, Call] = {
    "add_": lambda x, y: x.add_(y),
    "add_ with alpha=0": lambda x, y: x.add_(y, alpha=0),
    "mul_": lambda x, y: x.mul_(y),
    "mul_ by a number": lambda x, y: x.mul_(2.0),
    "add_ of a number": lambda x, y: x.add_(1.0),
    "add_ of zero": lambda x, y: x.add_(0),
    "lerp_": lambda x, y: x.lerp_(y, 0.5),
    "addcmul_": lambda x, y: x.addcmul_(y, y),
    "copy_": lambda x, y: x.copy_(y),
    "setitem of a row": lambda x, y: x.__setitem__(0, y[0]),
    "setitem of columns": lambda x, y: x.__setitem__((slice(None), slice(0, 2)), y[:, :2]),
    "setitem of a number": lambda x, y: x.__setitem__(0, 1.0),
    "setitem of zero": lambda x, y: x.__setitem__(0, 0.0),
    "zero_": lambda x, y: x.zero_(),
    "fill_": lambda x, y: x.fill_(1.0),
    "relu_": lambda x, y: x.relu_(),
    "relu(inplace=True)": lambda x, y: F.relu(x, inplace=True),
    "relu": lambda x, y: F.relu(x),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0, 0.0),
    "add(out=)": lambda x, y: torch.add(y, y, out=x),
    "transpose_": lambda x, y: x.transpose_(0, 1),
    "normal_": lambda x, y: x.normal_(),
    "dropout(inplace=True)": lambda x, y: F.dropout(x, 0.5, inplace=True),
    "_foreach_add_": lambda x, y: torch._foreach_add_([x, y], [y, y]),
    "_foreach_mul_": lambda x, y: torch._foreach_mul_([x], y),
    "_foreach_copy_": lambda x, y: torch._foreach_copy_([x], [y]),
    "_foreach_zero_": lambda x, y: torch._foreach_zero_([x]),
    "_foreach_add": lambda x, y: torch._foreach_add([x, y], [y, y]),
    "_foreach_mul by a number": lambda x, y: torch._foreach_mul([x], 2.0),
    "_foreach_sqrt": lambda x, y: torch._foreach_sqrt([x, y]),
}
READS: dict[str, Call] = {
    "add": lambda x, y: x + y,
    "getitem": lambda x, y: x[1:2],
    "getitem with a step": lambda x, y: x[::2],
    "where": lambda x, y: torch.where(x > 0, x, y),
    "ones_like": lambda x, y: torch.ones_like(x),
    "zeros_like": lambda x, y: torch.zeros_like(x, requires_grad=x.requires_grad),
    "full_like of zero": lambda x, y: torch.full_like(x, 0.0),
    "full_like": lambda x, y: torch.full_like(x, 3.0),
    "full": lambda x, y: torch.full((2,), 3.0),
    "full of zero": lambda x, y: torch.full((2,), 0.0),
    "new_zeros": lambda x, y: x.new_zeros(3),
    "arange": lambda x, y: torch.arange(4),
    "empty_like": lambda x, y: torch.empty_like(x),
    "unbind": lambda x, y: x.unbind(0),
    "batch_norm": lambda x, y: F.batch_norm(x, y[0], y[1], training=True),
    "batch_norm in evaluation": lambda x, y: F.batch_norm(x, y[0], y[1]),
}
DRAWS: dict[str, Call] = {
    "dropout": lambda x, y: F.dropout(x, 0.5),
    "dropout of nothing": lambda x, y: F.dropout(x, 0.0),
    "dropout in evaluation": lambda x, y: F.dropout(x, 0.5, training=False),
    "dropout(inplace=True)": lambda x, y: F.dropout(x, 0.5, inplace=True),
    "alpha_dropout": lambda x, y: F.alpha_dropout(x, 0.5, training=True),
    "attention without dropout": lambda x, y: F.scaled_dot_product_attention(x, y, y),
    "attention with dropout": lambda x, y: F.scaled_dot_product_attention(x, y, y, dropout_p=0.5),
    "randn_like": lambda x, y: torch.randn_like(x),
    "rand": lambda x, y: torch.rand(2),
    "bernoulli": lambda x, y: torch.bernoulli(x.nan_to_num().clamp(0, 1)),
    "normal_": lambda x, y: x.normal_(),
    "multinomial": lambda x, y: torch.multinomial(x.nan_to_num().clamp(0, 1) + 1, 2),
}


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Handlers of this test's own, which nothing has taught anything yet; its many checks share one installation."""
    monkeypatch.setattr(mode, "_handlers", {})
    with installed():
        yield


Operands = Callable[[], tuple[torch.Tensor, ...]]
Selection = Callable[[str, list[Operands], int], list[Operands]]


def verdict(call: Call, operands: Operands, **options: Any) -> Verdict:
    """What the checker says of one call: the findings, the results' types and those of the operands afterwards."""
    collector = Collector()
    with checking(collect=collector, **options):
        xs = operands()
        before = [str(spmd.typeof(x)) for x in xs]
        try:
            made = call(*xs[:2])
        except (RuntimeError, IndexError) as error:  # torch's own, such as a write to a leaf that requires grad
            made = type(error).__name__
        results = made if isinstance(made, (list, tuple)) else (made,)
        after = [str(spmd.typeof(one)) if isinstance(one, torch.Tensor) else one for one in (*results, *xs)]
    result = collector.result()
    return before, [finding.code for finding in result.findings], after, result.checked_ops, result.unchecked_ops


@pytest.fixture
def selection(nightly: bool) -> Selection:
    """One variant in ``step``, by night every one; calls of other names have others, so that together they meet all."""
    return lambda name, variants, step: variants if nightly else variants[sum(name.encode()) % step :: step]


def assert_known_as_judged(call: Call, variants: list[Operands], **options: Any) -> None:
    """All ``variants`` have the verdicts of handlers that know nothing, and these differ."""
    judged = []
    for operands in variants:
        mode._handlers.clear()
        judged.append(verdict(call, operands, **options))
    mode._handlers.clear()
    for _ in range(2):
        for operands, expected in zip(variants, judged, strict=True):
            assert verdict(call, operands, **options) == expected
    assert len({str(one) for one in judged}) > 1, "the variants are to have different verdicts"


def typed(letter: str, grad: bool = False, *shape: int) -> torch.Tensor:
    """A tensor of type ``letter``; one that requires grad is a leaf where nothing is recorded, else a result."""
    x = make(letter, *(shape or (4, 4)), grad=grad)
    return x * 1.0 if grad and torch.is_grad_enabled() else x


def untyped() -> torch.Tensor:
    x = torch.ones(4, 4)
    x.__dict__.clear()
    return x


def local_variants() -> list[Operands]:
    """Operands of every pair of types; the first as it is or through a view; with and without gradients."""

    def direct(a: str, b: str, grads: tuple[bool, bool]) -> Operands:
        return lambda: (typed(a, grads[0]), typed(b, grads[1]))

    def through_a_view(a: str, b: str, grad: bool) -> Operands:
        def operands() -> tuple[torch.Tensor, ...]:
            base = typed(a, grad)
            return base.view(4, 4), typed(b), base

        return operands

    pairs = list(itertools.product("RIVP", repeat=2))
    return [
        *(direct(*pair, grads) for pair in pairs for grads in ((False, False), (True, False), (False, True))),
        *(through_a_view(*pair, grad) for pair in pairs for grad in (False, True)),
        *((lambda a=a: (typed(a), untyped())) for a in "RIVP"),
        *((lambda b=b: (untyped(), typed(b))) for b in "RIVP"),
        *((lambda b=b: (torch.empty(4, 4), typed(b))) for b in "RIVP"),
        *((lambda b=b: (torch.zeros(4, 4), typed(b))) for b in "RIVP"),
        *((lambda a=a: (typed(a), torch.ones(4, 4))) for a in "RIVP"),
    ]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [*WRITES, *READS])
def test_with_local_types(tp_mesh: Any, selection: Selection, name: str) -> None:
    call = WRITES.get(name) or READS[name]
    assert_known_as_judged(call, selection(name, local_variants(), 4))
    with torch.no_grad():
        assert_known_as_judged(call, selection(name, local_variants(), 8), strict=False)


def gradient_of(letter: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A leaf of type ``letter`` and its gradient."""
    x = make(letter, grad=True)
    summed = (x * make("V")).sum() if letter == "R" else x.square().sum()
    (summed if letter == "I" else spmd.all_reduce(summed, "tp", src=spmd.V, dst=spmd.I)).backward()
    assert x.grad is not None
    return x, x.grad


def gradient_variants() -> list[Operands]:
    """Gradients, numbers made of gradients, and parts of a buffer that gradients are written into; and what has the
    same types and no such history."""

    def written(letter: str, other: Callable[[torch.Tensor], torch.Tensor]) -> Operands:
        def operands() -> tuple[torch.Tensor, ...]:
            leaf, gradient = gradient_of(letter)
            return gradient, other(gradient), leaf

        return operands

    def in_a_buffer(source: Callable[[], tuple[torch.Tensor, ...]]) -> Operands:
        def operands() -> tuple[torch.Tensor, ...]:
            buffer = make("R", 8, 4)
            return buffer[:4], *source()[::-1], buffer

        return operands

    def plain_scalar(letter: str) -> torch.Tensor:
        return make(letter, 1).sum()

    return [
        *(lambda letter=letter: (make(letter), plain_scalar("V")) for letter in "VIR"),
        *(lambda letter=letter: (make(letter), make(letter)) for letter in "VIRP"),
        *(written(letter, lambda g: plain_scalar("V")) for letter in "VI"),
        *(written(letter, lambda g: gradient_of("V")[1].norm()) for letter in "VI"),
        *(written(letter, lambda g: gradient_of("I")[1].norm()) for letter in "VI"),
        *(written(letter, lambda g: g.clone()) for letter in "VIR"),
        *(written(letter, lambda g: make("R")) for letter in "VIR"),
        in_a_buffer(lambda: (make("R"),)),
        in_a_buffer(lambda: gradient_of("I")),
        in_a_buffer(lambda: gradient_of("R")),
    ]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", sorted(WRITES.keys() - {"add(out=)"}))
def test_writes_of_gradients_and_into_them(tp_mesh: Any, name: str) -> None:
    if name in ("copy_", "mul_"):  # what a handler that ignored histories would get wrong
        judged = [verdict(WRITES[name], operands) for operands in gradient_variants()]
        assert any("SW609" in one[1] for one in judged) or any("?" in str(one[2]) for one in judged)
    with torch.enable_grad():
        assert_known_as_judged(WRITES[name], gradient_variants())


NO_DRAW = ("dropout of nothing", "dropout in evaluation", "attention without dropout")
STREAMS: dict[str, Callable[[], Any]] = {
    "nothing declared": contextlib.nullcontext,
    "declared": lambda: spmd.synchronised_rng("tp"),
    "a synchronised stream": lambda: spmd.rng(1, synchronised="tp"),
    "a distinct stream": lambda: spmd.rng(1, distinct="tp"),
}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", DRAWS)
def test_with_random_streams(tp_mesh: Any, selection: Selection, name: str) -> None:
    call = DRAWS[name]

    def under(stream: str) -> Call:
        def in_stream(x: torch.Tensor, y: torch.Tensor) -> Any:
            with STREAMS[stream]():
                return call(x, y)

        return in_stream

    variants = selection(name, local_variants(), 8)
    judged = {}
    for stream in STREAMS:
        mode._handlers.clear()
        judged[stream] = [verdict(under(stream), operands) for operands in variants]
    mode._handlers.clear()
    for stream in (*STREAMS, *STREAMS):
        assert [verdict(under(stream), operands) for operands in variants] == judged[stream], stream
    assert len({str(verdicts) for verdicts in judged.values()}) > 1 or name in NO_DRAW


GENERATORS: dict[str, Callable[[], torch.Generator]] = {
    "synchronised": lambda: spmd.rng(1, synchronised="tp").generator(),
    "distinct": lambda: spmd.rng(1, distinct="tp").generator(),
    "own": torch.Generator,
}


@pytest.mark.parametrize("letter", "RV")
@pytest.mark.parametrize(
    "draw",
    [
        lambda x, generator: torch.bernoulli(x / 2, generator=generator),
        lambda x, generator: torch.rand(2, generator=generator),
        lambda x, generator: x.normal_(generator=generator),
    ],
)
def test_what_a_generator_promises_is_in_the_key(tp_mesh: Any, draw: Call, letter: str) -> None:
    def said(kind: str) -> Verdict:
        return verdict(lambda x, y: draw(x, GENERATORS[kind]()), lambda: (make(letter), make(letter)))

    judged = {}
    for kind in GENERATORS:
        mode._handlers.clear()
        judged[kind] = said(kind)
    mode._handlers.clear()
    for kind in (*GENERATORS, *GENERATORS):
        assert said(kind) == judged[kind]
    assert len({str(one) for one in judged.values()}) > 1


def global_variants() -> list[Operands]:
    """Operands of every pair of layouts, shapes and dtypes."""
    pairs = [
        ("f32[4@tp, 8]", "f32[4@tp, 8]"),
        ("f32[4@tp, 8]", "f32[4, 8] {tp: R}"),
        ("f32[4@tp, 8]", "f32[1, 8] {tp: R}"),
        ("f32[4@tp, 8]", "f32[8] {tp: R}"),
        ("f32[4, 8@tp]", "f32[4@tp, 8]"),
        ("f32[4, 8@tp]", "f32[8@tp]"),
        ("f32[4, 8] {tp: R}", "f32[4, 8@tp]"),
        ("f32[4, 8] {tp: P}", "f32[4, 8] {tp: P}"),
        ("f32[4, 8] {tp: P}", "f32[4, 8] {tp: R}"),
        ("f32[4@tp, 4]", "i64[4@tp, 4]"),
        ("f32[4, 4@tp]", "i64[4, 4] {tp: R}"),
        ("f32[4@tp, 4]", "i64[4]  {tp: R}"),
        ("f32[4@~tp, 8]", "f32[4@tp, 8]"),
        ("f32[4, 8@tp]", "i64[4] {tp: R}"),
        ("f32[4, 8@tp]", "b8[4] {tp: R}"),
        ("f32[4@tp, 8]", "i64[4@tp]"),
        ("f32[4@tp, 8]", "b8[4@tp]"),
    ]
    return [lambda pair=pair: tuple(operand(text) for text in pair) for pair in pairs]


INDEXED: dict[str, Call] = {
    "setitem by numbers": lambda x, y: x.__setitem__(y > 0, 0.0),
    "index_add_ along 0": lambda x, y: x.index_add_(0, torch.arange(x.shape[0]), x.clone()),
    "scatter_ along 1": lambda x, y: x.scatter_(1, y.long(), 1.0),
    "scatter_ along 0": lambda x, y: x.scatter_(0, y.long(), 1.0),
    "gather": lambda x, y: x.gather(1, y.long()),
    "sum over 0": lambda x, y: x.sum(0),
    "sum over 1": lambda x, y: x.sum(1),
    "a row": lambda x, y: x[0],
    "by an index or a mask": lambda x, y: x[y],
    "a column": lambda x, y: x[:, 0],
    "unbind over 0": lambda x, y: x.unbind(0),
    "unbind over 1": lambda x, y: x.unbind(1),
}
GLOBAL = {**WRITES, **READS, **INDEXED}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", sorted(GLOBAL.keys() - {"full", "full of zero", "arange", "add(out=)"}))
def test_with_global_types(tp_mesh: Any, name: str) -> None:
    assert_known_as_judged(GLOBAL[name], global_variants(), local=False)
    with torch.no_grad():
        assert_known_as_judged(GLOBAL[name], global_variants()[::2], local=False)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("name", [name for name in DRAWS if name != "rand"])
def test_random_numbers_with_global_types(tp_mesh: Any, name: str) -> None:
    def call(x: torch.Tensor, y: torch.Tensor) -> Any:
        with spmd.synchronised_rng("tp"):
            return DRAWS[name](x, y)

    assert_known_as_judged(call, global_variants(), local=False)
