"""Environments of one group builder, handed out one by one."""

from __future__ import annotations

import asyncio

from tinker_cookbook.rl.types import Env, EnvGroupBuilder


class EnvPool:
    """
    Makes a group's environments when one is asked for, and another group when they are spent.

    The builder cleans up when none of its environments is being played.
    """

    def __init__(self, builder: EnvGroupBuilder) -> None:
        self.builder = builder
        self._spare: list[Env] = []
        self._playing = 0
        self._making = asyncio.Lock()

    async def take(self) -> Env:
        """An environment that nobody has played."""
        async with self._making:
            if not self._spare:
                self._spare = list(await self.builder.make_envs())[::-1]
            self._playing += 1
            return self._spare.pop()

    async def done(self) -> None:
        """One that was taken has ended."""
        self._playing -= 1
        if self._playing <= 0:
            await self.close()

    async def close(self) -> None:
        """Let the builder clean up; environments that nobody took are dropped."""
        self._spare, self._playing = [], 0
        await self.builder.cleanup()
