"""Data sources for Spark: the event log and the mailboxes of the store."""
