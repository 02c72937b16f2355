"""What Prometheus is told."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from relay import errors
from relay.protocol.close_codes import CLOSING
from relay.telemetry import metrics
from relay.telemetry.metrics import Histogram, Metrics


def samples(text: bytes) -> dict[str, float]:
    families = text_string_to_metric_families(text.decode())
    return {
        sample.name + "".join(f",{name}={value}" for name, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_counts_come_out_under_the_words_of_the_protocol() -> None:
    metrics = Metrics()
    metrics.accepted += 3
    metrics.refused["queue_full"] += 2
    metrics.settled["ack"] += 1
    metrics.wakes["lost"] += 1
    metrics.sessions = 7

    found = samples(metrics.text())

    assert found["relay_accepted_total"] == 3
    assert found["relay_refused_total,code=queue_full"] == 2
    assert found["relay_settled_total,how=ack"] == 1
    assert found["relay_wakes_total,outcome=lost"] == 1
    assert found["relay_sessions"] == 7


def test_a_histogram_counts_up_to_and_with_each_bound() -> None:
    histogram = Histogram((1, 10))
    histogram.observe(0.5)
    histogram.observe_all([1, 5, 10, 11])

    family = histogram.family("x", "doc")
    counts = {sample.labels.get("le", sample.name): sample.value for sample in family.samples}

    assert (counts["1"], counts["10"], counts["+Inf"]) == (2, 4, 5)
    assert (counts["x_count"], counts["x_sum"]) == (5, 27.5)


@pytest.mark.parametrize(
    "series",
    [
        "relay_accepted_total",
        "relay_exchange_seconds_count",
        "relay_http_errors_total",
        *(f"relay_refused_total,code={code}" for code in metrics.REFUSALS),
        *(f"relay_settled_total,how={how}" for how in ("ack", "nack", "release", "touch", "reply")),
        *(f"relay_wakes_total,outcome={outcome}" for outcome in ("sent", "unheard", "late", "lost")),
        *(
            f"relay_connections_refused_total,why={why}"
            for why in ("too_many", "at_once", "agent", "address", "origin")
        ),
        *(f"relay_auth_failures_total,door={door}" for door in ("websocket", "http")),
        *(f"relay_closed_total,code={word}" for word in CLOSING),
    ],
)
def test_every_series_is_there_from_the_start(series: str) -> None:
    assert samples(Metrics().text())[series] == 0


def test_every_refusal_is_an_error_of_the_protocol() -> None:
    codes = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}

    assert set(metrics.REFUSALS) <= codes


def test_a_process_says_what_it_is_and_what_it_uses() -> None:
    found = samples(Metrics("i-1").text())

    (build,) = (name for name in found if name.startswith("relay_build_info"))
    assert "instance_id=i-1" in build
    assert "version=0." in build
    assert found["process_resident_memory_bytes"] > 0
    assert found["process_open_fds"] > 0


def test_requests_are_counted_by_route_and_timed_unless_they_stream() -> None:
    metrics = Metrics()
    metrics.answered("GET", "/v1/stats", 200, 0.01)
    metrics.answered("GET", "/v1/stats", 503, 0.2)
    metrics.answered("GET", "/v1/events", 200, None)

    found = samples(metrics.text())

    assert found["relay_http_requests_total,method=GET,route=/v1/stats,status=200"] == 1
    assert found["relay_http_requests_total,method=GET,route=/v1/events,status=200"] == 1
    assert found["relay_http_request_seconds_count,route=/v1/stats"] == 2
    assert "relay_http_request_seconds_count,route=/v1/events" not in found
    assert found["relay_http_errors_total"] == 1
