"""Choose the protocol of the server of a model spec, and load its tokenizer."""

from __future__ import annotations

from rlvr import Tokenizer, load_tokenizer
from rlvr_servers.client.endpoint import Endpoint
from rlvr_servers.config import ServersConfig
from rlvr_servers.protocols.completions import Echo
from rlvr_servers.protocols.protocol import Served, ServerProtocol
from rlvr_servers.protocols.sglang import Sglang
from rlvr_servers.protocols.token_texts import TokenTexts
from rlvr_servers.protocols.vllm import Vllm

KINDS = {"vllm": "vLLM", "sglang": "SGLang", "server": "OpenAI-style", "openai": "OpenAI-style"}


async def build_protocol(
    spec: str, config: ServersConfig, tokenizer: Tokenizer | None = None
) -> tuple[ServerProtocol, Tokenizer, Served]:
    """
    Find a server and read its tokenizer.

    Args:
        spec: `SCHEME:URL#NAME`.
        config: How it is asked.
        tokenizer: The policy's own where it has one; None: `servers.tokenizer`, or the one that
            the server names.

    Raises:
        PrerequisiteError: The server cannot be reached, or the tokenizer cannot be read.
        ConfigError: No such model, or nobody says where the tokenizer is.
    """
    scheme = spec.partition(":")[0]
    endpoint = await Endpoint.open(spec, config, KINDS[scheme], config.deadline_s)
    protocol: ServerProtocol | None = None
    served = Served()
    if scheme in ("vllm", "sglang"):
        protocol = Vllm(endpoint) if scheme == "vllm" else Sglang(endpoint)
        served = await protocol.served()
    tokenizer = tokenizer or load_tokenizer(
        config.tokenizer or served.tokenizer, spec, "servers", config.template
    )
    if protocol is None:
        spelling = TokenTexts(tokenizer)
        protocol = Echo(endpoint=endpoint, spelling=spelling, begin=tokenizer.bos_id)
        served = await protocol.served()
    return protocol, tokenizer, served
