"""Dumps are read as data: plain values as pickle would give them, and nothing that could run."""

from __future__ import annotations

import os
import pickle
import pickletools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewise.read.pickled import PickleError, plain_values

from ..command import run_command
from .dumps import dump, write_dumps

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=50)
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(KEYS, inner)
        | st.tuples(inner, inner)
        | st.sets(st.integers())
        | st.lists(inner).map(tuple)
    ),
)


@settings(max_examples=50, deadline=None)
@given(VALUES, st.integers(0, 5))
def test_plain_values_come_back_as_pickle_gives_them(value, protocol):
    data = pickle.dumps(value, protocol)
    if any(op.name in ("GLOBAL", "STACK_GLOBAL") for op, _, _ in pickletools.genops(data)):
        # Protocols below 3 (bytes) and below 4 (sets) write a call for these; that is refused, whatever it calls.
        with pytest.raises(PickleError):
            plain_values(data)
    else:
        assert plain_values(data) == value


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_calls_something_is_refused_and_does_nothing(tmp_path, capsys, protocol):
    target = tmp_path / "made"
    write_dumps(tmp_path / "dumps", "none")
    forged = dump(3, "none") | {"more": Evil(str(target))}
    (tmp_path / "dumps" / "fr_3.json").write_bytes(pickle.dumps(forged, protocol=protocol))
    status, out, err = run_command(capsys, "ranks", tmp_path / "dumps" / "fr_*")
    assert not target.exists()
    # Protocols 0 and 1 have no mark of their own and are not taken for a dump at all.
    if protocol > 1:
        assert (status, out) == (2, "")
        assert "nothing is imported or called" in err


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80", b"\x80\x02", b"\x80\x02.", b"\x80\x02(.", b"\x80\x02h\x05.", b"\x80\x02Na.", b"I1\nI2\n."],
)
def test_a_damaged_pickle_is_an_error_of_its_own(data):
    with pytest.raises(PickleError):
        plain_values(data)


def test_a_mutated_dump_is_read_or_refused_and_never_runs_or_raises_anything_else():
    refused = 0
    for seed in range(300):
        choice = random.Random(seed)
        data = bytearray(pickle.dumps(dump(1, "none"), protocol=choice.choice([2, 4])))
        for _ in range(choice.randint(1, 6)):
            data[choice.randrange(len(data))] = choice.randrange(256)
        try:
            plain_values(bytes(data))
        except PickleError:
            refused += 1
    assert 0 < refused < 300
