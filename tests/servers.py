"""The servers that tests start are those of the benchmarks."""

from bench.real_cluster import RealCluster as RealCluster
from bench.sentinel_set import RealSentinel as RealSentinel
from bench.sentinel_set import SentinelSet as SentinelSet
from bench.servers import HOST as HOST
from bench.servers import RealServer as RealServer
from bench.servers import free_port as free_port
