"""The judge beside the cookbook's loop: opened once, closed whatever ends the process."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr import ConfigError, Reward, Trajectory
from rlvr_tinker_cookbook.judge import AnswerVerifier, Wanted

SCRIPT = """
import asyncio, sys, time
from contextlib import asynccontextmanager
from pathlib import Path
from rlvr import open_verifying
from rlvr_tinker_cookbook.judge import AnswerVerifier

@asynccontextmanager
async def opening():
    async with open_verifying("toy") as verifying:
        try:
            yield verifying
        finally:
            await asyncio.sleep(0.05)
            Path(sys.argv[1]).write_text("closed")

async def main():
    judge = AnswerVerifier(opening)
    print("open", flush=True)
    await asyncio.sleep(float(sys.argv[2]))

asyncio.run(main())
"""


def started(closed: Path, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(closed), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


class TestClosing:
    @pytest.mark.integration
    def test_is_closed_at_the_end_of_the_process(self, tmp_path: Path) -> None:
        """Engines and sandboxes that the verifier opened end with the cookbook's script."""
        process = started(tmp_path / "closed", 0.0)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
        assert (tmp_path / "closed").read_text() == "closed"

    @pytest.mark.integration
    def test_is_closed_on_ctrl_c(self, tmp_path: Path) -> None:
        """... and when a person ends it."""
        process = started(tmp_path / "closed", 60.0)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert (tmp_path / "closed").read_text() == "closed"

    def test_closing_twice_is_closing(self) -> None:
        """A second call finds nothing to do."""
        judge = AnswerVerifier(Wanted(plugin="toy").open)
        judge.close()
        judge.close()


class TestLoops:
    def test_serves_loops_that_come_and_go(self) -> None:
        """Rollouts of several event loops ask one judge, as the cookbook's executors do."""
        judge = AnswerVerifier(Wanted(plugin="toy").open)
        problem = next(iter(judge.verifying.task.problems("train")))
        for _ in range(2):
            outcome = asyncio.run(judge.verify(problem, Trajectory.from_text(problem.id, "aaaa")))
            assert isinstance(outcome, Reward)
            assert outcome.value == 1.0
        judge.close()

    def test_what_cannot_be_opened_is_said_to_who_asked(self) -> None:
        """An error of the judge's thread is raised where the judge was wanted."""
        with pytest.raises(ConfigError, match=r"was given to .*toy"):
            AnswerVerifier(Wanted(plugin="toy", dataset=__file__).open)
