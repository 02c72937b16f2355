"""The same relay with one message a call: what gathering is worth. Run like `relay serve`."""

from relay.cli import main
from relay.core.session import delivery
from relay.store.redis import batcher, ordered_batcher
from relay.store.redis.command import Command
from relay.store.redis.servers import master, masters


class OnePerExchange(master.Master):
    """A master on whose connection every command waits for the one before."""

    async def _carry_out(self, commands: list[Command], deadline: float | None) -> None:
        for command in commands:
            await super()._carry_out([command], deadline)


def limit() -> None:
    """One item a call, one call an exchange, one delivery a take."""
    for one_batcher in (batcher.ShardBatcher, ordered_batcher.OrderedBatcher):
        setattr(one_batcher, "_batches", lambda _, items: ([items[:1]], 1))  # noqa: B010
    setattr(masters, "Master", OnePerExchange)  # noqa: B010
    delivery.TAKE_AT_ONCE = 1


if __name__ == "__main__":
    limit()
    main.main()
