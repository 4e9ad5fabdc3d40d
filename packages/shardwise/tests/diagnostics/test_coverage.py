"""What several ranks have judged, taken together, and what is said of what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwise.diagnostics.coverage import Coverage, OwnData, UnjudgedGradients, of_ranks
from shardwise.diagnostics.source_location import SourceLocation

X = OwnData("x of Model", SourceLocation("m.py", 3), ((0, 1),), digest="a")


def joined(*data):
    return of_ranks({rank: Coverage(parameters=1, own_data=(one,) if one else ()) for rank, one in enumerate(data)})


@pytest.mark.parametrize(
    ("data", "alike", "assumed"),
    [
        ((X, replace(X, digest="b")), [], False),
        ((X, X), [(0, 1)], False),
        ((X, replace(X, digest="")), [], True),
        ((X, None), [], True),
        ((replace(X, said=True), replace(X, said=True)), [(0, 1)], False),
        ((replace(X, said=True, digest=""), replace(X, said=True, digest="")), [], False),
        ((X, replace(X, groups=((1, 3),)), replace(X, groups=((0, 2),))), [(0, 1, 2)], False),
    ],
    ids=["apart", "equal", "no values", "one rank", "said and equal", "said", "three ranks"],
)
def test_data_of_several_ranks_are_their_own_or_not(data, alike, assumed):
    coverage = joined(*data)
    assert [one.alike for one in coverage.own_data if one.alike] == alike
    assert coverage.is_data_assumed == assumed
    assert bool(coverage.unjudged) == (assumed or bool(alike))


def test_ranks_that_do_not_average_with_each_other_may_have_the_same_data():
    """dp=2,tp=2: ranks 0 and 1 are one model."""
    groups, digests = [(0, 2), (1, 3), (0, 2), (1, 3)], "aabb"
    data = [replace(X, groups=(group,), digest=digest) for group, digest in zip(groups, digests, strict=True)]
    assert [(one.alike, one.apart) for one in joined(*data).own_data] == [((), (0, 2))]


def test_what_is_open_on_one_rank_is_open():
    one = Coverage(parameters=2, typed_parameters=2)
    other = Coverage(parameters=1, unjudged_axes=("tp",), unjudged_gradients=(UnjudgedGradients("dp", 1, 3),))
    both = of_ranks({0: one, 1: other})
    assert (both.parameters, both.unjudged_axes) == (2, ("tp",))
    assert both.unjudged == (
        "what is exchanged over tp: no type says what it, or any parameter, is there",
        "what steps take: nothing is known of the gradients of 1 of 3 parameters over dp",
    )
    assert of_ranks({}) == Coverage()
