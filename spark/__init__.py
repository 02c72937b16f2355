"""The data pipeline: reads the relay's streams with Spark. It imports neither relay nor workers."""
