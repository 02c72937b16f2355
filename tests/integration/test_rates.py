"""What an operation costs: thousandths of a message, from one bucket per client, in the order in which it is done."""

from relay.core.session.spending import Spending
from relay.store.agents.rates import ACK, MESSAGE
from tests.agents import until
from tests.builders import ALICE, Desk
from tests.conftest import MakeDesk
from workers import idle


async def spend(desk: Desk, count: int, price: int) -> int | None:
    answers: list[int | None] = []
    desk.store.rates.spend(ALICE, count, lambda granted, _: answers.append(granted), price)
    await desk.store.pipeline.finish()
    (granted,) = answers
    return granted


async def test_ten_acks_cost_what_one_message_costs(make_desk: MakeDesk) -> None:
    desk = await make_desk(rate_per_s=1, rate_burst=2)

    assert await spend(desk, 10, ACK) == 10
    assert await spend(desk, 2, MESSAGE) == 1
    assert await spend(desk, 1, ACK) == 0
    desk.clock.advance(0.1)
    assert await spend(desk, 2, ACK) == 1


async def test_hundreds_of_acks_need_no_word_of_the_store(make_desk: MakeDesk) -> None:
    desk = await make_desk()
    await spend(desk, 1, ACK)
    at_once: list[int | None] = []

    for _ in range(400):
        desk.store.rates.spend(ALICE, 1, lambda granted, _: at_once.append(granted), ACK)

    assert at_once == [1] * 400


async def test_what_costs_more_than_the_burst_can_be_done_all_the_same(make_desk: MakeDesk) -> None:
    desk = await make_desk(rate_per_s=1, rate_burst=2)

    assert await spend(desk, 1, 100 * MESSAGE) == 1
    assert await spend(desk, 1, ACK) == 0


async def test_what_came_first_is_done_first_whatever_it_costs(make_desk: MakeDesk) -> None:
    desk = await make_desk(rate_per_s=100, rate_burst=100)
    spending, done = Spending(ALICE, desk.store.rates), list[str]()

    spending.spend(50, lambda *_: done.append("a frame of messages"))
    spending.spend(1, lambda *_: done.append("an ack"), ACK)
    spending.spend(1, lambda *_: spending.spend(1, lambda *_: done.append("what it led to"), ACK), ACK)
    spending.spend(1, lambda *_: done.append("another ack"), ACK)
    await until(lambda: len(done) == 4)

    assert done == ["a frame of messages", "an ack", "another ack", "what it led to"]


async def test_the_bucket_of_a_sender_that_rests_is_forgotten(make_desk: MakeDesk) -> None:
    desk = await make_desk()
    await spend(desk, 1, MESSAGE)
    desk.clock.advance(idle.RATES_IDLE_MS / 1_000)

    kept, reaper = [], idle.IdleReaper()
    for _ in range(2):
        await reaper.reap_shard(desk.store, 0, desk.clock.now_ms())
        kept.append(desk.redis.hexists(desk.keys.rates(0), ALICE))
        desk.clock.advance(1)

    assert kept == [True, False]
