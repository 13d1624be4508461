"""Choose the protocol of the server of a model spec, and load its tokenizer."""

from __future__ import annotations

from rlvr import Tokenizer
from rlvr_servers.client.endpoint import open_line
from rlvr_servers.protocols.completions import Echo
from rlvr_servers.protocols.protocol import Served, ServerProtocol
from rlvr_servers.protocols.sglang import Sglang
from rlvr_servers.protocols.token_texts import TokenTexts
from rlvr_servers.protocols.tokenizer import load_tokenizer
from rlvr_servers.protocols.vllm import Vllm
from rlvr_servers.servers_config import ServersConfig

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
    line = await open_line(spec, config, KINDS[scheme])
    if scheme in ("vllm", "sglang"):
        protocol: ServerProtocol = Vllm(line) if scheme == "vllm" else Sglang(line)
        served = await protocol.served()
        where = config.tokenizer or served.tokenizer
        tokenizer = tokenizer or load_tokenizer(where, spec, config.template)
        return protocol, tokenizer, served
    tokenizer = tokenizer or load_tokenizer(config.tokenizer, spec, config.template)
    echo = Echo(line, TokenTexts(tokenizer), begin=tokenizer.bos_id)
    return echo, tokenizer, await echo.served()
