"""Options of the task and the reward: one record, namespace `cvdp`."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import ge, gt, le, lt

from rlvr import ConfigError, option


@frozen(kw_only=True)
class CvdpConfig:
    """How CVDP problems are put to the policy and how its answers are judged."""

    prompt: str = option(
        "auto",
        "Prompt: official, brief (starter model), auto: brief for the starter set",
        choices=("auto", "official", "brief"),
    )
    max_prompt_tokens: int = option(
        0,
        "Most estimated tokens of a prompt; least important parts are cut first; 0: no limit",
        unit="tokens",
        validator=ge(0),
    )
    parsing: str = option(
        "lenient",
        "From text to files: official (exactly as the official runner reads it) or lenient",
        choices=("lenient", "official"),
    )
    strict: bool = option(False, "Refuse a data set that holds a row which cannot be verified")
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
    verdict: str = option(
        "strict",
        "Verdict if synthesis or lint is scored: official, or strict: the netlist that "
        "was scored passes the tests, too",
        choices=("strict", "official"),
    )
    syntax: str = option("iverilog", "Judge of the syntax stage", choices=("iverilog", "verilator"))
    stub_stage: str = option(
        "compilation",
        "Highest stage paid to a stub, whose outputs depend on no input",
        choices=("compilation", "syntax", "format"),
    )
    seeds: tuple[str, ...] = option(("1",), "Seeds of the tests; right means right with each")
    timeout_s: float = option(
        600.0,
        "Processor time of a service; with cvdp.limits five times the reference's, if it was timed",
        unit="s",
        validator=gt(0),
    )
    idle_s: float = option(
        10.0,
        "Time without computing after which a service is stopped; 0: never",
        unit="s",
        validator=ge(0),
    )
    memory_mb: int = option(
        4096,
        "Address space of a process; all together hold twice that",
        unit="MB",
        validator=ge(256),
    )
    processes: int = option(256, "Processes in a sandbox", validator=ge(16))
    file_mb: int = option(64, "Size of a file that is written", unit="MB", validator=ge(1))
    disk_mb: int = option(100, "Size of a sandbox's work directory", unit="MB", validator=ge(1))
    output_mb: int = option(
        64, "Output after which a service is stopped", unit="MB", validator=ge(1)
    )
    provision: bool = option(True, "Make a missing cocotb stack at first need")
    sandbox: str = option(
        "auto",
        "Sandbox of answers: bubblewrap, docker, auto: docker if cvdp.image is given or "
        "bubblewrap does not work here",
        choices=("auto", "bubblewrap", "docker"),
    )
    rootfs: str = option(
        "auto",
        "Root of the bubblewrap sandbox: host, a folder, auto: the built one where the host's "
        "iverilog is older than 12",
    )
    image: str = option("", "Image of the docker sandbox; empty: the one of rlvr cvdp build-image")
    warm: int = option(-1, "Warm sandboxes kept, at most 16; -1: one a worker", validator=ge(-1))
    limits: str = option(
        "auto",
        "Time limits of single problems: off, a file, auto: what rlvr cvdp calibrate measured here",
    )
    shim: bool = option(True, "Give harnesses the names that cocotb 2.0 dropped")
    mode: str = option(
        "answer",
        "Kind of turn: answer (files as text) or agent (actions on files)",
        choices=("answer", "agent"),
    )
    turns: int = option(
        1, "Most turns of an episode; the tools' messages come in between", validator=ge(1)
    )
    feedback_tokens: int = option(
        512, "Most tokens of the tools' message between two turns", unit="tokens", validator=ge(64)
    )
    feedback_lint: bool = option(False, "Show Verilator's messages between answers, too")
    feedback_tests: bool = option(
        True, "Tell the policy between answers whether the hidden tests pass, and nothing else"
    )
    discount: float = option(
        1.0, "Factor of the reward's value for each turn after the first", validator=[gt(0), le(1)]
    )

    curriculum: str = option(
        "none",
        "Order of training: by difficulty, category, running pass rate or harness strength",
        choices=("none", "difficulty", "category", "pass-rate", "strength"),
    )
    curriculum_steps: int = option(
        100,
        "Steps until all difficulties or categories take part in full",
        unit="steps",
        validator=ge(0),
    )
    stages: tuple[str, ...] = option(
        (), "Order of difficulties or categories; empty: easy to hard, as published"
    )
    target_rate: float = option(
        0.5, "Pass rate that the curriculum pass-rate prefers", validator=[ge(0), le(1)]
    )
    audit: str = option("", "File of rlvr audit with the strength of each harness")
    references: str = option(
        "", "JSON Lines {id, files} of solutions, for problems that come without one"
    )
    weak: str = option(
        "keep",
        "Problems whose harness the audit calls weak or flaky: keep, drop, weigh (less often)",
        choices=("keep", "drop", "weigh"),
    )
    proxy: str = option(
        "none",
        "Reward of the first steps: compile, lint (by Verilator), none: the tests from the start",
        choices=("none", "compile", "lint"),
    )
    proxy_steps: int = option(0, "Steps judged by the proxy", unit="steps", validator=ge(0))
    holdout: float = option(
        0.0,
        "Share of problem families kept for the split test, where rows declare none",
        validator=[ge(0), lt(1)],
    )
    holdout_seed: int = option(0, "Seed that chooses these families")

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
        if not self.audit and (self.weak != "keep" or self.curriculum == "strength"):
            asked = "cvdp.curriculum=strength" if self.weak == "keep" else f"cvdp.weak={self.weak}"
            raise ConfigError(
                f"{asked} needs to know how strong the harnesses are: name the file of an audit "
                "with cvdp.audit=FILE"
            )
        if (self.proxy == "none") != (self.proxy_steps == 0):
            raise ConfigError(
                f"cvdp.proxy={self.proxy} with cvdp.proxy_steps={self.proxy_steps}: "
                "give both, or neither"
            )
