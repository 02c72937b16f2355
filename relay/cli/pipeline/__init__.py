"""`relay spark`: starts the data pipeline."""
