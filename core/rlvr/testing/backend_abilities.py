"""Promises about the abilities that a backend, its policy and its tokenizer declare."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rlvr.errors import UnsupportedError
from rlvr.parts import Backend, Policy, Tokenizer
from rlvr.testing.backend_losses import LikelihoodLoss
from rlvr.testing.contract import check_declarations, check_part, on_open
from rlvr.types import Datum, GenerateRequest


class AbilityPromises:
    """A part of `BackendContract`: an ability is declared and defined, or neither."""

    prompts: Callable[[Policy], list[list[int]]]
    _requests: Callable[[Policy, float], list[GenerateRequest]]
    _rollouts: Callable[[Backend], Awaitable[list[Datum]]]

    @on_open("make_backend")
    async def test_it_can_do_what_it_says(self, backend: Backend) -> None:
        """Backend, policy and tokenizer are parts that define every ability they declare."""
        policy = await backend.policy()
        for part, kind in ((backend, Backend), (policy, Policy), (policy.tokenizer, Tokenizer)):
            check_part(part, kind)
            check_declarations(part)

    @on_open("make_backend")
    async def test_its_tokenizer_is_one(self, backend: Backend) -> None:
        """Ids are ids, bytes are bytes, and a turn that has ended is not closed again."""
        policy = await backend.policy()
        tokenizer = policy.tokenizer
        ids = {tokenizer.eos_id, *tokenizer.ends, *tokenizer.control_ids}
        assert all(isinstance(i, int) and i >= 0 for i in ids), ids
        for prompt in self.prompts(policy):
            assert isinstance(tokenizer.decode(prompt), str)
            assert all(isinstance(tokenizer.bytes_of(i), bytes) for i in prompt)
            assert all(isinstance(i, int) for i in tokenizer.closing(prompt))
            assert all(tokenizer.closing([*prompt, end]) == [] for end in tokenizer.ends)

    @on_open("make_backend")
    async def test_what_is_drawn_beside_it_changes_no_bit(self, backend: Backend) -> None:
        """If the backend declares it, a completion has the same bits alone and among others."""
        if backend.capabilities.batch_invariant:
            policy = await backend.policy()
            requests = self._requests(policy, 1.0)
            together = await policy.generate_many([*requests, *requests[:1]])
            for request, among in zip(requests, together, strict=False):
                alone = await policy.generate(request)
                assert alone.tokens.tolist() == among.tokens.tolist()
                assert alone.logprobs.tobytes() == among.logprobs.tobytes()

    @on_open("make_backend", needs_torch=True)
    async def test_a_live_policy_follows_the_weights(self, backend: Backend) -> None:
        """With partial rollouts, version and digest are those of the newest weights."""
        if not backend.capabilities.partial_rollouts:
            with pytest.raises(UnsupportedError):
                await backend.live_policy()
            return
        live = await backend.live_policy()
        check_part(live, Policy)
        data = await self._rollouts(backend)
        for _ in range(2):
            now = await backend.policy()
            assert (live.version, live.digest) == (now.version, now.digest)
            for completion in await live.generate_many(self._requests(live, 1.0)):
                assert set(completion.versions) <= {now.version}
            await backend.update(data, LikelihoodLoss())

    @on_open("make_backend")
    async def test_exported_weights_are_written_or_refused(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        """A policy that can export leaves files; one that cannot says so."""
        policy = await backend.policy()
        if policy.can_export:
            await policy.export_weights(tmp_path)
            assert any(tmp_path.iterdir())
            return
        with pytest.raises(UnsupportedError):
            await policy.export_weights(tmp_path)
