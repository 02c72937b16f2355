"""What a job cannot work with."""


class BadInput(Exception):
    """The message says what is wrong and what to do; the job ends with exit code 2."""
