"""Server protocols and real servers: vLLM on the CPU, llama-cpp-python, with a tiny model."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlvr import (
    BackendError,
    BuildContext,
    GenerateRequest,
    SamplingParams,
    TeacherRequest,
    TopK,
    Trajectory,
    sample_groups,
)
from rlvr.testing.fakes.toy import ToyTask
from rlvr_servers.backend import ServedBackend
from rlvr_servers.config import ServersConfig
from rlvr_servers.protocols.choose import build_protocol
from rlvr_servers.protocols.vllm import Vllm
from rlvr_servers.server_sampler import VllmSampler
from rlvr_servers.teacher import ServerTeacher
from rlvr_servers.weight_push import Weights, push

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

TEXT = "the cat sat on the mat. the dog ate"


def scores(model: str, question: TeacherRequest, **options: Any) -> tuple[Any, TopK]:
    """What a served teacher can do, and its answer."""

    async def run() -> tuple[Any, TopK]:
        config = ServersConfig(**options)
        async with ServerTeacher(config, BuildContext(model=model)) as teacher:
            return teacher.capabilities, (await teacher.score([question]))[0]

    return asyncio.run(run())


def local(folder: Path, question: TeacherRequest, scheme: str = "gpt2") -> TopK:
    from rlvr_torch.teacher import TorchTeacher

    async def run() -> TopK:
        async with TorchTeacher(None, BuildContext(model=f"{scheme}:{folder}")) as teacher:
            return (await teacher.score([question]))[0]

    return asyncio.run(run())


def ids_of(folder: Path, text: str, *, begins: bool = False) -> list[int]:
    from rlvr_torch.models.bpe import BytePairTokenizer

    tokenizer = BytePairTokenizer.load(folder)
    return [tokenizer.eos_id] * begins + tokenizer.encode(text)


def gap(found: TopK, wanted: TopK) -> float:
    """Largest difference of an entry that both have, nats; the actual tokens' too."""
    worst = float(np.abs(found.actual - wanted.actual).max())
    for ids, row, more, other in zip(
        found.ids, found.logprobs, wanted.ids, wanted.logprobs, strict=True
    ):
        theirs = dict(zip(more.tolist(), other.tolist(), strict=True))
        apart = [abs(theirs[i] - v) for i, v in zip(ids.tolist(), row, strict=True) if i >= 0]
        worst = max([worst, *apart])
    return worst


def drawn(backend: Any, sampler: Any, **params: Any) -> list[Trajectory]:
    async def run() -> list[Trajectory]:
        async with backend as opened, sampler:
            task = ToyTask()
            asked = SamplingParams(max_tokens=8, group_size=3, **params)
            problems = list(task.problems("train"))[:2]
            groups = await sample_groups(sampler, await opened.policy(), task, problems, asked)
            return [t for group in groups for t in group.trajectories]

    return asyncio.run(run())


def parted(folder: Path, trajectories: list[Trajectory], scheme: str) -> float:
    """Largest difference of a drawn token's logprob from the local model's, nats."""
    worst = 0.0
    for one in trajectories:
        places = np.flatnonzero(one.mask)
        answer = local(folder, TeacherRequest(ids=one.tokens, start=int(places[0]), k=1), scheme)
        told = answer.actual[places - places[0]]
        worst = max(worst, float(np.abs(told - one.logprobs[places]).max()))
    return worst


# --- vLLM -----------------------------------------------------------------------------------------


def test_vllm_scores_as_the_local_teacher(vllm: str, llama: Path) -> None:
    """Its own limits are found (k 20, temperature 1) and its numbers are ours."""
    question = TeacherRequest(ids=ids_of(llama, TEXT), start=2, k=20)

    able, found = scores(f"vllm:{vllm}#tiny", question)

    assert (able.max_k, able.temperatures) == (20, (1.0,))
    whole = TeacherRequest(ids=question.ids, start=2, k=200)
    assert gap(found, local(llama, whole, "hf")) < 1e-4


def test_vllm_draws_with_ids_and_logprobs(vllm: str, llama: Path) -> None:
    """What an evaluation draws has the probability that the local model gives it."""
    context = BuildContext(model=f"vllm:{vllm}#tiny")

    found = drawn(ServedBackend(None, context), VllmSampler(None, context))

    assert len(found) == 6
    assert parted(llama, found, "hf") < 1e-4


