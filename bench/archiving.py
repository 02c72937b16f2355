"""The archive job for bench.pipeline: stays warm, archives what it is told line by line, and says how long it took."""

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.stand import resident_bytes
from spark.jobs import archive
from spark.jobs.archive import Archive
from spark.session import spark_session


class Watch:
    """Notes the memory of both processes of the driver after each batch."""

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._pids = {"python_mb": os.getpid(), "jvm_mb": int(jvm.ProcessHandle.current().pid())}
        self._write = Archive.write
        self.seen: dict[str, list[int]] = {}

    def write(self, there: Archive, ranges: DataFrame, batch: int) -> None:
        self._write(there, ranges, batch)
        for name, pid in self._pids.items():
            self.seen.setdefault(name, []).append(resident_bytes(pid) // 2**20)


def main(url: str) -> None:
    spark = spark_session("bench")
    watch = Watch(spark)
    Archive.write = lambda *arguments: watch.write(*arguments)  # type: ignore[method-assign]
    for line in sys.stdin:
        prefix, folder, batch_rows = line.rstrip("\n").split("\t")
        watch.seen = {}
        began = time.perf_counter()
        options = {"url": url, "prefix": prefix, "max_rows_per_batch": batch_rows}
        done = archive.run(spark, options, Path(folder), once=True)
        seconds = time.perf_counter() - began
        print(json.dumps({"events": done.events, "seconds": seconds, **watch.seen}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
