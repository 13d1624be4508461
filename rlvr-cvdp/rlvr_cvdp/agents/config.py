"""Options of the backend `agent`: `agent.KEY=VALUE`."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import ge, gt, matches_re

from rlvr import option


@frozen(kw_only=True)
class AgentConfig:
    """Limits of an agent's container."""

    timeout_s: float = option(
        600.0, "Time limit of an agent, as in the official runner", unit="s", validator=gt(0)
    )
    memory_mb: int = option(4096, "Memory of a container", unit="MB", validator=ge(64))
    processes: int = option(256, "Processes of a container", validator=ge(4))
    disk_mb: int = option(
        512,
        "Most that a container may write, to its own files and to /code",
        unit="MB",
        validator=ge(1),
    )
    network: str = option(
        "none",
        "Docker network of the container; none, or one that you made for it",
        validator=matches_re(r"(?!host$)[A-Za-z0-9][\w.-]*"),
    )
