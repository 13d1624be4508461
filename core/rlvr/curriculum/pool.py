"""The problems of a run to choose from, and values computed from them once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import attrgetter, is_

import numpy as np
from numpy.typing import NDArray

from rlvr.types import Problem


class Pool:
    """Problems in their order, with their ids; the same object for the same problems."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        self.ids = tuple(map(attrgetter("id"), problems))

    @cached_property
    def by_id(self) -> Mapping[str, Problem]:
        """The problems by id."""
        return dict(zip(self.ids, self.problems, strict=True))

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """Half of the first bytes of each id's sha256, for `orders.line`; shape (P,)."""
        digests = b"".join([hashlib.sha256(name).digest() for name in map(str.encode, self.ids)])
        return np.frombuffer(digests, ">u8")[::4].astype(np.uint64)

    def at(self, places: NDArray[np.intp]) -> list[Problem]:
        """The problems at these places."""
        return [self.problems[place] for place in places.tolist()]


_last = Pool(())


def pool_of(problems: Sequence[Problem]) -> Pool:
    """
    The pool of these problems.

    The last one is kept: a run asks for the same problems at every step, and looking for one of
    100,000 ids, or hashing them, takes longer than a choice.
    """
    global _last
    last, wanted = _last, problems if isinstance(problems, tuple) else tuple(problems)
    if wanted is last.problems or (
        len(wanted) == len(last.problems) and all(map(is_, wanted, last.problems))
    ):
        return last
    _last = Pool(wanted)
    return _last
