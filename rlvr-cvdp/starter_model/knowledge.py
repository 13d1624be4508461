"""What a model knows, without a simulation: how likely it writes the right answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from attrs import frozen

from rlvr_cvdp.prompts.starter import brief_prompt
from rlvr_torch.models.bpe import BytePairTokenizer
from rlvr_torch.models.gpt2 import GPT2
from starter_problems.corpus import fenced
from starter_problems.draft import Draft
from starter_problems.style import STYLES


@frozen(kw_only=True)
class Knowledge:
    """Of one problem: chances at temperature 1, by style."""

    family: str
    style_chance: dict[str, float]
    right_chance: dict[str, float]  # given the style

    @property
    def pass_chance(self) -> float:
        """Chance of an answer that equals a reference: a lower bound of pass@1."""
        return sum(self.style_chance[s] * self.right_chance[s] for s in self.style_chance)


@torch.inference_mode()
def knowledge(model: GPT2, tokenizer: BytePairTokenizer, draft: Draft) -> Knowledge:
    """
    The chance of each style and of the reference answer within it.

    The style of an answer shows at the first token where the three references differ; what comes
    before (the fence and the module's name) counts with the style.
    """
    prompt = tokenizer.encode(brief_prompt(draft.spec, draft.target))
    answers = [[*tokenizer.encode(fenced(draft.render(s))), tokenizer.eos_id] for s in STYLES]
    fork = first_difference(answers)
    style, right = {}, {}
    for author, answer in zip(STYLES, answers, strict=True):
        tokens = torch.tensor([prompt + answer])  # (1, T)
        logprobs = F.log_softmax(model(tokens[:, :-1])[0].float(), dim=-1)  # (T - 1, V)
        taken = logprobs[len(prompt) - 1 :].gather(1, torch.tensor(answer)[:, None])[:, 0]
        style[author.name] = math.exp(taken[: fork + 1].sum())
        right[author.name] = math.exp(taken[fork + 1 :].sum())
    return Knowledge(family=draft.family, style_chance=style, right_chance=right)


def first_difference(answers: Sequence[Sequence[int]]) -> int:
    """Index of the first token at which not all answers agree."""
    return next(k for k, tokens in enumerate(zip(*answers, strict=False)) if len(set(tokens)) > 1)


def summary(found: Sequence[Knowledge]) -> str:
    """One line: means over problems."""
    count = len(found)
    parts = [f"pass {sum(k.pass_chance for k in found) / count:.3f}"]
    for author in STYLES:
        style = sum(k.style_chance[author.name] for k in found) / count
        right = sum(k.right_chance[author.name] for k in found) / count
        parts.append(f"{author.name} {style:.3f} right {right:.3f}")
    return "; ".join(parts)
