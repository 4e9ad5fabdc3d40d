"""The year and the zone of a log, which its head lines leave out.

A chromium event carries microseconds since the epoch and is written within milliseconds of its head. The
difference, rounded to 15 minutes, is the zone; the epoch time has the year.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tracewise.read.grammar import HEAD, Head, parse_head

EVENT = re.compile(
    rb'^[VIWEC]\d{4} [^\n]*\] \{"chromium_event"[^\n]*\n(?:\t[^\n]*\n){0,40}?\t"ts": (\d{15,17})(?:\.|,|\n)', re.M
)
PROBE_BYTES = 32 << 20
QUARTER_US = 15 * 60 * 1_000_000
BACK_US = 1_000_000
EPOCH = datetime.date(1970, 1, 1).toordinal()


def naive_us(year: int, head: Head) -> int:
    """The head's time of that year read as UTC; a day that the calendar lacks counts as the nearest one."""
    month = min(max(head.month, 1), 12)
    day = max(head.day, 1)
    while True:
        try:
            date = datetime.date(year, month, min(day, 31))
            break
        except ValueError:
            day = min(day, 31) - 1
    return (date.toordinal() - EPOCH) * 86_400_000_000 + head.day_us


@dataclass(slots=True)
class Clock:
    """Turns head times into UTC. ``offset_us`` is local minus UTC."""

    year: int
    offset_us: int
    is_guessed: bool
    last_month: int = 0
    last_us: int = 0
    _date: tuple[int, int, int] = (0, 0, 0)
    _date_us: int = 0

    def utc_us(self, head: Head) -> tuple[int, bool]:
        """The head's time in UTC microseconds, and whether time went back by more than a second."""
        if self.last_month == 12 and head.month == 1:
            self.year += 1
        elif self.last_month == 1 and head.month == 12:
            self.year -= 1
        self.last_month = head.month
        date = (self.year, head.month, head.day)
        if date != self._date:
            self._date = date
            self._date_us = naive_us(self.year, head) - head.day_us - self.offset_us
        now = self._date_us + head.day_us
        went_back = now < self.last_us - BACK_US
        self.last_us = now
        return now, went_back


def find_clock(log: BinaryIO, path: Path) -> Clock:
    """The clock of an open log, which is left at its beginning."""
    log.seek(0)
    probe = log.read(PROBE_BYTES)
    log.seek(0)
    first = HEAD.search(probe)
    first_month = parse_head(first).month if first else 0
    for event in EVENT.finditer(probe):
        head = HEAD.match(event[0])
        if head is None:
            continue
        epoch_us = int(event[1])
        try:
            year = datetime.datetime.fromtimestamp(epoch_us / 1e6, datetime.UTC).year
        except (OverflowError, ValueError, OSError):
            continue
        parsed = parse_head(head)
        # Local time and UTC may lie in different years for some hours: take the year that is nearest.
        offset_us, year = min(
            ((naive_us(y, parsed) - epoch_us, y) for y in (year - 1, year, year + 1)), key=lambda pair: abs(pair[0])
        )
        rounded_us = round(offset_us / QUARTER_US) * QUARTER_US
        if abs(rounded_us) <= 24 * 3600 * 1_000_000:
            # The file may begin in the December before the event.
            return Clock(year - (first_month == 12 and parsed.month == 1), rounded_us, False)
    return _clock_of_mtime(path, first_month)


def _clock_of_mtime(path: Path, first_month: int) -> Clock:
    try:
        mtime = path.stat().st_mtime
    except OSError:
        mtime = 0.0
    local = datetime.datetime.fromtimestamp(mtime).astimezone()
    offset = local.utcoffset() or datetime.timedelta()
    year = local.year - (first_month > local.month)
    return Clock(max(year, 1970), int(offset.total_seconds() * 1e6), True)
