"""
Measures a starter model on the starter problems, by sampling and simulating.

    python rlvr-cvdp/starter_model/measure.py rlvr-cvdp/rlvr_cvdp/starter/model

An answer that equals a reference is right without a simulation; every other one is judged once.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from attrs import frozen
from knowledge import knowledge, summary

from rlvr import GenerateRequest, SamplingParams
from rlvr_cvdp.prompts.starter import brief_prompt
from rlvr_torch.generation.engine import Engine
from rlvr_torch.models.bpe import BytePairTokenizer
from rlvr_torch.models.gpt2 import GPT2
from rlvr_torch.models.gpt2_files import load_gpt2
from starter_problems.build import drafts, row
from starter_problems.corpus import fenced
from starter_problems.draft import Draft
from starter_problems.judge import judge
from starter_problems.style import STYLES


@frozen(kw_only=True)
class Answer:
    """One sampled answer and what became of it."""

    draft: Draft
    style: str
    compiles: bool
    is_right: bool
    tokens: int


def main(arguments: list[str]) -> int:
    """Sample, judge, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", type=Path, help="GPT-2 directory")
    parser.add_argument("--split", default="test", help="train or test")
    parser.add_argument("--samples", type=int, default=8, help="answers a problem; 1 is greedy too")
    parser.add_argument("--seed", type=int, default=0, help="of the sampling")
    options = parser.parse_args(arguments)
    torch.set_num_threads(2)
    model, tokenizer = load_gpt2(options.model), BytePairTokenizer.load(options.model)
    asked = [draft for _, split, draft in drafts() if split == options.split]
    known = [knowledge(model, tokenizer, draft) for draft in asked]
    print(f"chances of the references: {summary(known)}", flush=True)
    seen: dict[str, tuple[bool, bool]] = {}
    greedy = sample(model, tokenizer, asked, 1, 0.0, options.seed, seen)
    print(f"greedy: {line(greedy)}", flush=True)
    answers = sample(model, tokenizer, asked, options.samples, 1.0, options.seed, seen)
    print(f"temperature 1, {options.samples} samples: {line(answers)}; {len(seen)} verified")
    for style in sorted({answer.style for answer in answers}):
        print(f"  style {style}: {line([a for a in answers if a.style == style])}")
    for family, of_family in sorted(grouped(answers).items()):
        careful = [k.right_chance["careful"] for k in known if k.family == family]
        print(f"  {family}: {line(of_family)}; right if careful {sum(careful) / len(careful):.2f}")
    return 0


def sample(
    model: GPT2,
    tokenizer: BytePairTokenizer,
    asked: Sequence[Draft],
    samples: int,
    temperature: float,
    seed: int,
    seen: dict[str, tuple[bool, bool]],
) -> list[Answer]:
    """Answers to each draft; ``seen`` keeps verdicts (compiles, is right) by file and text."""
    params = SamplingParams(max_tokens=320, temperature=temperature)
    owners = [draft for draft in asked for _ in range(samples)]
    requests = [
        GenerateRequest(
            prompt=tokenizer.encode(brief_prompt(draft.spec, draft.target)),
            params=params,
            seed=seed * 1_000_003 + number,
        )
        for number, draft in enumerate(owners)
    ]
    answers = []
    for draft, done in zip(owners, Engine(model, tokenizer).generate(requests), strict=True):
        compiles, is_right = verdict(draft, done.text, seen)
        answers.append(
            Answer(
                draft=draft,
                style=style_of(done.text),
                compiles=compiles,
                is_right=is_right,
                tokens=len(done.tokens),
            )
        )
    return answers


def verdict(draft: Draft, text: str, seen: dict[str, tuple[bool, bool]]) -> tuple[bool, bool]:
    """Whether an answer compiles and whether it is right."""
    if any(text == fenced(draft.render(style)) for style in STYLES):
        return True, True
    found = re.fullmatch(r"```verilog\n(.*)```\n?", text, re.DOTALL)
    if not found:
        return False, False
    key = f"{draft.key} {draft.target} {found[1]}"
    if key not in seen:
        said = judge(row("measured", "test", draft), {draft.target: found[1]})
        seen[key] = said.compiles, said.is_right
    return seen[key]


def style_of(text: str) -> str:
    """The style whose habits the head of an answer shows."""
    if re.search(r"^module \w+\(", text, re.MULTILINE):
        return "sloppy"
    return "careful" if "put logic" in text else "ordinary"


def grouped(answers: Iterable[Answer]) -> dict[str, list[Answer]]:
    """Answers by family."""
    families = defaultdict(list)
    for answer in answers:
        families[answer.draft.family].append(answer)
    return dict(families)


def line(answers: Sequence[Answer]) -> str:
    """Shares of a set of answers."""
    count = len(answers)
    right = sum(answer.is_right for answer in answers) / count
    broken = sum(not answer.compiles for answer in answers) / count
    tokens = sum(answer.tokens for answer in answers) / count
    return f"{count} answers, right {right:.3f}, broken {broken:.3f}, {tokens:.0f} tokens"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
