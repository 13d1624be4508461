"""Tiny models that share a tokenizer, logs of several formats, and the command line."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from rlvr_here import rlvr_here
from rlvr_process import run_rlvr


@frozen
class Bench:
    """
    A folder with models and logs.

    Attributes:
        folder: Where commands run.
        student: Model spec of the small one.
        teacher: Model spec of the larger one, of the same tokenizer.
    """

    folder: Path
    student: str
    teacher: str

    def rlvr(
        self, *words: object, forks: bool = False, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line, in a process of its own if it forks; words may hold spaces."""
        told, env = self.told(*words), {**self.environ(), **environ}
        if forks:
            return run_rlvr(*told, cwd=self.folder, env=env, timeout_s=250)
        return rlvr_here(*told, cwd=self.folder, env=env)

    def train(
        self, *words: object, algo: str = "sad", forks: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """`rlvr run --plugin sad`; a small step unless told otherwise."""
        known = " ".join(map(str, words))
        defaults = {
            "--model": self.student,
            "--teacher": self.teacher if algo != "sft" else None,
            "--dataset": "chat.jsonl",
            "--steps": 2,
        }
        flags = [w for k, v in defaults.items() if v and k not in known for w in (k, v)]
        given = [] if "train.problems" in known else ["train.problems=4"]
        words = (*flags, *words, *given)
        return self.rlvr("run", "--plugin", "sad", "--algo", algo, *words, forks=forks)

    @staticmethod
    def told(*words: object) -> list[str]:
        """The command line's words."""
        return " ".join(map(str, words)).split()

    def environ(self) -> dict[str, str]:
        """One thread, a cache of its own, no colours, no curve."""
        own = {
            "OMP_NUM_THREADS": "1",
            "RLVR_RUN__CALLBACKS": "none",
            "RLVR_CACHE_DIR": str(self.folder / "cache"),
            "NO_COLOR": "1",
        }
        return {**os.environ, **own}

    def tiny_llama(self, name: str, template: str | None = None, unused: int = 0) -> Any:
        """A model of transformers with our tokenizer, saved as `name`; `unused` ids at the end."""
        transformers = pytest.importorskip("transformers")
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(self.folder / "tok" / "tokenizer.json"), eos_token="<|endoftext|>"
        )
        tokenizer.chat_template = template
        tokenizer.save_pretrained(self.folder / name)
        config = transformers.LlamaConfig(
            vocab_size=len(tokenizer) + unused,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=256,
        )
        model = transformers.LlamaForCausalLM(config)
        model.save_pretrained(self.folder / name)
        return model

    def lines(self, run: str, name: str) -> list[dict[str, Any]]:
        """The records of a run's file."""
        return [json.loads(line) for line in (self.folder / run / name).read_text().splitlines()]


def chats(count: int) -> list[dict[str, Any]]:
    """Sums with a tool: two tries at each task."""
    found = []
    for n in range(count):
        call = {"function": {"name": "add", "arguments": json.dumps({"a": n, "b": n + 1})}}
        found.append(
            {
                "messages": [
                    {"role": "system", "content": "You add numbers."},
                    {"role": "user", "content": f"What is {n} plus {n + 1}?"},
                    {
                        "role": "assistant",
                        "content": f"I add {n} to {n + 1}.",
                        "tool_calls": [call],
                    },
                    {"role": "tool", "content": str(2 * n + 1)},
                    {"role": "assistant", "content": f"The sum is {2 * n + 1}."},
                ],
                "task_id": n // 2,
                "reward": n % 2,
            }
        )
    return found


def react(things: list[str]) -> str:
    """A text file of numbered steps."""
    return "\n\n=====\n\n".join(
        f"Question: where is the {x}?\nThought 1: I look for the {x}.\nAction 1: Search[{x}]\n"
        f"Observation 1: the {x} is in the box\nThought 2: it is in the box.\nAction 2: Finish[box]"
        for x in things
    )


def bench_in(folder: Path) -> Bench:
    """Logs and a tokenizer in the folder."""
    from rlvr_torch.models.bpe import BytePairTokenizer

    records = [json.dumps(one) for one in chats(24)]
    (folder / "chat.jsonl").write_text("\n".join(records))
    (folder / "react.txt").write_text(react(["key", "pen", "cup", "hat", "map", "lid", "mug"]))
    (folder / "logs").mkdir()
    (folder / "logs" / "a.jsonl").write_text("\n".join(records[:6]))
    (folder / "logs" / "b.txt").write_text(react(["bag", "tin"]))
    shared = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]
    (folder / "logs" / "c.json").write_text(json.dumps([{"conversations": shared}]))
    (folder / "tok").mkdir()
    BytePairTokenizer.train(records, 400).save(folder / "tok")

    def model(layers: int, width: int, seed: int) -> str:
        shape = f"layers={layers}&heads=2&width={width}&positions=192&seed={seed}"
        return f"gpt2:new?{shape}&tokenizer={folder / 'tok' / 'tokenizer.json'}"

    return Bench(folder, model(1, 32, 1), model(2, 48, 2))
