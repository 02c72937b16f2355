"""Spending: charges the operations of one client to its rate, in the order of arrival."""

import asyncio

from relay.store.agents.rates import MESSAGE, Granted, Rates


class Spending:
    """The rate of one client. An operation that waits for the store holds up the ones after it."""

    __slots__ = ("_address", "_line", "_rates")

    def __init__(self, address: str, rates: Rates) -> None:
        self._address = address
        self._rates = rates
        self._line: list[tuple[int, int, Granted]] = []

    def spend(self, count: int, got: Granted, price: int = MESSAGE) -> None:
        """`got` hears how many of these may be done now, at once if no question to the store is needed."""
        self._line.append((count, price, got))
        if len(self._line) == 1:
            self._ask()

    def _ask(self) -> None:
        count, price, _ = self._line[0]
        self._rates.spend(self._address, count, self._answered, price)

    def _answered(self, granted: int | None, retry_after_ms: int) -> None:
        _, _, got = self._line[0]
        try:
            got(granted, retry_after_ms)
        finally:
            self._line.pop(0)
            if self._line:
                asyncio.get_running_loop().call_soon(self._ask)
