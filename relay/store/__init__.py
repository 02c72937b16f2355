"""The store: the only package that speaks Redis."""
