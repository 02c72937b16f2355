"""Every table, in the order in which they are made: read from the store, archived, reported."""

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

EVENT_SCHEMA_VERSION = "e1"  # the name of an event's field in the stream

# A row is one transition of one message, as the relay's scripts wrote it; the last 18 columns are the tab-separated
# ones of the event, in their order. `stream_ms`-`stream_n` is the entry of the shard's log, `place` the event's place
# in it. Where entries were trimmed before they were read, a row of kind `lost` says in `reason` how many are missing.
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
        StructField("accepted_at", LongType()),
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
        StructField("body", StringType(), False),  # the fields of the delivery as JSON, without its braces
    ]
)
