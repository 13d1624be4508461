"""Options of the task and the reward: one record, namespace `cvdp`."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import ge, gt

from rlvr import option
from rlvr.errors import ConfigError


@frozen(kw_only=True)
class CvdpConfig:
    """How CVDP problems are put to the policy and how its answers are judged."""

    prompt: str = option(
        "auto",
        "Prompt: official, brief (starter model), auto: brief for the starter set",
        choices=("auto", "official", "brief"),
    )
    format_weight: float = option(0.1, "Value of an answer that holds code", validator=ge(0))
    syntax_weight: float = option(0.3, "Value of an answer that parses", validator=ge(0))
    compile_weight: float = option(0.5, "Value of an answer that compiles", validator=ge(0))
    tests_weight: float = option(1.0, "Value of an answer that passes all tests", validator=gt(0))
    compilation: bool = option(True, "Count compilation as a stage of its own")
    tests: str = option(
        "all",
        "Credit for tests: all (stop at the first failure) or share of those passed",
        choices=("all", "share"),
    )
    syntax: str = option("iverilog", "Judge of the syntax stage", choices=("iverilog", "verilator"))
    seeds: tuple[str, ...] = option(("1",), "Seeds of the tests; right means right with each")
    timeout_s: float = option(
        120.0,
        "CPU seconds a process of a service may use; a service may take five times this",
        unit="s",
        validator=gt(0),
    )
    memory_mb: int = option(4096, "Address space of a process", unit="MB", validator=ge(256))
    processes: int = option(256, "Processes in a sandbox", validator=ge(16))
    file_mb: int = option(64, "Size of a file that is written", unit="MB", validator=ge(1))
    disk_mb: int = option(100, "Size of a sandbox's work directory", unit="MB", validator=ge(1))
    output_mb: int = option(
        64, "Output after which a service is stopped", unit="MB", validator=ge(1)
    )
    provision: bool = option(True, "Make a missing cocotb stack at first need")

    def __attrs_post_init__(self) -> None:
        stages = [self.format_weight, self.syntax_weight]
        stages += [self.compile_weight] if self.compilation else []
        if [*stages, self.tests_weight] != sorted([*stages, self.tests_weight]):
            raise ConfigError(
                "the weights of the cvdp stages must not fall: "
                "format <= syntax <= compilation <= tests"
            )
        if not self.seeds or not all(seed.isdecimal() for seed in self.seeds):
            raise ConfigError(f"cvdp.seeds needs whole numbers, got {', '.join(self.seeds)!r}")
