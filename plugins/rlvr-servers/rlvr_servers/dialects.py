"""From a model spec to the dialect of its server, with the tokenizer that both sides read."""

from __future__ import annotations

from rlvr.parts import Tokenizer
from rlvr_servers.dialect import Dialect, Served
from rlvr_servers.echo import Echo
from rlvr_servers.line import open_line
from rlvr_servers.servers_config import ServersConfig
from rlvr_servers.sglang import Sglang
from rlvr_servers.spelling import Spelling
from rlvr_servers.tokens import load_tokenizer
from rlvr_servers.vllm import Vllm

KINDS = {"vllm": "vLLM", "sglang": "SGLang", "server": "OpenAI-style", "openai": "OpenAI-style"}


async def build_dialect(
    spec: str, config: ServersConfig, tokenizer: Tokenizer | None = None
) -> tuple[Dialect, Tokenizer, Served]:
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
        dialect: Dialect = Vllm(line) if scheme == "vllm" else Sglang(line)
        served = await dialect.served()
        where = config.tokenizer or served.tokenizer
        tokenizer = tokenizer or load_tokenizer(where, spec, config.template)
        return dialect, tokenizer, served
    tokenizer = tokenizer or load_tokenizer(config.tokenizer, spec, config.template)
    begin = getattr(getattr(tokenizer, "inner", None), "bos_token_id", None)
    echo = Echo(line, Spelling(tokenizer), begin=begin)
    return echo, tokenizer, await echo.served()
