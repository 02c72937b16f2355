"""Commands of operators, over HTTP."""
