"""The data pipeline: what happened, read from the relay's streams with Spark. Imports neither relay nor workers."""
