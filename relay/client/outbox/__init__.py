"""The outbox: messages on their way, until it is known how they ended."""
