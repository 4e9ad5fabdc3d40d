"""Times as people type them."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewise.explore.timeparse import (
    Clock,
    TimeSyntaxError,
    epoch_us,
    parse_duration,
    parse_time,
    time_text,
)

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
FIRST, LAST = datetime(2026, 11, 22, 3, 0, tzinfo=UTC), datetime(2026, 11, 22, 5, 0, tzinfo=UTC)
CLOCK = Clock(epoch_us(NOW), epoch_us(FIRST), epoch_us(LAST))
TOKYO = timezone(timedelta(hours=9))

TIMES = [
    ("now", NOW),
    ("-1 hour", datetime(2026, 11, 23, 11, 0, tzinfo=UTC)),
    ("-1h30m", datetime(2026, 11, 23, 10, 30, tzinfo=UTC)),
    ("+5 min", datetime(2026, 11, 23, 12, 5, tzinfo=UTC)),
    ("-3 days", datetime(2026, 11, 20, 12, 0, tzinfo=UTC)),
    ("0%", FIRST),
    ("25%", datetime(2026, 11, 22, 3, 30, tzinfo=UTC)),
    ("100 %", LAST),
    ("2026-11-22", datetime(2026, 11, 22, tzinfo=UTC)),
    ("2026-11-22 03:50", datetime(2026, 11, 22, 3, 50, tzinfo=UTC)),
    ("2026-11-22T03:50:12.5", datetime(2026, 11, 22, 3, 50, 12, 500_000, tzinfo=UTC)),
    ("2026-11-22T03:50:12.1234567Z", datetime(2026, 11, 22, 3, 50, 12, 123_456, tzinfo=UTC)),
    ("2026-11-22 03:50+09:00", datetime(2026, 11, 21, 18, 50, tzinfo=UTC)),
    ("03:50:12.5", datetime(2026, 11, 22, 3, 50, 12, 500_000, tzinfo=UTC)),
    ("today", datetime(2026, 11, 23, tzinfo=UTC)),
    ("yesterday 14:00", datetime(2026, 11, 22, 14, 0, tzinfo=UTC)),
    ("1795319722", datetime(2026, 11, 22, 3, 55, 22, tzinfo=UTC)),
    ("1795319722973573", datetime(2026, 11, 22, 3, 55, 22, 973_573, tzinfo=UTC)),
]


@pytest.mark.parametrize(("text", "expected"), TIMES)
def test_a_time_is_read(text, expected):
    assert parse_time(text, CLOCK) == epoch_us(expected)


def test_an_absolute_time_is_in_the_zone_that_was_chosen():
    clock = Clock(CLOCK.now_us, CLOCK.first_us, CLOCK.last_us, TOKYO)
    assert parse_time("2026-11-22 12:00", clock) == epoch_us(FIRST)
    assert time_text(epoch_us(FIRST), TOKYO) == "2026-11-22 12:00:00"


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "2026-13-01", "-1 parsec", "-", "12", "2026-11-22 03", "-99999999 weeks"]
)
def test_what_is_no_time_is_named_with_examples(text):
    with pytest.raises(TimeSyntaxError, match="write for example") as caught:
        parse_time(text, CLOCK)
    assert repr(text) in str(caught.value)


@given(st.text())
def test_any_other_text_is_refused_and_never_fails_otherwise(text):
    with contextlib.suppress(TimeSyntaxError):
        assert isinstance(parse_time(text, CLOCK), int)


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)))
def test_a_shown_time_is_read_back(moment):
    time_us = epoch_us(moment.replace(tzinfo=UTC))
    for zone in (UTC, TOKYO):
        assert parse_time(time_text(time_us, zone), Clock(0, 0, 0, zone)) == time_us


@pytest.mark.parametrize(
    ("text", "us"), [("90 s", 90_000_000), ("1h30m", 5_400_000_000), ("10 ms", 10_000), ("1 us", 1)]
)
def test_a_duration_is_read(text, us):
    assert parse_duration(text) == us


@pytest.mark.parametrize("text", ["", "0 s", "5", "5 x", "s"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(TimeSyntaxError, match="is not a duration"):
        parse_duration(text)
