"""Options of models behind servers: `server.KEY=VALUE` and `servers.KEY=VALUE`."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import ge, gt

from rlvr import option


@frozen(kw_only=True)
class RequestOptions:
    """How any server is asked."""

    concurrency: int = option(16, "Requests at the same time", validator=ge(1))
    timeout_s: float = option(
        600.0, "Time after which an unanswered request is repeated", unit="s", validator=gt(0)
    )
    retries: int = option(5, "Times a failed request is repeated", validator=ge(0))
    backoff_s: float = option(
        1.0, "Pause before the first repetition; doubles each time", unit="s", validator=ge(0)
    )


@frozen(kw_only=True)
class ServerConfig(RequestOptions):
    """Options of the backend `server`, which chats."""

    token_field: str = option(
        "max_tokens",
        "Field that holds sampler.max_tokens",
        choices=("max_tokens", "max_completion_tokens"),
    )
    template: tuple[str, ...] = option(
        (),
        "Variables of the model's chat template, sent as chat_template_kwargs (vLLM, SGLang): "
        "enable_thinking=false",
    )
    leave_out: tuple[str, ...] = option(
        (), "Fields that requests leave out because the server refuses them: seed,temperature"
    )


@frozen(kw_only=True)
class ServersConfig(RequestOptions):
    """Options of the servers that score and sample tokens."""

    url: str = option(
        "", "Server that a run's sampler draws from, URL or URL#NAME; evaluations take --model"
    )
    tokenizer: str = option(
        "", "Its tokenizer: a folder, a tokenizer.json or a hub id; empty: as the server says"
    )
    template: tuple[str, ...] = option(
        (), "Variables of the model's chat template, NAME=VALUE with commas: enable_thinking=false"
    )
    deadline_s: float = option(
        1800.0,
        "Time after which a request is given up, with all repetitions",
        unit="s",
        validator=gt(0),
    )
    probe_k: int = option(
        1024, "Largest k of top-k logprobs that the start-up probe tries", validator=ge(1)
    )
    slice_tokens: int = option(
        0,
        "Most tokens that a run's sampler asks for in one request: a longer completion takes "
        "several, the later ones by newer weights (--max-staleness); 0: one request",
        unit="tokens",
        validator=ge(0),
    )
    weights_dir: str = option(
        "", "Folder for the weights that a run hands to the server; empty: RUN/served-weights"
    )
    weights_seen_at: str = option(
        "", "Path of that folder on the server (a container's mount); empty: the same path"
    )
