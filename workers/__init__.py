"""The relay's background duties: one per file, all on one shared loop."""
