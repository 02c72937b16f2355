"""Every table, in the order in which they are made: read from the store, archived, reported."""

from pyspark.sql.types import (
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

EVENT_SCHEMA_VERSION = "e1"  # of the columns below; the field of the logs has the same name

UNDONE = "undone"  # the kind of a row that says that a log went back in time; the kinds of what is undone begin with it

# A row is one transition of one message, as the relay's scripts wrote it; the last 17 columns are those that
# relay/store/record/events.py reads from a log, in their order. `stream_ms`-`stream_n` is the entry of the shard's
# log, `place` the event's place in it. Where entries were trimmed before they were read, a row of kind `lost` says in
# `reason` how many are missing. Where a log went back in time, a row of kind `undone` says to which `entry`, and from
# which (`reason`).
EVENTS = StructType(
    [
        StructField("shard", IntegerType(), False),
        StructField("stream_ms", LongType(), False),
        StructField("stream_n", LongType(), False),
        StructField("place", IntegerType(), False),
        StructField("kind", StringType(), False),
        StructField("at_ms", LongType(), False),
        StructField("entry", StringType()),
        StructField("seq", LongType()),
        StructField("attempt", IntegerType()),
        StructField("who", StringType()),  # the session or worker
        StructField("instance", StringType()),
        StructField("reason", StringType()),
        StructField("taken_at", LongType()),
        StructField("tenant", StringType()),
        StructField("to", StringType()),
        StructField("from", StringType()),
        StructField("id", StringType()),
        StructField("type", StringType()),
        StructField("thread", StringType()),
        StructField("priority", IntegerType()),
        StructField("bytes", LongType()),
    ]
)

# A row is one message as it lies in the store now: in a mailbox, or in a dead-letter box.
MAILBOXES = StructType(
    [
        StructField("shard", IntegerType(), False),
        StructField("box", StringType(), False),  # "mailbox" or "dead"
        StructField("tenant", StringType(), False),
        StructField("to", StringType(), False),
        StructField("from", StringType(), False),
        StructField("id", StringType(), False),
        StructField("entry", StringType(), False),  # the handle; of a dead letter, the one it had in the mailbox
        StructField("state", StringType(), False),  # waiting, held, ready, parked or dead
        StructField("owner", StringType()),  # the session that holds it
        StructField("attempt", IntegerType(), False),
        StructField("type", StringType()),
        StructField("thread", StringType()),
        StructField("priority", IntegerType(), False),
        StructField("bytes", LongType(), False),
        StructField("seq", LongType(), False),
        StructField("accepted_at", LongType(), False),
        StructField("expires_at", LongType(), False),
        StructField("not_before", LongType(), False),
        StructField("max_attempts", IntegerType(), False),
        StructField("ack_timeout_ms", LongType(), False),
        StructField("receipt", IntegerType(), False),
        StructField("request", IntegerType(), False),
        StructField("died_at", LongType()),  # the rest: only of dead letters
        StructField("reason", StringType()),
        StructField("history", StringType()),
        StructField("body", StringType(), False),  # the payload, then as JSON the fields that few messages have
    ]
)

_AGENT = [StructField("tenant", StringType()), StructField("agent", StringType())]


def _counts(*names: str) -> list[StructField]:
    return [StructField(name, LongType()) for name in names]


def _times(*names: str) -> list[StructField]:
    return [StructField(name, TimestampType()) for name in names]


# A row is one hour of one type of messages to one agent.
HOURS = StructType(
    [
        *_AGENT,
        StructField("type", StringType()),
        *_times("hour"),
        *_counts("accepted", "delivered", "expired", "dead", "cancelled", "refused", "duplicate"),
        *_counts("taken", "redelivered"),
        StructField("bytes", LongType()),  # of what was accepted
    ]
)

# Four tables have these columns behind what a row of them is: milliseconds from accept to first delivery (waited),
# from the last delivery to the ack (handled) and from accept to ack (whole).
LATENCIES = [
    StructField("delivered", LongType()),
    *_counts(*(f"waited_{quantile}_ms" for quantile in ("p50", "p90", "p99", "max"))),
    *_counts(*(f"handled_{quantile}_ms" for quantile in ("p50", "p90", "p99", "max"))),
    *_counts(*(f"whole_{quantile}_ms" for quantile in ("p50", "p90", "p99", "max"))),
]
LATENCY = StructType([*_AGENT, StructField("type", StringType()), *_times("hour"), *LATENCIES])
LATENCY_OF_AGENTS = StructType([*_AGENT, *LATENCIES])
LATENCY_OF_HOURS = StructType([*_times("hour"), *LATENCIES])

# A row is one agent at the end of one hour at which something waited for it.
DEPTH = StructType([*_AGENT, *_times("hour"), *_counts("depth", "oldest_ms")])

# A row is one session, or one consumer that pulls.
SESSIONS = StructType(
    [
        *_AGENT,
        StructField("session", StringType()),
        *_times("first_seen", "last_seen", "joined", "left"),
        StructField("was_replaced", BooleanType()),
        *_counts("taken", "acked", "nacked", "released", "overdue", "handled_p50_ms", "handled_p99_ms"),
    ]
)

# A row is one sender and one recipient.
PAIRS = StructType(
    [
        *(StructField(name, StringType()) for name in ("tenant", "from", "to")),
        *_counts("accepted", "bytes", "delivered", "expired", "dead"),
    ]
)

# A row is one hour of one agent that an operator should look at.
ANOMALIES = StructType(
    [
        StructField("kind", StringType()),
        *_AGENT,
        *_times("hour"),
        StructField("value", DoubleType()),
        StructField("bound", DoubleType()),
        StructField("detail", StringType()),
    ]
)

# A row is one unbroken run of hours in which the same was wrong with the same agent.
EPISODES = StructType(
    [
        StructField("kind", StringType()),
        *_AGENT,
        *_times("first_hour", "last_hour"),
        *_counts("hours"),
        StructField("worst", StringType()),
    ]
)

# A row is one thing that keeps the books from balancing.
EXCEPTIONS = StructType(
    [
        StructField("kind", StringType()),
        *(StructField(name, StringType()) for name in ("tenant", "to", "from", "id")),
        StructField("evidence", StringType()),
        StructField("accepted_at", LongType()),  # what puts it into a period; null is in every period
    ]
)
