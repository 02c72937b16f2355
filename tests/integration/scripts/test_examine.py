"""examine: the entries of a lane, its group and the index must agree."""

from dataclasses import dataclass

import pytest

from relay.store.redis.scripts import script
from tests.builders import BOB, Desk, a_message


@dataclass
class Page:
    """What one call returns."""

    after: str
    ghosts: list[str]
    stranded: list[str]
    unindexed: list[str]
    orphaned: list[str]
    leaked: list[str]
    unreadable: list[str]

    @property
    def faults(self) -> dict[str, list[str]]:
        kinds = ("ghosts", "stranded", "unindexed", "orphaned", "leaked", "unreadable")
        return {kind: found for kind in kinds if (found := getattr(self, kind))}


async def examine(desk: Desk, after: str = "", limit: int = 100, priority: int = 0) -> Page:
    packet = desk.encoder.packet(
        script("examine"), 0, [BOB, priority, after, limit], keys=[desk.keys.box(BOB, priority)]
    )
    following, *found = await desk.store.pipeline.reply(packet)
    return Page(following.decode(), *([name.decode() for name in names] for names in found))


async def test_a_mailbox_that_is_not_there_has_no_faults(desk: Desk) -> None:
    assert await examine(desk) == Page("", [], [], [], [], [], [])


@pytest.mark.parametrize("priority", [0, 3])
async def test_one_in_use_has_none(desk: Desk, priority: int) -> None:
    bob = await desk.join()
    sent = await desk.send(*(a_message(f"m-{n}", priority=priority) for n in range(4)))
    await desk.take(bob, room=3)
    await desk.release(bob, sent[0].entry)
    await desk.nack(bob, sent[1].entry, delay_s=60)

    assert (await examine(desk, priority=priority)).faults == {}


async def test_a_pending_entry_without_a_message_is_a_ghost(desk: Desk) -> None:
    bob = await desk.join()
    sent = await desk.send_one(a_message())
    await desk.take(bob)
    desk.redis.xdel(desk.keys.box(BOB), sent.entry)

    assert (await examine(desk)).faults == {"ghosts": [sent.entry]}


async def test_a_message_that_the_group_has_passed_without_an_owner_is_stranded(desk: Desk) -> None:
    bob = await desk.join()
    sent = await desk.send_one(a_message())
    await desk.take(bob)
    desk.redis.xack(desk.keys.box(BOB), "agent", sent.entry)

    assert (await examine(desk)).faults == {"stranded": [sent.entry]}


async def test_a_message_that_the_index_does_not_know_or_has_elsewhere_is_unindexed(desk: Desk) -> None:
    one, other, _ = await desk.send(*(a_message(f"m-{n}") for n in range(3)))
    ids = desk.keys.ids(0)
    desk.redis.hdel(ids, "acme\tbob\talice\tm-0")
    desk.redis.hset(ids, "acme\tbob\talice\tm-1", "1-1")

    assert (await examine(desk)).faults == {"unindexed": [one.entry, other.entry]}


async def test_a_hold_without_a_session_or_a_time_is_orphaned(desk: Desk) -> None:
    bob = await desk.join()
    timed, untimed = await desk.send(a_message("m-1", ack_timeout_s=5), a_message("m-2"))
    await desk.take(bob)
    desk.redis.hdel(desk.keys.presence(0), BOB)

    assert (await examine(desk)).faults == {"orphaned": [untimed.entry]}
    assert timed.entry in desk.holders()


async def test_a_consumer_of_nobody_that_holds_nothing_is_leaked_and_told_once(desk: Desk) -> None:
    bob = await desk.join()
    sent = await desk.send_one(a_message())
    await desk.take(bob)
    await desk.release(bob, sent.entry)
    desk.redis.xgroup_createconsumer(desk.keys.box(BOB), "agent", "gone.1")

    first, next_page = await examine(desk), await examine(desk, after="1-0")

    assert first.faults == {"leaked": ["gone.1"]}
    assert next_page.faults == {}


async def test_pages_go_on_where_the_last_ended(desk: Desk) -> None:
    bob = await desk.join()
    sent = [answer.entry for answer in await desk.send(*(a_message(f"m-{n}") for n in range(5)))]
    await desk.take(bob)
    desk.redis.xack(desk.keys.box(BOB), "agent", *sent)
    pages = [await examine(desk, limit=2)]
    while pages[-1].after:
        pages.append(await examine(desk, after=pages[-1].after, limit=2))

    assert [page.stranded for page in pages] == [sent[:2], sent[2:4], sent[4:]]


async def test_an_entry_that_is_no_message_is_unreadable(desk: Desk) -> None:
    sent = await desk.send_one(a_message("m-1"))
    odd = str(desk.redis.xadd(desk.keys.box(BOB, 0), {"head": "of something else"}))

    assert (await examine(desk)).faults == {"unreadable": [odd]}
    assert sent.entry != odd
