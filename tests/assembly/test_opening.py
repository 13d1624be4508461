"""A task with its verifier, for programs that sample by themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rlvr import (
    ConfigError,
    Failed,
    Outcome,
    PluginError,
    Reward,
    Trajectory,
    UnknownNameError,
    Verifying,
    open_verifying,
)


def judged(texts: list[str], *words: str, **values: object) -> tuple[Verifying, list[Outcome]]:
    async def work() -> tuple[Verifying, list[Outcome]]:
        async with open_verifying("toy", options=values or words) as opened:
            problem = next(iter(opened.task.problems("train")))
            pairs = [(problem, Trajectory.from_text(problem.id, text)) for text in texts]
            return opened, await opened.verify(pairs)

    return asyncio.run(work())


def test_verdicts_are_those_of_score() -> None:
    """Outcomes come in order, with the options that were given."""
    _, outcomes = judged(["aaa", "abb", "bbb"], "toy.length=3")
    assert [o.value for o in outcomes if isinstance(o, Reward)] == [1.0, 1 / 3, 0.0]


def test_failures_are_outcomes() -> None:
    """A verifier that cannot run gives a `Failed`; how many are borne is said."""
    opened, outcomes = judged(["aaaa"], "toy.fail_share=1.0", "verify.max_failures=0.5")
    assert isinstance(outcomes[0], Failed)
    assert opened.max_failures == 0.5


def test_stop_texts_are_the_options() -> None:
    """What ends a completion is an option of the run as anywhere."""
    opened, _ = judged([], "sampler.stop=END,STOP")
    assert opened.stop == ("END", "STOP")
    asyncio.run(open_verifying("toy", options=None).__aenter__())
    opened, _ = judged([], **{"sampler.stop": ("END", "STOP")})
    assert opened.stop == ("END", "STOP")


def test_mistakes_are_said() -> None:
    """Unknown options, plugins and files are errors of rlvr's."""

    async def opened(plugin: str, **more: object) -> None:
        async with open_verifying(plugin, **more):  # type: ignore[arg-type]
            pass

    with pytest.raises(ConfigError, match=r"lenght' \(from the Python call"):
        asyncio.run(opened("toy", options=["toy.lenght=3"]))
    for wrong in ("toy.length=3", {1: 2}, [1], 3):
        with pytest.raises(ConfigError, match="give a mapping"):
            asyncio.run(opened("toy", options=wrong))
    with pytest.raises(PluginError, match="toyy"):
        asyncio.run(opened("toyy"))
    with pytest.raises(UnknownNameError, match="no such file"):
        asyncio.run(opened("toy", dataset=Path("missing.jsonl")))
