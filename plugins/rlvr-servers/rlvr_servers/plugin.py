"""What rlvr-servers offers: teachers, samplers and backends behind HTTP. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import BackendSpec, SamplerSpec, TeacherSpec, hookimpl

RLVR_API = 1

_CONFIG = "rlvr_servers.config:ServersConfig"
_KINDS = {"vllm": "vLLM", "sglang": "SGLang", "openai": "OpenAI-style completions"}


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
    for name, kind in _KINDS.items():
        yield BackendSpec(
            name=name,
            target="rlvr_servers.backend:ServedBackend",
            summary=f"Evaluates a model token by token through {kind}",
            config=_CONFIG,
            namespace="servers",
            models=(name,),
            sampler=name,
            trains=False,
        )


@hookimpl
def rlvr_samplers() -> Iterable[SamplerSpec]:
    """Trajectories of messages and texts; of tokens that a server draws."""
    yield SamplerSpec(
        name="chat",
        target="rlvr_servers.chat_sampler:ChatSampler",
        summary="G trajectories a problem as chats with a server, any number of turns",
    )
    classes = {"vllm": "VllmSampler", "sglang": "SglangSampler", "openai": "OpenAISampler"}
    for name, kind in _KINDS.items():
        what = "of an evaluation" if name == "openai" else "with the run's weights in it"
        yield SamplerSpec(
            name=name,
            target=f"rlvr_servers.server_sampler:{classes[name]}",
            summary=f"G trajectories a problem, drawn by {kind} {what}",
            config=_CONFIG,
            namespace="servers",
        )


@hookimpl
def rlvr_teachers() -> Iterable[TeacherSpec]:
    """Frozen models that score what the policy wrote."""
    kinds = {
        "vllm": "vLLM's prompt_logprobs",
        "sglang": "SGLang's /generate",
        "server": "OpenAI-style completions with echo",
    }
    for name, kind in kinds.items():
        yield TeacherSpec(
            name=name,
            target="rlvr_servers.teacher:ServerTeacher",
            summary=f"A model behind {kind}: its likeliest tokens, probed at the start",
            config=_CONFIG,
            namespace="servers",
            models=(name,),
        )
