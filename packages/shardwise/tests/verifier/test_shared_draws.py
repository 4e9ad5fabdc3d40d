"""Are draws that ranks share out told from draws that differ?"""

from __future__ import annotations

import pytest
import torch

from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.running.recording import Draw, Key, Record
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.distance.value_comparison import Entries
from shardwise.verifier.layouts.shared_draws import drawn_alike, shared_out

HERE = SourceLocation("train.py", 7, 7, 4, 9)


def draws(states: str, *, shape: int = 3, seeded: bool = True) -> Entries:
    """One draw per letter, from a generator in the state that it names."""
    made = [
        Draw(Key("drawn", "randn", HERE, nth), state.encode(), (shape,), seeded) for nth, state in enumerate(states, 1)
    ]
    return {draw.key: draw for draw in made}


@pytest.mark.parametrize(
    ("ranks", "alone", "shared"),
    [
        (("ab", "cd"), "abcd", True),  # a half of the samples each
        (("ac", "bd"), "abcd", True),  # every second
        (("abc", "d"), "abcd", True),  # uneven
        (("ab", "ab", "cd", "cd"), "abcd", True),  # copies along another axis
        (("aab", "c"), "aabc", True),  # one state twice
        (("ab", "ab"), "ab", False),  # nothing is shared out: compared one by one
        (("ab", "ab"), "abcd", False),  # ranks go on from equal states, with half as many turns
        (("ab", "cx"), "abcd", False),  # another seed
        (("ab", "c"), "abcd", False),  # one is missing
        (("abcd", "cdx"), "abcd", False),
    ],
)
def test_ranks_together_draw_what_one_rank_draws(ranks, alone, shared):
    found = shared_out([draws(rank) for rank in ranks], draws(alone))
    assert bool(found) is shared


def test_shapes_count_too():
    assert not shared_out([draws("ab", shape=2), draws("cd", shape=2)], draws("abcd", shape=4))


def test_numbers_that_nobody_seeded_are_no_part_of_anything():
    assert not shared_out([draws("ab"), draws("cd", seeded=False)], draws("abcd"))


def test_a_place_that_only_ranks_reach_is_not_shared_out():
    assert not shared_out([draws("ab"), draws("cd")], {})


def test_only_what_is_drawn_before_the_first_parameter_tells_of_its_initial_values():
    parameter = Key("parameter", "weight", None, 1)
    first = {parameter: Record(parameter, UNTYPED, "", torch.ones(2))}
    noise = Key("drawn", "rand", HERE, 1)
    own = [draws("a") | first | {noise: Draw(noise, b"x", (rank,))} for rank in range(2)]
    assert drawn_alike(own, draws("a") | first)
    assert not drawn_alike(own, draws("a", shape=6) | first), "each has drawn a piece of its own"
    assert not drawn_alike([own[0], draws("b")], draws("a"))
