"""The period that a job covers."""

import argparse
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark.errors import BadInput

FOREVER_MS = 2**62
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Period:
    """From `since_ms` on, and before `until_ms`."""

    since_ms: int = 0
    until_ms: int = FOREVER_MS

    @classmethod
    def parse(cls, since: str | None, until: str | None) -> "Period":
        """Raises BadInput for what is no time, and for a period that ends before it begins."""
        period = cls(_milliseconds(since, 0), _milliseconds(until, FOREVER_MS))
        if period.until_ms <= period.since_ms:
            raise BadInput(f"--until {until} is not after --since {since}")
        return period

    def has(self, at_ms: str) -> Column:
        """Whether the time in a column is in the period."""
        return F.col(at_ms).between(self.since_ms, self.until_ms - 1)

    @property
    def first_dt(self) -> str:
        """The first day of the archive that can have events of the period: clocks differ, so one day early."""
        return _day(self.since_ms - DAY_MS)

    @property
    def last_dt(self) -> str:
        return _day(self.until_ms + DAY_MS)


def add_period(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since", metavar="TIME", help="from this day or time on (UTC): 2026-05-01 or 2026-05-01T12:30"
    )
    parser.add_argument("--until", metavar="TIME", help="before this day or time")


def _milliseconds(text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{text!r} is not a time; write 2026-05-01 or 2026-05-01T12:30") from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)


def _day(ms: int) -> str:
    """As in the folders of the archive; beyond the calendar, the nearest day it has."""
    try:
        return (datetime(1970, 1, 1) + timedelta(milliseconds=max(0, ms))).strftime("%Y-%m-%d")
    except OverflowError:
        return "9999-12-31"
