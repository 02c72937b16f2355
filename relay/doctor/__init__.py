"""The doctor: what is wrong with a set-up, and the command that mends it."""
