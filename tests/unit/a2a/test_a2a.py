"""What A2A says of a task, from what an agent replied; both generations, as the official types read them."""

from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import types as old_types
from a2a.types import AgentCard, StreamResponse, Task
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from relay.a2a import forms, v03
from relay.a2a.card import merged
from relay.a2a.errors import Unsupported
from relay.a2a.following import FollowedTask, news
from relay.a2a.sending import _may_go_on
from relay.a2a.task_story import Story
from relay.store.replies.tasks import Task as Kept

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, width=32) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
STATES = st.sampled_from([*forms.STATES, *forms.OLD_STATES.values(), "done", "", None, 3])
PARTS = st.lists(
    st.fixed_dictionaries({"text": st.text()}, optional={"metadata": ANY_JSON, "mediaType": ANY_JSON})
    | st.fixed_dictionaries({"data": ANY_JSON})
    | st.fixed_dictionaries({"raw": st.sampled_from(["aGk=", "not base64!", 3])}, optional={"filename": ANY_JSON})
    | st.fixed_dictionaries({"kind": st.sampled_from(["text", "data", "file"])}, optional={"text": ANY_JSON})
    | ANY_JSON,
    max_size=3,
)
MESSAGES = st.fixed_dictionaries(
    {"messageId": st.text(max_size=3), "parts": PARTS},
    optional={"role": st.sampled_from(["agent", "ROLE_USER", "judge", 7]), "metadata": ANY_JSON, "taskId": ANY_JSON},
)
STATUSES = st.fixed_dictionaries({"state": STATES}, optional={"message": MESSAGES, "timestamp": ANY_JSON})
ARTIFACTS = st.fixed_dictionaries({"artifactId": st.sampled_from(["a", "b", "", 1]), "parts": PARTS})
REPLIES = (
    ANY_JSON
    | MESSAGES
    | st.fixed_dictionaries({"status": STATUSES}, optional={"id": ANY_JSON, "artifacts": st.lists(ARTIFACTS)})
    | st.fixed_dictionaries({"artifact": ARTIFACTS}, optional={"append": st.booleans(), "lastChunk": ANY_JSON})
    | st.fixed_dictionaries({"statusUpdate": st.fixed_dictionaries({"status": STATUSES})})
    | st.fixed_dictionaries({"kind": st.sampled_from(["message", "task", "status-update", "nonsense"])})
)


def a_story(*parts: object, end: object = ...) -> Story:
    story = Story("task-1", "ctx-1")
    for part in parts:
        story.hear(part, is_end=False)
    if end is not ...:
        story.hear(end, is_end=True)
    return story


def a_message(text: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"messageId": "m-1", "role": "ROLE_AGENT", "parts": [{"text": text}], **fields}


# -- whatever an agent replies


@given(st.lists(REPLIES, max_size=4), REPLIES)
def test_whatever_an_agent_replies_the_official_types_can_read_the_task(parts: list[Any], end: Any) -> None:
    story = a_story(*parts, end=end)

    ParseDict(story.task(), Task())
    old_types.Task.model_validate(v03.task(story.task()))
    assert story.has_ended or story.waits_for_caller
    for name, body in story.events:
        ParseDict({name: body}, StreamResponse())
        old_types.SendStreamingMessageSuccessResponse.model_validate({"id": 1, "result": v03.event(name, body)})


@given(MESSAGES)
def test_a_message_comes_through_the_older_generation_as_it_was(value: dict[str, Any]) -> None:
    try:
        message = forms.message(value, role="user")
    except forms.NotA2A:
        return

    assert forms.message(v03.message(message)) == message


CARD_FIELDS = [
    "name",
    "skills",
    "capabilities",
    "signatures",
    "securitySchemes",
    "provider",
    "iconUrl",
    "url",
    "security",
]
SKILLS = st.lists(
    st.fixed_dictionaries({"id": st.text(), "name": st.text(), "description": st.text()}, optional={"tags": ANY_JSON})
)
CARDS = ANY_JSON | st.dictionaries(st.sampled_from(CARD_FIELDS), ANY_JSON | SKILLS | st.just([{"uri": "urn:x"}]))


