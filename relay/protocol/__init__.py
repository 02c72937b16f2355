"""The wire words: frames, messages, addresses, entries, columns, close codes. No I/O."""
