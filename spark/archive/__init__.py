"""The archive: events in Parquet by day, written exactly once."""
