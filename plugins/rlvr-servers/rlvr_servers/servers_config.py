"""Options of teachers and samplers behind servers: `servers.KEY=VALUE`."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import ge, gt

from rlvr import option


@frozen(kw_only=True)
class ServersConfig:
    """How servers that score and sample tokens are asked."""

    url: str = option(
        "", "Server that a run's sampler draws from, URL or URL#NAME; in an evaluation --model is"
    )
    tokenizer: str = option(
        "", "Its tokenizer: a folder, a tokenizer.json or a hub id; empty: where the server says"
    )
    template: tuple[str, ...] = option(
        (), "Variables of the model's chat template, NAME=VALUE with commas: enable_thinking=false"
    )
    concurrency: int = option(16, "Requests at the same time", validator=ge(1))
    timeout_s: float = option(
        600.0, "A request without an answer after this is repeated", unit="s", validator=gt(0)
    )
    deadline_s: float = option(
        1800.0, "A request is given up after this, with all repetitions", unit="s", validator=gt(0)
    )
    retries: int = option(5, "Times a failed request is repeated", validator=ge(0))
    backoff_s: float = option(
        1.0, "Pause before the first repetition; doubles each time", unit="s", validator=ge(0)
    )
    probe_k: int = option(
        1024, "Most likeliest tokens a position that the start-up probe tries", validator=ge(1)
    )
    weights_dir: str = option(
        "", "Where a run's sampler writes weights for the server; empty: RUN/served-weights"
    )
    weights_seen_at: str = option(
        "", "That folder as the server sees it (a container's mount); empty: the same path"
    )
