"""
Reading and tokenising agent trajectories: records/s and tokens/s, against the naive way.

    python benchmarks/bench_trajectories.py [--records 60] [--turns 8] [--data FILE...] [--json]

The naive way finds where spans lie in the tokens by encoding the text again up to the end of each
span, as DeepCoder-style collators do: its cost grows with the square of a trajectory's length.
Ours encodes a text once. Both use one byte-level BPE of 4,000 tokens, trained here on the same
texts. Rows: reading alone; reading and tokenising; the same from the cache; the naive way over the
texts already read. CPU-seconds of this process, which a busy machine does not change much; wall
seconds stand beside them. The corpus is generated (a seed), or the files of --data.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from rlvr import Tokenizer
from rlvr_sad.sessions.cache import TrajectoryCache
from rlvr_sad.sessions.prepare import Ready, files_of, prepare, trajectories_of
from rlvr_sad.trajectory import CODES, AgentTrajectory

WORDS = [
    *("the", "a", "search", "file", "test", "error", "result", "function", "returns", "value"),
    *("of", "in", "and", "to", "is", "that", "agent", "opens", "reads", "writes", "list", "city"),
    *("config", "parser", "token", "index", "model", "country", "author", "album", "published"),
]


class Bpe(Tokenizer):
    """A byte-level BPE with the bytes of each token."""

    has_bytes = True

    def __init__(self, texts: Iterator[str]) -> None:
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers, trainers

        self.inner = tokenizers.Tokenizer(models.BPE())
        self.inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.inner.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=4000, initial_alphabet=alphabet, show_progress=False
        )
        self.inner.train_from_iterator(texts, trainer)
        self.vocab_size = self.inner.get_vocab_size()
        self.eos_id = 0
        shown = _bytes_of_characters()
        spelled = (self.inner.id_to_token(i) for i in range(self.vocab_size))
        self._bytes = [bytes(shown[c] for c in token) for token in spelled]

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.inner.encode(text).ids
        return ids

    def bytes_of(self, token: int) -> bytes:
        return self._bytes[token]

    def decode(self, tokens: Any) -> str:
        return b"".join(self._bytes[t] for t in tokens).decode("utf-8", "replace")

    def render(self, messages: Any, *, first: bool = True) -> list[int]:
        return self.encode("\n".join(m.content for m in messages))


def _bytes_of_characters() -> dict[str, int]:
    """GPT-2's table: printable bytes stand for themselves, the others from 256 on."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in kept}
    others = (b for b in range(256) if b not in set(kept))
    table.update({chr(256 + n): b for n, b in enumerate(others)})
    return table


def generated(records: int, turns: int, seed: int) -> Iterator[str]:
    """Chats with tools: a thought, a call, and a longer observation, some times over."""
    rng = random.Random(seed)

    def prose(low: int, high: int) -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(low, high)))

    for number in range(records):
        messages: list[Any] = [{"role": "user", "content": prose(10, 60)}]
        for _ in range(turns):
            arguments = json.dumps({"query": prose(2, 6)})
            call = {"function": {"name": "search", "arguments": arguments}}
            messages += [
                {"role": "assistant", "content": prose(15, 60), "tool_calls": [call]},
                {"role": "tool", "content": prose(60, 400)},
            ]
        messages.append({"role": "assistant", "content": f"{number} {prose(5, 30)}"})
        yield json.dumps({"messages": messages})


def naive(trajectory: AgentTrajectory, tokenizer: Bpe) -> np.ndarray:
    """Types of the tokens: how many tokens the text has up to the end of each span."""
    text = trajectory.text
    types = np.zeros(len(tokenizer.encode(text)), np.uint8)
    before = 0
    for span in trajectory.spans():
        after = len(tokenizer.encode(text[: span.end]))
        types[before:after] = CODES[span.type]
        before = after
    return types


def timed(name: str, work: Callable[[], tuple[int, int]]) -> dict[str, Any]:
    """A row: what `work` gives are records and tokens."""
    started, cpu = time.perf_counter(), time.process_time()
    records, tokens = work()
    cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - started
    return {
        "row": name,
        "records": records,
        "tokens": tokens,
        "cpu_s": cpu_s,
        "wall_s": wall_s,
        "records_per_cpu_s": records / cpu_s,
        "tokens_per_cpu_s": tokens / cpu_s,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Reading and tokenising trajectories")
    parser.add_argument("--records", type=int, default=60)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = files_of(args.data) if args.data else [Path(folder) / "corpus.jsonl"]
        if not args.data:
            paths[0].write_text("\n".join(generated(args.records, args.turns, args.seed)))
        read = [t for t in trajectories_of(paths) if isinstance(t, AgentTrajectory)]
        bpe = Bpe(t.text for t in read)
        rows, differing = measured(paths, read, bpe, Path(folder) / "cache.sqlite")
    if args.json:
        print(json.dumps({"rows": rows, "tokens_labelled_otherwise": differing}, indent=2))
        return 0
    print(
        f"{'':32}{'records':>8}{'tokens':>10}{'CPU-s':>8}{'wall-s':>8}{'records/s':>11}{'tokens/s':>11}"
    )
    for r in rows:
        print(
            f"{r['row']:32}{r['records']:8}{r['tokens']:10}{r['cpu_s']:8.2f}{r['wall_s']:8.2f}"
            f"{r['records_per_cpu_s']:11.0f}{r['tokens_per_cpu_s']:11.0f}"
        )
    ratio = rows[-1]["cpu_s"] / (rows[1]["cpu_s"] - rows[0]["cpu_s"])
    print(f"naive against ours, tokenising alone: {ratio:.1f} times the CPU-seconds")
    print(f"tokens that the naive way labels otherwise: {differing}")
    return 0


def measured(
    paths: list[Path], read: list[AgentTrajectory], bpe: Bpe, store: Path
) -> tuple[list[dict[str, Any]], int]:
    """The rows, and how many tokens the two ways label differently."""
    ours: list[np.ndarray] = []

    def prepared(cache: TrajectoryCache | None, keep: bool = False) -> tuple[int, int]:
        records = tokens = 0
        for one in prepare(paths, load_tokenizer=lambda: bpe, cache=cache):
            if isinstance(one, Ready) and one.tokens is not None:
                records, tokens = records + 1, tokens + len(one.tokens.ids)
                if keep:
                    ours.append(one.tokens.types)
        return records, tokens

    def reading() -> tuple[int, int]:
        return sum(isinstance(one, Ready) for one in prepare(paths)), 0

    others: list[np.ndarray] = []

    def naively() -> tuple[int, int]:
        others.extend(naive(t, bpe) for t in read)
        return len(read), sum(map(len, others))

    with closing(TrajectoryCache(store)) as cache:
        prepared(cache)  # fills it
        rows = [
            timed("read", reading),
            timed("read, tokenise", lambda: prepared(None, keep=True)),
            timed("read, tokenise: from the cache", lambda: prepared(cache)),
            timed("naive prefixes (tokenise alone)", naively),
        ]
    return rows, sum(int((a != b).sum()) for a, b in zip(ours, others, strict=True))


if __name__ == "__main__":
    sys.exit(main())
