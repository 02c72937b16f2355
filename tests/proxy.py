"""The proxy that tests cut is that of the benchmarks."""

from bench.proxy import CutProxy as CutProxy
