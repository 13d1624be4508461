"""The worker thread: the event loop lives, and cancelled work is known to be done or not."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import pytest
import structlog

from rlvr import log
from rlvr_torch.runtime.executor import Executor


def test_the_event_loop_lives_meanwhile():
    """Other tasks go on while the worker works."""

    async def main():
        release = threading.Event()
        task = asyncio.create_task(Executor().run(lambda _: release.wait(5)))
        for _ in range(3):
            await asyncio.sleep(0)
        release.set()
        return await task

    assert asyncio.run(main())


def test_work_is_done_in_the_order_it_was_asked_for():
    """Two calls never overlap."""
    seen = []

    def work(name):
        def run(_):
            seen.append(f"{name} began")
            time.sleep(0.01)
            seen.append(f"{name} ended")

        return run

    async def main():
        worker = Executor()
        await asyncio.gather(worker.run(work("a")), worker.run(work("b")))

    asyncio.run(main())
    assert seen == ["a began", "a ended", "b began", "b ended"]


def test_events_of_the_work_go_to_the_callers_log(tmp_path):
    """Of two runs in threads, each has its own `events.jsonl`; a skipped update belongs to one."""
    ready = threading.Barrier(2)

    def run(name):
        with log.borrowed():
            log.setup(run_file=tmp_path / name)
            ready.wait(10)
            asyncio.run(Executor().run(lambda _: structlog.get_logger().warning(f"of_{name}")))
            ready.wait(10)

    threads = [threading.Thread(target=run, args=name) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    for name in "ab":
        (line,) = (tmp_path / name).read_text().splitlines()
        assert json.loads(line)["event"] == f"of_{name}"


def test_cancelled_work_that_gives_up_has_ended_before_the_caller_goes_on():
    """The cancellation is delivered after the thread has stopped."""
    ended = threading.Event()

    def work(is_cancelled):
        while not is_cancelled():
            time.sleep(0.001)
        time.sleep(0.02)
        ended.set()
        raise RuntimeError("gave up")

    async def main():
        task = asyncio.create_task(Executor().run(work))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(main())


def test_cancelled_work_that_finished_gives_its_result_first():
    """What was done is known to the caller, who is cancelled at the next await."""
    seen = []

    async def caller(worker):
        seen.append(await worker.run(lambda _: time.sleep(0.05) or "done"))
        await asyncio.sleep(1)
        seen.append("not cancelled")

    async def main():
        task = asyncio.create_task(caller(Executor()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert seen == ["done"]
