"""follow: an instance wants to be told when a task gets an answer."""

from tests.builders import ALICE, Desk


async def test_whoever_follows_stands_in_the_task(desk: Desk) -> None:
    task = desk.keys.task(ALICE, "t-1")
    desk.redis.hset(task, "to", "acme/bob")

    assert await desk.run("follow", task, "watch:an-instance") == b"following"
    assert desk.redis.hgetall(task) == {"to": "acme/bob", "watch:an-instance": "1"}


async def test_of_a_task_that_is_gone_nothing_is_left_behind(desk: Desk) -> None:
    task = desk.keys.task(ALICE, "t-1")

    assert await desk.run("follow", task, "watch:an-instance") == b"gone"
    assert not desk.redis.exists(task)
