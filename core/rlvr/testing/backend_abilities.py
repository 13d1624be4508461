"""Promises about the abilities that a backend, its policy and its tokenizer declare."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rlvr.errors import UnsupportedError
from rlvr.parts import Backend, Policy, Tokenizer
from rlvr.testing.backend_losses import LikelihoodLoss
from rlvr.testing.contract import check_declarations, check_part, on_open, same
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
        assert all(isinstance(i, int) and i >= 0 for i in ids), f"special ids are {ids}"
        for prompt in self.prompts(policy):
            text, closing = tokenizer.decode(prompt), tokenizer.closing(prompt)
            assert isinstance(text, str), f"decode gives {text!r:.80}, no text"
            for i in prompt:
                found = tokenizer.bytes_of(i)
                assert isinstance(found, bytes), f"bytes_of({i}) gives {found!r:.80}, no bytes"
            assert all(isinstance(i, int) for i in closing), f"closing gives {closing!r:.80}"
            for end in tokenizer.ends:
                same("closing of a turn that has ended", tokenizer.closing([*prompt, end]), [])

    @on_open("make_backend")
    async def test_what_is_drawn_beside_it_changes_no_bit(self, backend: Backend) -> None:
        """If the backend declares it, a completion has the same bits alone and among others."""
        if backend.capabilities.batch_invariant:
            policy = await backend.policy()
            requests = self._requests(policy, 1.0)
            together = await policy.generate_many([*requests, *requests[:1]])
            for request, among in zip(requests, together, strict=False):
                alone = await policy.generate(request)
                one, other = alone.tokens.tolist(), among.tokens.tolist()
                same("batch_invariant, and tokens alone and among others", one, other)
                says = "batch_invariant, and logprobs have other bits among others"
                assert alone.logprobs.tobytes() == among.logprobs.tobytes(), says

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
            told = [(policy.version, policy.digest) for policy in (live, now)]
            same("version and digest of the live policy and of a new one", *told)
            for completion in await live.generate_many(self._requests(live, 1.0)):
                versions = {*completion.versions} or {now.version}
                same("versions of the live policy's tokens", versions, {now.version})
            await backend.update(data, LikelihoodLoss())

    @on_open("make_backend")
    async def test_exported_weights_are_written_or_refused(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        """A policy that can export leaves files; one that cannot says so."""
        policy = await backend.policy()
        if policy.can_export:
            await policy.export_weights(tmp_path)
            assert any(tmp_path.iterdir()), "can_export, and export_weights wrote no file"
            return
        with pytest.raises(UnsupportedError):
            await policy.export_weights(tmp_path)
