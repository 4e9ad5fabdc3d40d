"""Bytes and durations in words."""

from __future__ import annotations

import pytest

from shardwise.diagnostics.printing.quantities import byte_count, duration


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (1 << 30, "1 GiB")])
def test_bytes_in_words(count, text):
    assert byte_count(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(2.0, "2 s"), (1.5e-3, "1.5 ms"), (1.2e-5, "12 us"), (3e-9, "3 ns")])
def test_time_in_words(seconds, text):
    assert duration(seconds) == text
