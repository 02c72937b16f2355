"""Worker leases: which process does a duty, when it last did, and which duties fail."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from relay.store import readable
from relay.store.redis.encoder import ScriptEncoder, keyed_packet
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script

LATE_AFTER_ROUNDS = 3  # as many as it takes until another process does the duty
GRACE_S = 10.0  # for a round that itself takes long
FAILING_FOR_MS = 60_000  # a worker that has not complained for this long is gone or well again


@dataclass(frozen=True, slots=True)
class Round:
    """The last round of a worker over all shards."""

    at_ms: int  # when it ended
    process: str
    done: int  # how much there was to do
    took_ms: int
    every_s: float  # how long it is to the next one

    def is_late(self, now_ms: int) -> bool:
        return now_ms - self.at_ms > late_after_s(self.every_s) * 1_000


def late_after_s(every_s: float) -> float:
    return LATE_AFTER_ROUNDS * every_s + GRACE_S


class WorkerLeases:
    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder) -> None:
        self._pipeline = pipeline
        self._clock = encoder.clock
        self._keys = encoder.keys

    async def lease(self, worker: str, holder: str, lease_ms: int) -> bool:
        """Whether this holder should do the work now. It only saves work: two holders at once do no harm."""
        packet = keyed_packet(script("lease"), self._keys.lease(worker), holder, lease_ms)
        return bool(await self._pipeline.reply(packet) == b"leased")

    async def leased(self, workers: Iterable[str]) -> set[str]:
        """Of these, those that some process does now."""
        return {worker for worker in workers if await self._pipeline.command("EXISTS", self._keys.lease(worker))}

    async def report(self, worker: str, error: str) -> None:
        """Says how a worker fares: an empty error when it works."""
        if error:
            await self._pipeline.command("HSET", self._keys.workers, worker, f"{self._clock.now_ms()}\t{error}")
        else:
            await self._pipeline.command("HDEL", self._keys.workers, worker)

    async def note_round(self, worker: str, last: Round) -> None:
        line = f"{last.at_ms}\t{last.process}\t{last.done}\t{last.took_ms}\t{last.every_s}"
        await self._pipeline.command("HSET", self._keys.rounds, worker, line)

    async def rounds(self) -> dict[str, Round]:
        """The last round of every worker that ever had one; what another version noted is left out."""
        key = self._keys.rounds
        own = [one for one in readable.pairs(await self._pipeline.command("HGETALL", key)) if _is_round(one[1])]
        return dict(readable.readable(key, own, _read_round))

    async def absent_s(self, reached_s: float) -> float:
        """For how long no worker at all has gone round, if that is too long, else 0.

        The store was within reach for `reached_s`; what was before does not count.
        """
        rounds = (await self.rounds()).values()
        last_ms = max((last.at_ms for last in rounds), default=0)
        absent_s = min(reached_s, (self._clock.now_ms() - last_ms) / 1_000)
        return absent_s if absent_s > late_after_s(min((last.every_s for last in rounds), default=0.0)) else 0.0

    async def failing(self) -> dict[str, str]:
        """The workers that failed lately, and why."""
        key = self._keys.workers
        since_ms = self._clock.now_ms() - FAILING_FOR_MS
        reports = readable.readable(key, readable.pairs(await self._pipeline.command("HGETALL", key)), _read_report)
        return {worker: error for worker, at_ms, error in reports if at_ms >= since_ms}


def _is_round(line: bytes) -> bool:
    return line.count(b"\t") == len(fields(Round)) - 1


def _read_round(record: tuple[bytes, bytes]) -> tuple[str, Round]:
    at_ms, process, done, took_ms, every_s = record[1].decode().split("\t")
    return record[0].decode(), Round(int(at_ms), process, int(done), int(took_ms), float(every_s))


def _read_report(record: tuple[bytes, bytes]) -> tuple[str, int, str]:
    at_ms, _, error = record[1].partition(b"\t")
    return record[0].decode(), int(at_ms), readable.shown(error)