@given(CARDS)
def test_whatever_an_agent_registers_its_card_can_be_read(own: Any) -> None:
    card = merged(own, "bob", "http://relay/a2a/acme/bob")

    old_types.AgentCard.model_validate(card)
    found = parse_agent_card(card)
    assert [one.url for one in found.supported_interfaces] == ["http://relay/a2a/acme/bob"] * 2


# -- plain replies


@pytest.mark.parametrize(
    ("reply", "part"), [("noon", {"text": "noon"}), ({"n": 1}, {"data": {"n": 1}}), (3, {"data": 3})]
)
def test_a_plain_reply_is_one_artifact_of_a_completed_task(reply: object, part: object) -> None:
    task = a_story(end=reply).task()

    assert task["status"] == {"state": forms.COMPLETED}
    assert task["artifacts"] == [{"artifactId": "reply", "parts": [part]}]


def test_plain_parts_are_chunks_of_one_artifact() -> None:
    story = a_story("a", "b", end="c")

    chunks = [body for name, body in story.events if name == "artifactUpdate"]
    assert [(one.get("append"), one.get("lastChunk")) for one in chunks] == [(None, None), (True, None), (True, True)]
    assert story.task()["artifacts"][0]["parts"] == [{"text": "a"}, {"text": "b"}, {"text": "c"}]


def test_an_end_of_null_adds_nothing() -> None:
    assert "artifacts" not in a_story(end=None).task()
    assert len(a_story("a", end=None).task()["artifacts"][0]["parts"]) == 1


# -- replies in A2A


@pytest.mark.parametrize("state", ["TASK_STATE_FAILED", "failed"])
def test_an_agent_may_say_in_either_generation_how_it_ended(state: str) -> None:
    story = a_story(end={"status": {"state": state, "message": a_message("sorry")}})

    assert story.state == forms.FAILED
    assert story.status["message"]["parts"] == [{"text": "sorry"}]


def test_an_end_that_says_working_is_an_end() -> None:
    assert a_story(end={"status": {"state": "working"}}).state == forms.COMPLETED


def test_what_looks_like_a2a_but_is_not_is_data() -> None:
    reply = {"status": {"state": "all fine"}}

    assert a_story(end=reply).task()["artifacts"][0]["parts"] == [{"data": reply}]


def test_after_an_end_nothing_counts() -> None:
    story = a_story({"status": {"state": "rejected"}}, "more", end="and more")

    assert story.state == forms.REJECTED
    assert "artifacts" not in story.task()


def test_a_whole_task_is_taken_over_but_for_its_ids() -> None:
    whole = {
        "kind": "task",
        "id": "another",
        "contextId": "another",
        "status": {"state": "completed"},
        "artifacts": [{"artifactId": "a", "parts": [{"kind": "file", "file": {"uri": "http://x", "mimeType": "a/b"}}]}],
        "history": [a_message("before", taskId="another")],
    }

    task = a_story(end=whole).task()

    assert (task["id"], task["contextId"]) == ("task-1", "ctx-1")
    assert task["artifacts"] == [{"artifactId": "a", "parts": [{"url": "http://x", "mediaType": "a/b"}]}]
    assert task["history"][0]["taskId"] == "task-1"


def test_history_is_as_long_as_it_is_wanted() -> None:
    story = a_story(a_message("one"), a_message("two"), end=a_message("three"))

    texts = {n: [one["parts"][0]["text"] for one in story.task(n).get("history", [])] for n in (None, 0, 1, 9)}
    assert texts == {None: ["one", "two"], 0: [], 1: ["two"], 9: ["one", "two"]}
    assert story.status["message"]["parts"] == [{"text": "three"}]


