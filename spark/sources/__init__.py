"""Where the pipeline reads: the event log and the mailboxes of the store, as data sources of Spark."""
