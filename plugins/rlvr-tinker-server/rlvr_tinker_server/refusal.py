"""Refusals: the client's mistakes, told to the client."""

from __future__ import annotations


class Refusal(Exception):
    """
    The client's mistake: a request that cannot be served as it is, and why. Never a server's bug.

    At the door it becomes an HTTP answer with `status`; in a request that was already accepted it
    becomes a failed future of the category `user`. Statuses that the SDK repeats by itself (408,
    409, 429 and those from 500) are not for mistakes.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status
