"""How much a server takes on."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class Limits:
    """
    How much the server takes on.

    Attributes:
        max_rank: Highest rank of an adapter.
        max_adapters: Models in training at one time.
        max_snapshots: Unnamed sampler weights kept; older ones are forgotten.
        max_samples: Sequences of one sampling request.
        pass_tokens: Tokens of a forward pass.
        decode_rows: Sequences decoded at the same time.
        is_alone: Whether each sampling request is decoded by itself: its bits then depend on
            nothing that is sampled at the same time.
        session_timeout_s: A session ends when nothing was heard of it for so long.
        gap_s: How long requests of a model wait for one with a lower number that does not come.
        wait_s: How long a question for a result waits before "not yet".
    """

    max_rank: int = 128
    max_adapters: int = 16
    max_snapshots: int = 64
    max_samples: int = 4096
    pass_tokens: int = 8192
    decode_rows: int = 256
    is_alone: bool = False
    session_timeout_s: float = 300.0
    gap_s: float = 30.0
    wait_s: float = 20.0
