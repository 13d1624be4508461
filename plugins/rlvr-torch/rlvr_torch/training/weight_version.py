"""Which version the weights are, and what their digest is."""

from __future__ import annotations

from rlvr_torch.models.interface import Net
from rlvr_torch.runtime.weights_digest import WeightsDigest


class Versions:
    """
    Counts the updates of a net, and computes a version's digest when somebody asks, once.

    Attributes:
        number: Updates that the weights have seen.
        start_digest: Of the weights as they were when this was made.
    """

    def __init__(self, net: Net) -> None:
        self.number = 0
        self._read = WeightsDigest(net)
        self.start_digest = self._read()
        self._digests = {0: self.start_digest}
        self._is_live = False

    def digest(self) -> str:
        """Of the weights as they are."""
        number = self.number
        found = self._digests.get(number)
        if found is None:
            found = self._read()
            self._digests = {number: found}
        return found

    def go_live(self) -> None:
        """From now on `digest` may be called at any time: each update ends with its own."""
        self._is_live = True
        self.digest()

    def advance(self) -> None:
        """The weights are those of the next version."""
        self._become(self.number + 1)

    def restore(self, number: int) -> None:
        """The weights are those of that version: what was known of the digests is forgotten."""
        self._digests = {}
        self._become(number)

    def _become(self, number: int) -> None:
        if self._is_live:  # the new digest is there before its number is
            self._digests = {**self._digests, number: self._read()}
        self.number = number
        self._digests = {n: digest for n, digest in self._digests.items() if n == number}
