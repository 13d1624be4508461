"""Teachers behind doubles that compute with a real model: the local numbers, or errors."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import structlog

from rlvr import (
    BackendError,
    BuildContext,
    ConfigError,
    Datum,
    PrerequisiteError,
    RlvrError,
    Teacher,
    TeacherRequest,
    TopK,
)
from rlvr.testing import TeacherContract
from rlvr_servers.config import ServersConfig
from rlvr_servers.teacher import ServerTeacher

Start = Callable[..., Any]
KINDS = ("vllm", "sglang", "echo")
FAST: dict[str, Any] = {"backoff_s": 0.0, "retries": 1}
WORDS = "the cat sat on the mat, the dog ate it"


def config(server: Any, **options: Any) -> ServersConfig:
    where = str(server.folder) if server.kind == "echo" else ""
    return ServersConfig(**{"tokenizer": where, **FAST, **options})


def ask(server: Any, body: Callable[[ServerTeacher], Any], **options: Any) -> Any:
    """Open the teacher of a double, and do something with it."""

    async def run() -> Any:
        context = BuildContext(model=server.spec)
        async with ServerTeacher(config(server, **options), context) as teacher:
            return await body(teacher)

    return asyncio.run(run())


def local(folder: Path, question: TeacherRequest) -> TopK:
    """What the local teacher answers."""
    from rlvr_torch.teacher import TorchTeacher

    async def run() -> TopK:
        async with TorchTeacher(None, BuildContext(model=f"gpt2:{folder}")) as teacher:
            return (await teacher.score([question]))[0]

    return asyncio.run(run())


def byte_ids(text: str) -> list[int]:
    from rlvr_torch.models.bpe import BytePairTokenizer

    return BytePairTokenizer.bytes_only().encode(text)


def datum(length: int = 12, first: int = 4, last: int = 9, temperature: float = 1.0) -> Datum:
    mask = np.zeros(length, bool)
    mask[first : last + 1] = True
    tokens = byte_ids(WORDS[:length])
    return Datum(
        tokens=tokens,
        mask=mask,
        logprobs=-1.0 * mask,
        advantages=mask,
        weights=mask / mask.sum(),
        temperature=temperature,
    )


def question(
    k: int = 5, start: int = 3, length: int = 12, temperature: float = 1.0
) -> TeacherRequest:
    return TeacherRequest(ids=datum(length).tokens, start=start, k=k, temperature=temperature)


def same(found: TopK, wanted: TopK) -> None:
    for ids, row, other_ids, other in zip(
        found.ids, found.logprobs, wanted.ids, wanted.logprobs, strict=True
    ):
        mine = dict(zip(ids.tolist(), row.tolist(), strict=True))
        theirs = dict(zip(other_ids.tolist(), other.tolist(), strict=True))
        assert mine.keys() == theirs.keys()
        assert all(abs(mine[i] - theirs[i]) < 1e-4 for i in mine)
    assert np.abs(found.actual - wanted.actual).max() < 1e-4


# --- the same numbers as on this machine ----------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_says_what_the_local_teacher_says(
    double: Start, byte_model: Path, kind: str
) -> None:
    """The k likeliest tokens with their logprobs, and the actual token's, by each protocol."""
    server = double(kind, byte_model)

    (found,) = ask(server, lambda t: t.score([question(k=7)]))

    same(found, local(byte_model, question(k=7)))


def test_answers_are_not_kept_as_objects(double: Start, byte_model: Path) -> None:
    """Each becomes arrays when it is there: a step's rows of objects would fill the memory."""
    server = double("sglang", byte_model)
    gc.freeze()  # else each look goes through all that is imported

    async def body(teacher: ServerTeacher) -> list[int]:
        protocol: Any = teacher._protocol
        score, told, alive = type(protocol).score, [], []

        async def watched(self: Any, *asked: Any, **options: Any) -> Any:
            found = await score(self, *asked, **options)
            gc.collect()
            alive.append(sum(one() is not None for one in told))
            told.append(weakref.ref(found))
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(protocol), "score", watched)
            await teacher.score([question(k=5, start=3, length=n) for n in (6, 8, 10, 12)])
        return alive

    try:
        assert ask(server, body, concurrency=1) == [0, 0, 0, 0]
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("kind", KINDS)
def test_logprobs_are_those_of_the_actual_tokens(
    double: Start, byte_model: Path, kind: str
) -> None:
    """`logprobs` is `score`'s `actual` at the policy's tokens; 0 elsewhere and at a first token."""
    one, first = datum(), datum(first=0, last=0)

    values, none = ask(double(kind, byte_model), lambda t: t.logprobs([one, first]))

    wanted = local(byte_model, question(start=4)).actual
    assert np.abs(values[4:10] - wanted[:6]).max() < 1e-4
    assert not values[~one.mask].any()
    assert not none.any()


