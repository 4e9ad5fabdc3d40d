"""Do the random rules read what a stream promises?"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import shardwise as spmd
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector

from .helpers import make, place


def codes(body: Any) -> list[str]:
    collector = Collector()
    with checking(collect=collector):
        body()
    return [finding.code for finding in collector.result().findings]


def dropout(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.5, training=True)


@pytest.mark.parametrize(
    ("kind", "letter", "expected"),
    [
        ("synchronised", "R", []),
        ("synchronised", "I", []),
        ("synchronised", "V", ["SW620"]),
        ("distinct", "R", ["SW121"]),
        ("distinct", "I", ["SW121"]),
        ("distinct", "V", []),
    ],
)
def test_equal_values_need_equal_numbers_and_pieces_their_own(
    tp_mesh: Any, kind: str, letter: str, expected: list[str]
) -> None:
    x, stream = make(letter), spmd.rng(1, **{kind: "tp"})

    def in_block() -> None:
        with stream:
            result = dropout(x)
        assert place(result) == ("" if "SW121" in expected else letter)

    assert codes(in_block) == expected
    generator = stream.generator()
    assert codes(lambda: torch.bernoulli(x, generator=generator)) == expected


@pytest.mark.parametrize(
    ("strict", "kind", "expected"),
    [
        ("strict", None, ["SW121"]),
        ("permissive", None, []),
        ("permissive", "distinct", ["SW121"]),
        ("permissive", "synchronised", []),
    ],
)
@pytest.mark.parametrize("letter", ["R", "I"])
def test_whether_weights_are_filled_alike_is_unknown_until_somebody_says_it(
    tp_mesh: Any, strict: str, kind: str | None, expected: list[str], letter: str
) -> None:
    """Models are initialised under equal seeds without a word; what is filled has no type, and is no finding."""
    weight = make(letter)
    generator = None if kind is None else spmd.rng(1, **{kind: "tp"}).generator()
    collector = Collector()
    with checking(strict=strict == "strict", collect=collector):
        torch.nn.init.normal_(weight, generator=generator)
        if not expected:
            assert place(weight) == (letter if kind == "synchronised" else "")
    assert [finding.code for finding in collector.result().findings] == expected


def test_an_inner_stream_takes_back_what_a_declaration_said(tp_mesh: Any) -> None:
    x = make("R")

    def body() -> None:
        with spmd.synchronised_rng("tp"):
            dropout(x)
            with spmd.rng(1, distinct="tp"):
                dropout(x)

    assert codes(body) == ["SW121"]


def test_a_declaration_alone_says_nothing_of_pieces(tp_mesh: Any) -> None:
    """Code that is synchronised for its equal values may drop pieces too, and does nothing wrong."""
    x = make("V")

    def body() -> None:
        with spmd.synchronised_rng("tp"):
            dropout(x)

    assert codes(body) == []


def test_a_stream_holds_inside_its_block_only(tp_mesh: Any) -> None:
    x, stream = make("R"), spmd.rng(1)

    def body() -> None:
        with stream:
            dropout(x)
        dropout(x)

    assert codes(body) == ["SW121"]


def test_numbers_of_a_stream_that_is_synchronised_everywhere_are_replicate(tp_mesh: Any) -> None:
    stream = spmd.rng(1)

    def body() -> None:
        with stream:
            assert place(torch.randn(3)) == "R"
        assert place(torch.randn(3, generator=stream.generator())) == "R"
        assert place(torch.randn(3)) == ""

    assert codes(body) == []
