"""Mailboxes: messages come in, are taken, settled, and end."""
