"""The wire format: frames, messages, addresses, entries, columns, close codes. No I/O."""
