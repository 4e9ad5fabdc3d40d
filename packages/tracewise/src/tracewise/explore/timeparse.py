"""Times as people type them, to microseconds since the epoch: absolute, relative, percent of the data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

SECOND_US = 1_000_000
UNIT_US: dict[str, int] = {
    **dict.fromkeys(("us", "µs"), 1),
    **dict.fromkeys(("ms",), 1_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), SECOND_US),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60 * SECOND_US),
    **dict.fromkeys(("h", "hour", "hours"), 3_600 * SECOND_US),
    **dict.fromkeys(("d", "day", "days"), 86_400 * SECOND_US),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86_400 * SECOND_US),
}

_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)\s*%", re.ASCII)
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*([a-zµ]+)\s*", re.ASCII | re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6})\d*)?)?", re.ASCII)
_DAY = re.compile(r"(?:(today|yesterday)|(\d{4})-(\d{1,2})-(\d{1,2}))(?:[T\s]+(.+))?", re.ASCII | re.IGNORECASE)
_OFFSET = re.compile(r"\s*(?:(Z)|([+-])(\d{2}):?(\d{2}))$", re.ASCII | re.IGNORECASE)
_EPOCH_DIGITS = {10: SECOND_US, 13: 1_000}

EXAMPLES = "2026-11-22 03:50, 03:50:12.5, -1 hour, yesterday 14:00, now, 25%"


class TimeSyntaxError(ValueError):
    """A text that says no time; the message names it and shows what would."""


@dataclass(frozen=True, slots=True)
class Clock:
    """What a time is relative to: now, the span of the data (both in microseconds), and a zone for absolute times."""

    now_us: int
    first_us: int
    last_us: int
    zone: tzinfo = UTC


def parse_time(text: str, clock: Clock) -> int:
    """Microseconds since the epoch that ``text`` names.

    "-1 hour" is relative to now, "25%" to the data's span, "03:50" is on the last day of the data, and whatever has
    no zone of its own is in the clock's.
    """
    stripped = text.strip()
    lowered = stripped.lower()
    try:
        if lowered == "now":
            return clock.now_us
        if percent := _PERCENT.fullmatch(stripped):
            return clock.first_us + round((clock.last_us - clock.first_us) * float(percent[1]) / 100)
        if stripped[:1] in "+-" and stripped:
            moved = clock.now_us + (1 if stripped[0] == "+" else -1) * parse_duration(stripped[1:])
            return epoch_us(to_datetime(moved, UTC))  # refuses years that no calendar has
        if stripped.isascii() and stripped.isdigit():
            return _from_digits(stripped)
        if _CLOCK.fullmatch(stripped):
            return _on_day(to_datetime(clock.last_us, clock.zone).date(), stripped, clock.zone)
        if day := _DAY.fullmatch(stripped):
            return _on_day(_day(day, clock), day[5] or "00:00", clock.zone)
    except (ValueError, OverflowError) as error:
        raise TimeSyntaxError(f"{text!r} is not a time ({error}); write for example {EXAMPLES}") from None
    raise TimeSyntaxError(f"{text!r} is not a time; write for example {EXAMPLES}")


def parse_duration(text: str) -> int:
    """Microseconds in "90 s", "1h30m" or "3 days"; always above zero."""
    stripped = text.strip()
    total, at = 0, 0
    while at < len(stripped):
        part = _PART.match(stripped, at)
        if not part or part[2].lower() not in UNIT_US:
            break
        total += round(float(part[1]) * UNIT_US[part[2].lower()])
        at = part.end()
    if at < len(stripped) or total <= 0:
        raise TimeSyntaxError(f"{text!r} is not a duration; write for example 90 s, 1h30m, 3 days")
    return total


def epoch_us(moment: datetime) -> int:
    """Microseconds since the epoch of a moment with a zone."""
    return (moment - EPOCH) // MICROSECOND


def to_datetime(time_us: int, zone: tzinfo) -> datetime:
    """The moment, in ``zone``; OverflowError outside of the years 1 to 9999."""
    return (EPOCH + timedelta(microseconds=time_us)).astimezone(zone)


def time_text(time_us: int, zone: tzinfo) -> str:
    """A time as it is shown and as ``parse_time`` reads it: 2026-11-22 03:50:12.5, trailing zeros left out."""
    try:
        moment = to_datetime(time_us, zone)
    except OverflowError:
        return f"{time_us} us"
    whole = moment.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
    return f"{whole}.{moment.microsecond:06d}".rstrip("0").rstrip(".") if moment.microsecond else whole


def _from_digits(digits: str) -> int:
    if len(digits) not in (10, 13, 16, 19):
        raise ValueError("digits alone are an epoch time of 10, 13, 16 or 19 digits")
    if len(digits) == 19:
        return int(digits) // 1_000
    return int(digits) * _EPOCH_DIGITS.get(len(digits), 1)


def _day(found: re.Match[str], clock: Clock) -> date:
    if not found[1]:
        return date(int(found[2]), int(found[3]), int(found[4]))
    today = to_datetime(clock.now_us, clock.zone).date()
    return today if found[1].lower() == "today" else today - timedelta(days=1)


def _on_day(day: date, clock_text: str, zone: tzinfo) -> int:
    offset = _OFFSET.search(clock_text)
    found = _CLOCK.fullmatch(clock_text[: offset.start()] if offset else clock_text)
    if not found:
        raise ValueError(f"{clock_text!r} is no time of the day")
    at = time(int(found[1]), int(found[2]), int(found[3] or 0), int((found[4] or "").ljust(6, "0")))
    if offset:
        return epoch_us(datetime.combine(day, at, UTC)) - _offset_us(offset)
    return epoch_us(datetime.combine(day, at, zone))


def _offset_us(offset: re.Match[str]) -> int:
    if offset[1]:
        return 0
    minutes = int(offset[3]) * 60 + int(offset[4])
    return (1 if offset[2] == "+" else -1) * minutes * 60 * SECOND_US
