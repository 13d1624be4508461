"""What rlvr-servers offers: backend `server` and sampler `chat`. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import hookimpl
from rlvr.specs import BackendSpec, SamplerSpec

RLVR_API = 1


@hookimpl
def rlvr_backends() -> Iterable[BackendSpec]:
    """Models behind HTTP. They cannot be trained from here."""
    yield BackendSpec(
        name="server",
        target="rlvr_servers.backend:ServerBackend",
        summary="Samples from an OpenAI-compatible server: vLLM, SGLang, llama.cpp, hosted",
        config="rlvr_servers.config:ServerConfig",
        models=("server",),
        sampler="chat",
        trains=False,
    )


@hookimpl
def rlvr_samplers() -> Iterable[SamplerSpec]:
    """Trajectories of messages and texts."""
    yield SamplerSpec(
        name="chat",
        target="rlvr_servers.chat_sampler:ChatSampler",
        summary="G trajectories a problem as chats with a server, any number of turns",
    )
