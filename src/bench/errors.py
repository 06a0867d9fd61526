"""The one error that a user is meant to read."""

__all__ = ["BenchError"]


class BenchError(Exception):
    """Something the user can mend: the message says what was wrong, where, and what to do.

    The command line prints it without a traceback and exits 2; rules let it end the job.
    """