def test_vllm_takes_adapters(vllm: str, llama: Path, tmp_path: Path) -> None:
    """One after another by name, the one before unloaded; peft finds the same logprobs."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    peft = pytest.importorskip("peft", reason="peft is not installed")
    from transformers import AutoModelForCausalLM

    ids = ids_of(llama, TEXT)

    async def told() -> list[float]:
        protocol, _, _ = await build_protocol(f"vllm:{vllm}#tiny", ServersConfig())
        assert isinstance(protocol, Vllm)
        gaps = []
        for number in (1, 2):
            torch.manual_seed(number)
            shape = peft.LoraConfig(
                r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM"
            )
            base = AutoModelForCausalLM.from_pretrained(llama)
            model = peft.get_peft_model(base, shape).eval()
            with torch.no_grad():
                for name, value in model.named_parameters():
                    if "lora_B" in name:
                        value.normal_(0, 0.3)
                rows = torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), -1)
            folder = tmp_path / str(number)
            model.save_pretrained(folder)
            wanted = [float(rows[t - 1][ids[t]]) for t in range(1, len(ids))]
            weights = Weights(directory=folder, seen_at=str(folder), label=f"test{number}")
            await push(protocol, weights)
            found = (await protocol.score(TeacherRequest(ids=ids, start=1, k=0))).actual
            gaps.append(float(np.abs(np.array(found) - wanted).max()))
        return gaps

    assert max(asyncio.run(told())) < 1e-4


def test_vllm_takes_the_weights_of_a_run(vllm: str, llama: Path, tmp_path: Path) -> None:
    """
    `reload_weights` through its dev mode: three steps, and no mismatch with the trainer.

    With a head apart: on a CPU vLLM 0.32 keeps the old copy of one tied to the embedding.
    """
    words = [
        "run", "--plugin", "toy", "--task", "toy", "--algo", "grpo", "--backend", "torch",
        "--model", f"hf:{llama}", "--sampler", "vllm", f"servers.url={vllm}#tiny",
        "--steps", "3", "--out", "r", "train.problems=2", "sampler.group_size=2",
        "sampler.max_tokens=8", "eval.samples=0", "train.lr=0.01", "toy.length=8",
    ]  # fmt: skip
    env = {"RLVR_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}

    done = subprocess.run(
        [sys.executable, "-m", "rlvr.cli.main", *words],
        cwd=tmp_path,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    text = (tmp_path / "r" / "metrics.jsonl").read_text()
    gaps = [row["parity/max"] for row in map(json.loads, text.splitlines()) if "parity/max" in row]
    assert len(gaps) == 3
    assert max(gaps) < 1e-3


# --- llama-cpp-python -----------------------------------------------------------------------------


def served(*args: Any, **options: Any) -> Any:
    """`llama_cpp` of the conftest beside this file."""
    path = Path(__file__).with_name("conftest.py")
    spec = importlib.util.spec_from_file_location("rlvr_servers_real", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.llama_cpp(*args, **options)


def test_llama_cpp_scores_as_the_local_teacher(
    model: Path, begun_model: Path, tmp_path: Path
) -> None:
    """Prompts go as texts, tokens are told by theirs; llama.cpp rounds at 1e-3 nats."""
    question = TeacherRequest(ids=ids_of(model, TEXT, begins=True), start=3, k=8)

    with served(model, tmp_path, begins=True) as url:
        able, found = scores(f"server:{url}#tiny", question, tokenizer=str(begun_model))

    assert able.is_partial
    assert able.temperatures == (1.0,)
    assert gap(found, local(model, TeacherRequest(ids=question.ids, start=3, k=300))) < 5e-3


def test_llama_cpp_without_a_begin_token_is_found_out(model: Path, tmp_path: Path) -> None:
    """Its echo is then one place off, and looks right: refused at the start."""
    question = TeacherRequest(ids=ids_of(model, TEXT), start=3, k=8)

    with (
        served(model, tmp_path, begins=False) as url,
        pytest.raises(BackendError, match="one place off"),
    ):
        scores(f"server:{url}#tiny", question, tokenizer=str(model))


def test_llama_cpp_draws_with_logprobs(model: Path, begun_model: Path, tmp_path: Path) -> None:
    """A drawn text is an id where one token alone is written so; else it is refused, and said."""
    from rlvr_torch.models.bpe import BytePairTokenizer

    tokenizer = BytePairTokenizer.load(model)
    config = ServersConfig(tokenizer=str(begun_model))
    told = 0
    with served(model, tmp_path, begins=True) as url:
        context = BuildContext(model=f"openai:{url}#tiny")
        for letters in ("a=", "the cat", "the", "dog", "x", "the mat"):
            ids = ids_of(model, letters, begins=True)
            row = local(model, TeacherRequest(ids=[*ids, 0], start=len(ids), k=300))
            best = int(row.ids[0][int(row.logprobs[0].argmax())])
            try:
                tokenizer.bytes_of(best).decode()
            except UnicodeDecodeError:
                continue
            request = GenerateRequest(
                prompt=ids, params=SamplingParams(max_tokens=1, temperature=0.0), seed=1
            )

            (found,) = asyncio.run(generated(config, context, request))

            told += 1
            assert found.tokens.tolist() == [best]
            assert abs(float(found.logprobs[0]) - float(row.logprobs[0].max())) < 5e-3
    assert told


async def generated(config: Any, context: BuildContext, request: GenerateRequest) -> Any:
    async with ServedBackend(config, context) as backend:
        policy = await backend.policy()
        return await policy.generate(request)
