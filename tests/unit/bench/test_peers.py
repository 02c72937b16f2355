"""What the comparison with other brokers is made of: their packets, its counting, its table and its chart."""

import io
import struct
from collections.abc import Sequence
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from rich.console import Console

from bench.peers import amqp, mosquitto, nats, this
from bench.peers.chart import PANELS, chart
from bench.peers.lists import command
from bench.peers.peer import Count, Deliver, Letters
from bench.peers.report import SECTIONS, table
from bench.peers.rounds import PEERS, chosen, medians
from bench.peers.traffic import SENDERS, Traffic, number_of, payload, sender_of


def in_pieces(data: bytes) -> list[bytes]:
    """Every way in which the bytes can be cut off."""
    return [data[:size] for size in range(len(data))]


# -- MQTT


def test_an_mqtt_packet_says_its_length_in_digits_of_seven_bits():
    assert mosquitto.packet(0x32, b"x" * 127)[:2] == b"\x32\x7f"
    assert mosquitto.packet(0x32, b"x" * 321)[:3] == b"\x32\xc1\x02"


def test_an_mqtt_message_comes_out_as_it_went_in():
    packet = mosquitto.publish(b"to/7", 513, b"hello" * 60)

    packets, used = mosquitto.take_packets(packet)

    assert used == len(packet)
    assert [kind for kind, _ in packets] == [mosquitto.PUBLISH]
    assert mosquitto.published(packets[0][1]) == (b"\x02\x01", b"hello" * 60)


def test_half_an_mqtt_packet_waits_for_the_rest():
    whole = mosquitto.puback(b"\x00\x01")
    second = mosquitto.publish(b"to/7", 1, b"x" * 200)

    for piece in in_pieces(second):
        assert mosquitto.take_packets(whole + piece) == ([(mosquitto.PUBACK, b"\x00\x01")], len(whole))


def test_a_session_of_mqtt_outlives_its_connection():
    body = mosquitto.connect("to-1")[2:]

    flags = body[7]

    assert flags == 0, "bit 1 would be a clean session"


# -- NATS


def test_messages_of_nats_are_told_from_other_lines():
    data = b"INFO {}\r\nMSG to.1 1 $JS.ACK.x 5\r\nhe\r\no\r\nPING\r\nMSG from.1 1 2\r\nok\r\n"

    messages, lines, used = nats.take_messages(data)

    assert messages == [(b"$JS.ACK.x", b"he\r\no"), (b"", b"ok")]
    assert lines == [b"INFO {}", b"PING"]
    assert used == len(data)


def test_half_a_message_of_nats_waits_for_the_rest():
    data = b"MSG to.1 1 r 5\r\nhello\r\n"

    for piece in in_pieces(data):
        assert nats.take_messages(b"PING\r\n" + piece) == ([], [b"PING"], 6)


def test_a_consumer_of_nats_listens_where_its_mail_is_sent():
    name, body = nats.consumer(13)

    assert name == "CONSUMER.DURABLE.CREATE.BOX-5.to-13"
    assert body["config"]["filter_subject"].encode() == nats.subject(13) == b"box.5.13"
    assert nats.stream(5)[1]["subjects"] == ["box.5.*"]


# -- AMQP


def test_an_amqp_message_is_a_method_a_header_and_a_body():
    data = amqp.publish("to-7", b"hello")

    frames, used = amqp.take_frames(data)

    assert used == len(data)
    assert [kind for kind, _ in frames] == [amqp.METHOD, amqp.HEADER, amqp.BODY]
    assert frames[1][1] == struct.pack(">HHQHB", 60, 0, 5, 0x1000, 2)
    assert frames[2][1] == b"hello"


def test_half_an_amqp_frame_waits_for_the_rest():
    whole, second = amqp.open_channel(), amqp.declare("to-7")

    for piece in in_pieces(second):
        frames, used = amqp.take_frames(whole + piece)
        assert (len(frames), used) == (1, len(whole))


def test_the_tag_of_an_amqp_delivery_comes_after_the_name_of_its_consumer():
    call = amqp.method(amqp.DELIVER, amqp.short("amq.ctag-x") + struct.pack(">QB", 77, 0) + amqp.short("") * 2)

    [(_, body)], _ = amqp.take_frames(call)
    method, arguments = amqp.method_of(body)

    assert (method, amqp.delivery_tag(arguments)) == (amqp.DELIVER, 77)


def test_confirms_of_amqp_count_each_message_once_in_any_order():
    confirms = amqp.Confirms()

    def add(tag: int, is_multiple: bool) -> int:
        return confirms.add(struct.pack(">QB", tag, is_multiple))

    assert add(2, False) == 1
    assert add(3, True) == 2, "1 and 3, for 2 was known"
    assert add(4, False) == 1
    assert add(7, True) == 3
    assert add(7, True) == 0


