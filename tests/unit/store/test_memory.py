"""How full the server is, as an instance knows it between two looks."""

from typing import Any

import pytest

from relay.errors import StoreUnavailable
from relay.store.memory import OVERHEAD_BYTES, ROUNDED_UP, Memory


class Servers:
    """Answer INFO."""

    def __init__(self, *fills: tuple[int, int]) -> None:
        self.fills = fills

    async def info_of_each(self, *_: Any) -> dict[int, dict[str, str]]:
        return {n: {"used_memory": str(used), "maxmemory": str(most)} for n, (used, most) in enumerate(self.fills)}


async def seen(used: int, most: int, share: float = 0.9) -> Memory:
    memory = Memory(Servers((used, most)), share)  # type: ignore[arg-type]
    await memory.look()
    return memory


@pytest.mark.parametrize(("used", "is_short"), [(899, False), (900, True), (1_200, True)])
async def test_nothing_is_added_from_the_share_on(used: int, is_short: bool) -> None:
    assert (await seen(used, 1_000)).is_short == is_short


async def test_a_server_without_a_limit_is_never_short() -> None:
    memory = await seen(10**12, 0)

    memory.require()

    assert (memory.is_short, memory.share) == (False, 0.0)


async def test_what_was_sent_since_counts_until_the_next_look() -> None:
    memory = await seen(0, 1_000_000)

    memory.add(messages=2, payload_bytes=900_000)
    was_short, used = memory.is_short, memory.used_bytes
    await memory.look()

    assert (was_short, used) == (True, 900_000 + 900_000 // ROUNDED_UP + 2 * OVERHEAD_BYTES)
    assert (memory.is_short, memory.used_bytes) == (False, 0)


async def test_who_is_refused_is_told_when_to_try_again() -> None:
    memory = await seen(1_000, 1_000)

    with pytest.raises(StoreUnavailable) as refused:
        memory.require()

    assert refused.value.details["retry_after_ms"] > 0


async def test_on_a_cluster_the_fullest_master_counts() -> None:
    memory = Memory(Servers((9_500, 100_000), (9_400, 10_000), (0, 0)), 0.9)  # type: ignore[arg-type]

    await memory.look()
    memory.add(messages=3, payload_bytes=0)

    assert (memory.is_short, memory.max_bytes, memory.used_bytes) == (True, 10_000, 9_400 + OVERHEAD_BYTES)
