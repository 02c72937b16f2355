"""What goes back to senders: receipts, replies, and the tasks that they belong to."""
