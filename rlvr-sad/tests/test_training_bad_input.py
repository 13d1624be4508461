"""Bad input of a training run: a clear error with its exit code, or a counted drop."""

from __future__ import annotations

import json

import numpy as np
import pytest
from training_fixture import Bench, bench_in, chats

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Models and logs, once for all tests of this file."""
    return bench_in(tmp_path_factory.mktemp("bad"))


def test_bad_records_are_dropped_and_the_others_learnt(bench: Bench) -> None:
    """A single line of 200 MB, bytes that are no UTF-8, broken JSON, nothing to learn: all said."""
    good = [json.dumps(one).encode() for one in chats(6)]
    silent = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}]}
    huge = b'{"messages": "' + b"x" * (200 << 20) + b'"}'
    bad = [b'{"messages": "\xff\xfe"}', b"{broken", json.dumps(silent).encode(), huge]
    path = bench.folder / "mixed.jsonl"
    path.write_bytes(b"\n".join([good[0], *bad, *good[1:]]))
    done = bench.train("--dataset mixed.jsonl --out mixed eval.samples=0")
    path.unlink()

    assert done.returncode == 0, done.stderr[-3000:]
    assert "6 trajectories of 3 tasks" in done.stderr
    assert "1 trajectory with nothing to learn: mixed.jsonl:4 record 3" in done.stderr
    assert "3 records left out" in done.stderr
    for said in ("it is not UTF-8: byte 0xff", "it is no JSON", "it has 200 MiB"):
        assert said in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfeq\x00", "it is UTF-16"),
        (b"", "the file is empty"),
        (b'{"messages": [{"role": "user", "content": "q"}]}', "nothing can be learnt"),
    ],
)
def test_nothing_to_train_on(bench: Bench, content: bytes, said: str) -> None:
    """A file without a usable trajectory: exit 2, with the reason."""
    (bench.folder / "nothing.jsonl").write_bytes(content)
    done = bench.train("--dataset nothing.jsonl --out nothing")

    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "there is nothing to train on" in done.stderr
    assert "Traceback" not in done.stderr


def test_options_that_cannot_be(bench: Bench) -> None:
    """No data set; a teacher that is none; no teacher: exit 2 or 3, and what to do."""
    base = f"run --plugin sad --algo sad --model {bench.student} --steps 1 --out bad"
    for words, code, said in (
        (f"{base} --teacher {bench.teacher}", 2, "--dataset"),
        (f"{base} --dataset chat.jsonl", 2, "--teacher"),
        (f"{base} --dataset chat.jsonl,gone.jsonl", 2, "the data set gone.jsonl"),
        (f"{base} --dataset chat.jsonl --teacher file:nowhere", 2, "cache-teacher"),
        (f"{base} --dataset chat.jsonl --teacher abc:x", 3, "teachers can be"),
    ):
        done = bench.rlvr(words)
        assert done.returncode == code, (words, done.stderr)
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_a_larger_vocabulary_is_another_tokenizer(bench: Bench) -> None:
    """A teacher with more tokens is aligned by bytes, aloud, and the student learns."""
    from rlvr_torch.models.bpe import BytePairTokenizer

    folder = bench.folder / "larger"
    folder.mkdir()
    texts = [json.dumps(one) for one in chats(40)]
    BytePairTokenizer.train(texts, 600, min_frequency=1).save(folder)
    teacher = f"gpt2:new?layers=1&heads=2&width=32&positions=256&tokenizer={folder}/tokenizer.json"
    done = bench.train(f"--teacher {teacher} --out larger-run distill.top_k=16 eval.samples=0")

    assert done.returncode == 0, done.stderr[-3000:]
    assert "teacher_aligned_by_bytes" in done.stderr
    assert 0 < bench.lines("larger-run", "metrics.jsonl")[-1]["align/1-1"] < 1


def test_a_padded_vocabulary_is_the_same_tokenizer(bench: Bench) -> None:
    """Rows that no token has, in the teacher's head alone: both are cut to the tokenizer's size."""
    bench.tiny_llama("padded", unused=56)
    done = bench.train("--teacher hf:padded --out padded-run eval.samples=0")

    assert done.returncode == 0, done.stderr[-3000:]
    assert np.isfinite(bench.lines("padded-run", "metrics.jsonl")[-1]["loss"])


@pytest.mark.thorough
def test_a_teacher_that_breaks_and_a_run_that_goes_on(bench: Bench) -> None:
    """NaN weights: exit 6, the model is named; with sound weights again, --resume goes on."""
    torch = pytest.importorskip("torch")
    folder, model = bench.folder / "sick", bench.tiny_llama("sick")
    words = "--teacher hf:sick --out sick-run checkpoint.every=1 eval.samples=0 --steps"
    assert bench.train(words, 1).returncode == 0
    with torch.no_grad():
        model.model.norm.weight.fill_(torch.nan)
    model.save_pretrained(folder)
    broken = bench.rlvr("run --resume sick-run --steps 2", forks=True)
    assert broken.returncode == 6, broken.stderr
    assert f"{folder.name}" in broken.stderr
    assert "Traceback" not in broken.stderr
    with torch.no_grad():
        model.model.norm.weight.fill_(1.0)
    model.save_pretrained(folder)
    assert bench.rlvr("run --resume sick-run --steps 2").returncode == 0
    assert [r["step"] for r in bench.lines("sick-run", "metrics.jsonl")] == [1, 2]
