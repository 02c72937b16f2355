"""Errors of jobs."""


class BadInput(Exception):
    """Bad input. The message says what is wrong and what to do; the job ends with exit code 2."""