# -- what became of the message


@pytest.mark.parametrize(
    ("where", "state"),
    [
        ("queued", forms.SUBMITTED),
        ("delayed", forms.SUBMITTED),
        ("held", forms.WORKING),
        ("acked", forms.COMPLETED),
        ("dead", forms.FAILED),
        ("expired", forms.FAILED),
        ("cancelled", forms.CANCELED),
    ],
)
def test_where_the_message_is_says_how_the_task_is(where: str, state: str) -> None:
    story = a_story()
    story.place(where, at_ms=1_700_000_000_000, has_parts=False)

    assert story.state == state
    assert story.status["timestamp"] == "2023-11-14T22:13:20.000Z"
    ParseDict(story.task(), Task())


def test_a_message_that_goes_back_into_its_mailbox_does_not_take_back_what_was_said() -> None:
    story = a_story("a")
    story.place("queued", at_ms=None, has_parts=True)

    assert story.state == forms.WORKING


@pytest.mark.parametrize(("levels", "is_shallow"), [(200, True), (201, False)])
def test_what_can_be_told_has_so_many_levels(levels: int, is_shallow: bool) -> None:
    value: Any = 1
    for _ in range(levels):
        value = [value]

    assert forms.is_shallow(value) is is_shallow


# -- between two looks


def test_news_are_what_was_not_told_yet() -> None:
    story = a_story("a")
    state = story.state
    story.forget()
    story.hear("b", is_end=False)
    story.hear("c", is_end=True)

    assert [name for name, _ in news(state, story)] == ["artifactUpdate", "artifactUpdate", "statusUpdate"]
    assert story.events[0][1]["append"] is True


def test_a_state_that_was_told_is_not_told_again() -> None:
    held = a_story()
    held.place("held", at_ms=None, has_parts=False)

    assert [name for name, _ in news(held.state, a_story("a"))] == ["artifactUpdate"]
    assert news(held.state, held) == []


def test_a_state_that_the_mailbox_tells_is_news() -> None:
    canceled = a_story()
    canceled.place("cancelled", at_ms=None, has_parts=False)

    assert [body["status"]["state"] for _, body in news(a_story().state, canceled)] == [forms.CANCELED]


# -- the card


def test_the_relay_answers_for_address_capabilities_and_security() -> None:
    own = {
        "name": "Bob",
        "url": "http://bob.example",
        "protocolVersion": "0.2",
        "additionalInterfaces": [{"url": "grpc://bob", "transport": "GRPC"}],
        "capabilities": {"streaming": False, "pushNotifications": True, "extensions": [{"uri": "urn:x"}]},
        "securitySchemes": {"mine": {"type": "apiKey"}},
        "signatures": [{"protected": "x", "signature": "y"}],
        "iconUrl": "http://bob.example/icon.png",
    }

    card = parse_agent_card(merged(own, "bob", "http://relay/a2a/acme/bob"))

    assert isinstance(card, AgentCard)
    assert {one.url for one in card.supported_interfaces} == {"http://relay/a2a/acme/bob"}
    assert (card.capabilities.streaming, card.capabilities.push_notifications) == (True, False)
    assert [one.uri for one in card.capabilities.extensions] == ["urn:x"]
    assert list(card.security_schemes) == ["bearer"]
    assert not card.signatures
    assert (card.name, card.icon_url) == ("Bob", "http://bob.example/icon.png")


def test_a_task_with_many_bytes_of_answers_is_not_gone_on_with() -> None:
    turns = [Kept(f"t-{n}", "acme/alice", "acme/bob", [], None, parts_bytes=10, reply_bytes=2) for n in range(2)]
    found = FollowedTask(Story("t-0", "context"), turns)

    assert _may_go_on(found, "t-2", {}, max_bytes=24) == "context"
    with pytest.raises(Unsupported, match="begin a new one"):
        _may_go_on(found, "t-2", {}, max_bytes=23)
