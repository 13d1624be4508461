"""A trajectory as it was laid out for a policy, and as bytes for the cache."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from attrs import frozen

from rlvr.types import Message
from rlvr_sad.tokens import Tokens
from rlvr_sad.vision import StoredPicture


@frozen(kw_only=True, eq=False)
class Laid:
    """
    What is replayed of a trajectory.

    Attributes:
        tokens: Ids, types and mask (T,).
        prompt: Its first messages; none for a text.
        places: Where the tokens of each picture begin and end, in order.
        pictures: One a place.
        unseen: Pictures, films and sounds whose places are text.
    """

    tokens: Tokens
    prompt: tuple[Message, ...]
    places: tuple[tuple[int, int], ...] = ()
    pictures: tuple[StoredPicture, ...] = ()
    unseen: int = 0

    def pictures_in(self, start: int, end: int) -> tuple[StoredPicture, ...]:
        """Those whose tokens lie there, all of them."""
        return tuple(
            picture
            for (first, behind), picture in zip(self.places, self.pictures, strict=True)
            if start <= first and behind <= end
        )

    def packed(self) -> bytes:
        """As bytes, without the pictures."""
        prompt = [[m.role, m.content] for m in self.prompt]
        text = json.dumps([prompt, self.places, self.unseen]).encode()
        ids, types, mask = self.tokens.ids, self.tokens.types, self.tokens.mask
        arrays = ids.tobytes() + types.tobytes() + mask.tobytes()
        return len(text).to_bytes(8, "little") + text + arrays

    @classmethod
    def unpacked(cls, data: bytes, pictures: Sequence[StoredPicture]) -> Laid:
        """What `packed` gave, with the trajectory's pictures."""
        at = 8 + int.from_bytes(data[:8], "little")
        count = (len(data) - at) // 6
        prompt, places, unseen = json.loads(data[8:at])
        return cls(
            tokens=Tokens(
                np.frombuffer(data, np.int32, count, at),
                np.frombuffer(data, np.uint8, count, at + 4 * count),
                np.frombuffer(data, np.bool_, count, at + 5 * count),
            ),
            prompt=tuple(Message(role=role, content=content) for role, content in prompt),
            places=tuple((start, end) for start, end in places),
            pictures=tuple(pictures[: len(places)]),
            unseen=unseen,
        )
