"""The same relay with one message a call: what gathering is worth. Run like `relay serve`."""

from relay import cli, session
from relay.store import batches, store


class OnePerExchange(batches.Line):
    """A line on which every call waits for the one before."""

    async def _carry_out(self, calls: list[batches.Call]) -> None:
        for call in calls:
            await super()._carry_out([call])


def limit() -> None:
    """One item a call, one call an exchange, one delivery a take."""
    all_fitting = batches.Gatherer._fitting
    batches.Gatherer._fitting = lambda self, items: all_fitting(self, items[:1])  # type: ignore[method-assign]
    setattr(store, "Line", OnePerExchange)  # noqa: B010
    session.TAKE_AT_ONCE = 1


if __name__ == "__main__":
    limit()
    cli.main()