@pytest.mark.parametrize("kind", ["vllm", "echo"])
def test_a_temperature_that_is_honoured_is_found_and_used(
    double: Start, byte_model: Path, kind: str
) -> None:
    """The probe compares spreads; questions at 0.5 then get the rows of 0.5."""
    server = double(kind, byte_model, honours=True)
    cold = question(temperature=0.5)

    able, (found,) = ask(server, lambda t: _able(t, cold))

    assert able.temperatures is None
    same(found, local(byte_model, cold))


async def _able(teacher: ServerTeacher, *questions: TeacherRequest) -> tuple[Any, Any]:
    return teacher.capabilities, await teacher.score(questions)


@pytest.mark.parametrize("kind", KINDS)
def test_a_temperature_that_is_not_honoured_is_found_and_refused(
    double: Start, byte_model: Path, kind: str
) -> None:
    """Logprobs of another temperature are never taken for those that were asked for."""
    server = double(kind, byte_model)

    able, _ = ask(server, _able)
    assert able.temperatures == (1.0,)
    with pytest.raises(BackendError, match=r"at temperature 0\.7"):
        ask(server, lambda t: t.score([question(temperature=0.7)]))
    with pytest.raises(BackendError, match="processed_logprobs"):
        ask(server, lambda t: t.logprobs([datum(temperature=0.7)]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("most", "cuts", "found"), [(1, False, 1), (9, True, 9), (0, False, 0)])
def test_the_largest_k_is_found(
    double: Start, byte_model: Path, kind: str, most: int, cuts: bool, found: int
) -> None:
    """From the refusal's words, from what comes back; 0 for the whole vocabulary."""
    server = double(kind, byte_model, most_k=most, cuts_k=cuts)

    able, _ = ask(server, _able)

    assert able.max_k == found
    if most:
        with pytest.raises(BackendError, match=f"the server gives {most} at most"):
            ask(server, lambda t: t.score([question(k=most + 1)]))


def test_the_largest_k_is_found_where_a_refusal_names_no_number(
    double: Start, byte_model: Path
) -> None:
    """By halving: an answer of 500 counts as a no, and is not repeated."""
    server = double("vllm", byte_model, most_k=0)
    server.faults = lambda _p, request, _n: (
        (500, "too many") if (request.get("prompt_logprobs") or 0) > 37 else None
    )

    able, _ = ask(server, _able)

    assert able.max_k == 37


def test_a_whole_distribution_is_one(double: Start, byte_model: Path) -> None:
    """With k the vocabulary nothing is left over, and the answer says so."""
    (found,) = ask(double("vllm", byte_model, most_k=0), lambda t: t.score([question(k=257)]))

    assert found.is_whole
    assert np.allclose(np.exp(found.logprobs.astype(float)).sum(-1), 1.0, atol=1e-4)


def test_sglang_begins_at_the_start_that_was_asked(double: Start, byte_model: Path) -> None:
    """`logprob_start_len` is start - 1: a cached prefix is not computed again; nothing is drawn."""
    server = double("sglang", byte_model)

    ask(server, lambda t: t.score([question(start=6)]))

    _, last = server.requests[-1]
    assert last["logprob_start_len"] == 5
    assert last["sampling_params"]["max_new_tokens"] == 0


def test_sglang_builds_that_must_draw_a_token_draw_one(double: Start, byte_model: Path) -> None:
    """max_new_tokens 0 refused: 1 from then on."""
    server = double("sglang", byte_model)
    server.faults = lambda _p, request, _n: (
        (400, {"error": {"message": "max_new_tokens must be at least 1"}})
        if request.get("sampling_params", {}).get("max_new_tokens") == 0
        else None
    )

    (found,) = ask(server, lambda t: t.score([question()]))

    same(found, local(byte_model, question()))


def test_texts_of_tokens_are_told_apart_or_left_to_the_rest(
    double: Start, byte_model: Path
) -> None:
    """Half of the 257 bytes alone are U+FFFD: those go into the rest, no other id is named."""
    server = double("echo", byte_model, takes_ids=False, spells_ids=False)

    with structlog.testing.capture_logs() as logs:
        able, (found, _) = ask(server, lambda t: _able(t, question(k=20), question(k=20)))

    wanted = local(byte_model, question(k=257))
    assert [e["event"] for e in logs].count("likely_tokens_lost") == 1, "it is said once"
    assert able.is_partial
    assert np.abs(found.actual - wanted.actual).max() < 1e-4
    assert (found.ids >= 0).any()
    for ids, row, all_ids, all_row in zip(
        found.ids, found.logprobs, wanted.ids, wanted.logprobs, strict=True
    ):
        every = dict(zip(all_ids.tolist(), all_row.tolist(), strict=True))
        assert all(abs(every[i] - v) < 1e-4 for i, v in zip(ids, row, strict=True) if i >= 0)


@pytest.mark.parametrize("kind", KINDS)
def test_requests_are_bounded_and_answers_in_order(
    double: Start, byte_model: Path, kind: str
) -> None:
    """Never more than servers.concurrency at a time; each question gets its own answer."""
    server = double(kind, byte_model, delay_s=0.02)
    asked = [question(length=n) for n in (12, 5, 9, 12, 7, 6, 10, 8)]

    found = ask(server, lambda t: t.score(asked), concurrency=3)

    assert 1 < server.most_busy <= 3
    for one, answer in zip(asked, found, strict=True):
        same(answer, local(byte_model, one))


# --- what goes wrong ------------------------------------------------------------------------------


def fails(
    server: Any, fault: Callable[[str, dict[str, Any], int], Any], **options: Any
) -> RlvrError:
    """The error of a question, once the teacher is open."""

    async def body(teacher: ServerTeacher) -> Any:
        server.faults = fault
        return await teacher.score([question()])

    with pytest.raises(BackendError) as caught:
        ask(server, body, **options)
    assert caught.value.exit_code == 6
    return caught.value


def changed(change: Callable[[Any], None]) -> Callable[[str, dict[str, Any], int], Any]:
    """A fault that changes what the server answers."""

    def fault(_path: str, _request: dict[str, Any], _number: int) -> Any:
        def apply(found: Any) -> Any:
            change(found)
            return found

        return apply

    return fault


def _other_vllm(found: Any) -> None:
    row = found["choices"][0]["prompt_logprobs"][5]
    found["choices"][0]["prompt_logprobs"][5] = {str(int(i) + 300): e for i, e in row.items()}


def _other_sglang(found: Any) -> None:
    found["meta_info"]["input_token_logprobs"][2][1] += 1


def _other_echo(found: Any) -> None:
    found["choices"][0]["logprobs"]["tokens"][5] = "token_id:3"


@pytest.mark.parametrize(
    ("kind", "change"),
    [("vllm", _other_vllm), ("sglang", _other_sglang), ("echo", _other_echo)],
)
def test_other_ids_are_an_error(double: Start, byte_model: Path, kind: str, change: Any) -> None:
    """Not repeated: what is scored is not what was sent."""
    server = double(kind, byte_model)

    error = fails(server, changed(change))

    assert "it scored other ids" in str(error)
    assert "servers.tokenizer=PATH" in str(error)


def _cut_vllm(found: Any) -> None:
    row = found["choices"][0]["prompt_logprobs"][5]
    for token in sorted(row, key=lambda i: row[i]["rank"])[3:5]:
        del row[token]


def _cut_sglang(found: Any) -> None:
    del found["meta_info"]["input_top_logprobs"][2][3:]


def _cut_echo(found: Any) -> None:
    row = found["choices"][0]["logprobs"]["top_logprobs"][5]
    del row[next(iter(row))]


@pytest.mark.parametrize(
    ("kind", "change"), [("vllm", _cut_vllm), ("sglang", _cut_sglang), ("echo", _cut_echo)]
)
def test_fewer_logprobs_than_asked_are_an_error(
    double: Start, byte_model: Path, kind: str, change: Any
) -> None:
    """While probability is missing; the error says how many came and what to allow."""
    error = fails(double(kind, byte_model), changed(change))

    assert "asked for the 5 likeliest tokens" in str(error)
    assert "--max-logprobs" in str(error)


def _nan_vllm(found: Any) -> None:
    for entry in found["choices"][0]["prompt_logprobs"][5].values():
        entry["logprob"] = math.nan


def _nan_sglang(found: Any) -> None:
    found["meta_info"]["input_token_logprobs"][3][0] = math.nan


def _nan_echo(found: Any) -> None:
    found["choices"][0]["logprobs"]["token_logprobs"][5] = math.nan


@pytest.mark.parametrize(
    ("kind", "change"), [("vllm", _nan_vllm), ("sglang", _nan_sglang), ("echo", _nan_echo)]
)
def test_nan_is_an_error(double: Start, byte_model: Path, kind: str, change: Any) -> None:
    """With its usual reason, a precision too low."""
    error = fails(double(kind, byte_model), changed(change))

    assert "found: NaN" in str(error)
    assert "higher precision" in str(error)


def test_logits_are_no_logprobs(double: Start, byte_model: Path) -> None:
    """A server with --logprobs-mode raw_logits is found out by a number above 0."""

    def lift(found: Any) -> None:
        for entry in found["choices"][0]["prompt_logprobs"][5].values():
            entry["logprob"] += 20.0

    assert "more than 0" in str(fails(double("vllm", byte_model), changed(lift)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_500_that_passes_is_repeated(double: Start, byte_model: Path, kind: str) -> None:
    """After a pause the same question is asked again, and the answer is as if nothing was."""
    server = double(kind, byte_model)
    broken: list[int] = []

    def fault(_path: str, _request: dict[str, Any], number: int) -> Any:
        if len(broken) < 2:
            broken.append(number)
            return (500, "engine busy") if len(broken) == 1 else "die"
        return None

    async def body(teacher: ServerTeacher) -> Any:
        server.faults = fault
        return await teacher.score([question()])

    (found,) = ask(server, body, retries=3)

    assert len(broken) == 2
    same(found, local(byte_model, question()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_500_that_stays_is_an_error(double: Start, byte_model: Path, kind: str) -> None:
    """With the server's words, and how often it was asked."""
    error = fails(double(kind, byte_model), lambda *_: (500, {"error": {"message": "died"}}))

    assert "HTTP 500: died (2 tries)" in str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_dies_in_the_middle_is_an_error(
    double: Start, byte_model: Path, kind: str
) -> None:
    """Some questions were answered, then nobody listens: the others are not waited for."""
    server = double(kind, byte_model)

    async def body(teacher: ServerTeacher) -> Any:
        await teacher.score([question()])
        server.stop()
        return await teacher.score([question()] * 20)

    begun = time.monotonic()
    with pytest.raises(BackendError, match="did not answer") as caught:
        ask(server, body, concurrency=4)

    assert "--resume" in str(caught.value)
    assert time.monotonic() - begun < 30


def test_a_slow_server_meets_the_deadline(double: Start, byte_model: Path) -> None:
    """Not repeated past servers.deadline_s, though repetitions are left."""
    server = double("vllm", byte_model)

    async def body(teacher: ServerTeacher) -> Any:
        server.delay_s = 5.0
        return await teacher.score([question()])

    begun = time.monotonic()
    with pytest.raises(BackendError, match="deadline"):
        ask(server, body, timeout_s=1.0, deadline_s=2.0, retries=9)

    assert time.monotonic() - begun < 15


@pytest.mark.parametrize(
    "body", ["{", "[]", '{"choices": []}', '{"choices": [{"index": 0}]}', '{"meta_info": 3}']
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_answer_is_an_error(
    double: Start, byte_model: Path, kind: str, body: str
) -> None:
    """A proxy's half sentence is asked for again, then said; never a traceback."""
    error = fails(double(kind, byte_model), lambda *_: (200, body))

    assert "found:" in str(error)


def test_an_answer_without_end_is_given_up(
    double: Start, byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is longer than any answer is not read into memory, and not taken cut off."""
    monkeypatch.setattr("rlvr_servers.client.http.MOST_BYTES", 1 << 20)
    server = double("vllm", byte_model)

    error = fails(server, lambda *_: (200, " " * (2 << 20)))

    assert "a reply of more than 1 MiB" in str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_that_is_too_long_is_refused(double: Start, byte_model: Path, kind: str) -> None:
    """Before it is sent where the server told its context; else with the server's words."""
    server = double(kind, byte_model)
    long = TeacherRequest(ids=[40] * 64, start=60, k=2)

    with pytest.raises(BackendError, match="64 tokens"):
        ask(server, lambda t: t.score([long]))


# --- at the start ---------------------------------------------------------------------------------


def test_a_server_that_only_chats_is_refused_with_the_reason(
    double: Start, byte_model: Path
) -> None:
    """No logprobs of a prompt: what it can do is said, and what can teach."""
    server = double("echo", byte_model)
    server.faults = lambda path, _r, _n: (
        (404, {"detail": "Not Found"}) if path == "/v1/completions" else None
    )

    with pytest.raises(BackendError, match="only chats gives logprobs of what it writes"):
        ask(server, _able)


def test_an_echo_without_logprobs_is_refused(double: Start, byte_model: Path) -> None:
    """A server that ignores `echo` and `logprobs` answers 200, and teaches nothing."""

    def blank(found: Any) -> None:
        found["choices"][0]["logprobs"] = None

    server = double("echo", byte_model)
    server.faults = lambda path, r, n: (
        changed(blank)(path, r, n) if path == "/v1/completions" else None
    )

    with pytest.raises(BackendError, match="gives none: the answer holds no logprobs"):
        ask(server, _able)


def test_an_echo_that_is_one_place_off_is_found_out(double: Start, byte_model: Path) -> None:
    """As llama-cpp-python's is without a begin token: right ids beside another place's numbers."""

    def shift(found: Any) -> None:
        logprobs = found["choices"][0]["logprobs"]
        if len(logprobs["tokens"]) > 1:
            for name in ("token_logprobs", "top_logprobs"):
                logprobs[name] = [None, *logprobs[name][2:], logprobs[name][-1]]

    server = double("echo", byte_model)
    server.faults = lambda path, r, n: changed(shift)(path, r, n) if r.get("echo") else None

    with pytest.raises(BackendError, match="one place off"):
        ask(server, _able)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_another_tokenizer_is_found_out(
    double: Start, byte_model: Path, toy_model: Path, kind: str
) -> None:
    """The server's ids spell another text here: nothing is scored with them."""
    server = double(kind, byte_model)

    with pytest.raises(ConfigError, match=r"was to read ids of the tokenizer") as caught:
        ask(server, _able, tokenizer=str(_shifted(toy_model.parent / kind, byte_model)))

    assert "servers.tokenizer=PATH" in str(caught.value)


def _shifted(folder: Path, model: Path) -> Path:
    """The model's tokenizer with two letters exchanged."""
    folder.mkdir(parents=True, exist_ok=True)
    found = json.loads((model / "tokenizer.json").read_text())
    vocab = found["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (folder / "tokenizer.json").write_text(json.dumps(found))
    (folder / "tokenizer_config.json").write_text((model / "tokenizer_config.json").read_text())
    return folder


def test_a_tokenizer_must_be_named_where_the_server_names_none(
    double: Start, byte_model: Path
) -> None:
    """Exit 2 with the option; a file alone is enough."""
    server = double("echo", byte_model)

    with pytest.raises(ConfigError, match=r"servers\.tokenizer=PATH"):
        ask(server, _able, tokenizer="")
    with pytest.raises(PrerequisiteError, match="to be read"):
        ask(server, _able, tokenizer=str(byte_model / "absent"))
    able, _ = ask(server, _able, tokenizer=str(byte_model / "tokenizer.json"))
    assert able.max_k == 20


def test_a_server_that_is_not_there_is_a_missing_prerequisite(byte_model: Path) -> None:
    """Port 9 of this machine: nobody listens. Exit 4."""
    teacher = ServerTeacher(None, BuildContext(model="vllm:http://127.0.0.1:9#m"))

    with pytest.raises(PrerequisiteError, match=r"vLLM server .* cannot be reached"):
        asyncio.run(teacher.__aenter__())


def test_what_the_probe_found_is_said(double: Start, byte_model: Path) -> None:
    """One line of the log: k, temperatures, context, ids, weights."""
    with structlog.testing.capture_logs() as logs:
        ask(double("vllm", byte_model), _able)

    (line,) = [entry for entry in logs if entry["event"] == "teacher_probed"]
    assert (line["max_k"], line["temperatures"], line["context"]) == (20, "1 only", 63)
    assert (line["ids"], line["weights"]) == ("compared", "version not told")


# --- the contract ---------------------------------------------------------------------------------


class _Contract(TeacherContract):
    kind: ClassVar[str]
    temperatures: ClassVar[tuple[float, ...]] = (1.0,)

    @pytest.fixture(autouse=True)
    def _server(self, double: Start, toy_model: Path) -> None:
        self.server = double(self.kind, toy_model, most_k=0)

    def make_teacher(self) -> Teacher:
        return ServerTeacher(config(self.server), BuildContext(model=self.server.spec))


class TestVllmTeacher(_Contract):
    kind = "vllm"


class TestSglangTeacher(_Contract):
    kind = "sglang"


@pytest.mark.thorough
class TestEchoTeacher(_Contract):
    kind = "echo"
