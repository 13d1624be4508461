"""A counter on standard error while many answers are judged."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rlvr.progress.status import RunStatus


@contextmanager
def scoring_progress(status: RunStatus, *, quiet: bool = False) -> Iterator[None]:
    """
    Show `done/total`, the rate and the longest verification in flight, redrawn in place.

    Shown on a terminal only: elsewhere the lines and the summary say it all.
    """
    if quiet or not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    begun = time.monotonic()

    def draw() -> None:
        while not over.wait(0.25):
            elapsed = time.monotonic() - begun
            waiting = status.longest_wait()
            longest = f"  longest: {waiting[0]} {waiting[1]:.0f} s" if waiting else ""
            rate = status.verify_done / elapsed
            text = f"{status.verify_done}/{status.verify_total} judged  {rate:.1f}/s{longest}"
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
