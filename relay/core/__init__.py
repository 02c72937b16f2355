"""What the relay does, whichever way a client comes: take in, deliver, settle, keep watch."""
