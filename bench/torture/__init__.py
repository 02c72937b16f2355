"""The torture: random traffic on a relay that is broken on purpose, and an independent check of every promise."""
