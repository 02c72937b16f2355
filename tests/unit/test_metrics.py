"""What Prometheus is told."""

from prometheus_client.parser import text_string_to_metric_families

from relay.metrics import Histogram, Metrics


def samples(metrics: Metrics) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.text().decode())
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
    metrics.depth[3] = (12, 60)

    found = samples(metrics)

    assert found["relay_accepted_total"] == 3
    assert found["relay_refused_total,code=queue_full"] == 2
    assert found["relay_settled_total,how=ack"] == 1
    assert found["relay_wakes_total,outcome=lost"] == 1
    assert found["relay_sessions"] == 7
    assert found["relay_queue_depth,shard=3"] == 12
    assert found["relay_queue_oldest_seconds,shard=3"] == 60


def test_a_histogram_counts_up_to_and_with_each_bound() -> None:
    histogram = Histogram((1, 10))
    for value in (0.5, 1, 5, 10, 11):
        histogram.observe(value)

    family = histogram.family("x", "doc")
    counts = {sample.labels.get("le", sample.name): sample.value for sample in family.samples}

    assert (counts["1"], counts["10"], counts["+Inf"]) == (2, 4, 5)
    assert (counts["x_count"], counts["x_sum"]) == (5, 27.5)


def test_every_series_is_there_from_the_start() -> None:
    found = samples(Metrics())

    assert found["relay_accepted_total"] == 0
    assert found["relay_exchange_seconds_count"] == 0
