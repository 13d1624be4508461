"""How much a server takes on."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class Limits:
    """How much the server takes on."""

    max_rank: int = 128  # highest rank of an adapter
    max_adapters: int = 16  # models in training at one time
    max_snapshots: int = 64  # unnamed sampler weights kept; older ones are forgotten
    max_samples: int = 4096  # sequences of one sampling request
    pass_tokens: int = 8192  # tokens of a forward pass
    decode_rows: int = 256  # sequences decoded at the same time
    # Whether each sampling request is decoded by itself: its bits then depend on nothing that is
    # sampled at the same time.
    is_alone: bool = False
    session_timeout_s: float = 300.0  # a session ends when nothing was heard of it for so long
    gap_s: float = (
        30.0  # how long requests of a model wait for one with a lower number that does not come
    )
    wait_s: float = 20.0  # how long a question for a result waits before "not yet"
