"""An agent: what a program uses, and the engine behind it."""