# -- this relay and lists


def test_a_send_frame_has_payloads_of_the_size_that_peers_get():
    text = this.frame([(7, payload(3, 42))])

    assert text.startswith(b'{"op":"send","messages":[{"id":"000030000000042","to":"bench/to-7","payload":"')
    assert text.count(b"x") + len("000030000000042") + len('""') == 256


def test_a_message_that_the_relay_knew_already_is_confirmed_too():
    confirmed: list[int] = []
    speaker = this.Speaker(confirmed.append, lambda _: None)

    speaker.received(cast(Any, None), {"op": "accepted", "ids": ["a", "b"], "duplicate_ids": ["c"]})

    assert confirmed == [3]


def test_a_command_of_redis_counts_its_words():
    assert command(b"LREM", b"work:1", b"1", b"x") == b"*4\r\n$4\r\nLREM\r\n$6\r\nwork:1\r\n$1\r\n1\r\n$1\r\nx\r\n"


# -- the work


class Echo:
    """A peer that confirms and delivers at once."""

    tells_the_end = False

    def __init__(self) -> None:
        self.boxes: dict[int, Deliver] = {}
        self.sent: list[tuple[int, int]] = []  # sender, recipient

    def cpu_s(self) -> float:
        return 0.0

    def resident_bytes(self) -> int:
        return 0

    async def declare(self, numbers: range) -> None: ...

    async def sender(self, number: int, confirmed: Count, ended: Count) -> "Mouth":  # noqa: ARG002 - as of a site
        return Mouth(self, confirmed)

    async def recipient(self, number: int, delivered: Deliver) -> "Mouth":
        self.boxes[number] = delivered
        return Mouth(self, lambda _: None)


class Mouth:
    def __init__(self, site: Echo, confirmed: Count) -> None:
        self._site = site
        self._confirmed = confirmed

    def publish(self, letters: Letters) -> None:
        for to, text in letters:
            self._site.sent.append((sender_of(text), to))
            self._site.boxes[to]([text])
        self._confirmed(len(letters))

    def close(self) -> None: ...


def test_a_payload_says_who_sent_it_and_which_it_is():
    text = payload(17, 123_456)

    assert (len(text), sender_of(text), number_of(text)) == (256, 17, 123_456)
    assert (sender_of(text.decode()), number_of(text.decode())) == (17, 123_456)


async def test_paired_senders_keep_to_recipients_of_their_own():
    site = Echo()
    traffic = Traffic(site, 300)
    await traffic.open()

    _, delivered_ms = await traffic.paced(20_000, 0.05)

    assert {to % SENDERS for sender, to in site.sent if sender == site.sent[0][0]} == {site.sent[0][0]}
    assert len(delivered_ms) == len(site.sent)


# -- the table and the chart


def figures(value: float) -> dict[str, float]:
    return {name: value for rows in SECTIONS for _, name, _ in rows}


def drawn(found: dict[str, dict[str, float]]) -> Sequence[str]:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table(found))
    return console.export_text().splitlines()


def test_the_table_has_a_column_for_each_peer_and_says_what_is_not_known():
    lines = drawn({"relay": figures(2_048.0), "jetstream": {}})

    memory = next(line for line in lines if "empty mailbox" in line)
    assert [cell.strip() for cell in memory.split("│")[2:4]] == ["2.0", "–"]
    assert any("accepted, ack, receipt" in line for line in lines)


def test_the_chart_has_a_bar_for_each_peer_in_each_panel_and_our_own_stands_out():
    svg = ElementTree.fromstring(chart({"relay": figures(10.0), "jetstream": figures(20.0), "none": {}}, own="relay"))

    bars = [node for node in svg.iter() if node.tag.endswith("rect")]
    assert len(bars) == 3 * len(PANELS)
    assert [bar.get("class") for bar in bars[:3]] == ["own", "bar", "bar"]
    assert float(bars[0].get("width", 0)) * 2 == pytest.approx(float(bars[1].get("width", 0)))
    assert bars[2].get("width") == "0.0"


def test_every_panel_of_the_chart_is_a_row_of_the_table():
    assert {panel.figure for panel in PANELS} <= set(figures(0))


def test_a_figure_that_a_round_lacks_is_the_median_of_the_others():
    assert medians([{"a": 1.0, "b": 9.0}, {"a": 5.0}, {"a": 3.0, "b": 7.0}]) == {"a": 3.0, "b": 8.0}


def test_peers_are_chosen_by_name():
    assert [peer.name for peer in chosen("mosquitto,relay")] == ["mosquitto", "relay"]
    assert chosen("") == list(PEERS)
    with pytest.raises(ValueError, match="no such peer: kafka; there are relay, mosquitto"):
        chosen("relay,kafka")
