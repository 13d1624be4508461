"""Options of the backend `server`: `server.KEY=VALUE`."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import ge, gt

from rlvr import option


@frozen(kw_only=True)
class ServerConfig:
    """How a server is asked."""

    concurrency: int = option(16, "Requests at the same time", validator=ge(1))
    timeout_s: float = option(
        600.0, "A request without an answer after this is repeated", unit="s", validator=gt(0)
    )
    retries: int = option(5, "Times a failed request is repeated", validator=ge(0))
    backoff_s: float = option(
        1.0, "Pause before the first repetition; doubles each time", unit="s", validator=ge(0)
    )
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
