"""The relay's background duties: one a file, all on one shared loop."""
