"""The record: what a message, its end, a receipt and an event look like in the store."""
