"""Scores of answers in words (cid006, cid008): the official rule of ROUGE-2 and BLEU-2."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Sequence

from attrs import frozen

from rlvr import Reward, Trajectory
from rlvr_cvdp.answers.official import response_text
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.problem import CvdpProblem

THRESHOLD = 0.40
ANSWER_FILES = ("subjective.txt", "docs/subjective.txt")
"""The files that hold an answer in words, if it is given as files."""


@frozen(kw_only=True)
class TextScore:
    """Both scores, 0 to 1. It is right when both are above 0.40."""

    rouge: float
    bleu: float

    @property
    def is_right(self) -> bool:
        """The official verdict."""
        return self.rouge > THRESHOLD and self.bleu > THRESHOLD


def text_score(answer: str, reference: str) -> TextScore:
    """The scores of an answer; an empty one has none."""
    if not answer:
        return TextScore(rouge=0.0, bleu=0.0)
    return TextScore(rouge=rouge2(answer, reference), bleu=bleu2(answer, reference))


def rouge2(answer: str, reference: str) -> float:
    """
    Recall of word pairs: different pairs that both hold, over all pairs of the reference.

    Case and punctuation are left out. A pair that the reference repeats counts each time below
    the line and once above it, so that even the reference itself may not reach 1.

    Raises:
        ValueError: The reference holds no pair of words.
    """
    wanted = _pairs(_words(reference))
    if not wanted:
        raise ValueError("the reference holds no pair of words")
    return len(set(wanted) & set(_pairs(_words(answer)))) / len(wanted)


def bleu2(answer: str, reference: str) -> float:
    """
    Geometric mean of the clipped precisions of words and word pairs, times the brevity penalty.

    Words are what blanks separate; case and punctuation count (Papineni et al. 2002, two equal
    weights, one reference, no smoothing). Where words match but no pair does, the precision of
    pairs is the smallest number that a float holds, as in the library of the official runner.
    """
    said, wanted = answer.split(), reference.split()
    words = _clipped(said, wanted)
    if not words:
        return 0.0
    pairs = _clipped(_pairs(said), _pairs(wanted))
    precision1 = words / len(said)
    precision2 = pairs / (len(said) - 1) if pairs else sys.float_info.min
    brevity = 1.0 if len(said) > len(wanted) else math.exp(1 - len(wanted) / len(said))
    return brevity * math.exp(0.5 * math.log(precision1) + 0.5 * math.log(precision2))


def comprehension_reward(
    problem: CvdpProblem, trajectory: Trajectory, config: CvdpConfig
) -> Reward:
    """
    The reward of an answer in words.

    `value` is the tests' weight where the answer is right, else that weight times the lower of
    the two scores, which is 0.40 at most. The official report counts `components["bleu"]` of
    such a problem as its share of a pass.
    """
    answer = _answer(trajectory, config)
    score = text_score(answer or "", problem.response)
    share = 1.0 if score.is_right else min(score.rouge, score.bleu)
    why = "" if score.is_right else "ROUGE-2 or BLEU-2 is not above 0.40"
    if answer is None:
        why = "it is not the JSON that was asked for"
    elif not answer:
        why = "it is empty"
    return Reward(
        value=config.tests_weight * share,
        score01=float(score.is_right),
        components={"rouge": score.rouge, "bleu": score.bleu},
        evidence={"why": why, "threshold": THRESHOLD, "rule": "ROUGE-2 recall and BLEU-2"},
    )


def comprehension_key(digest: str, trajectory: Trajectory, config: CvdpConfig) -> str:
    """sha256 over all that decides the reward."""
    parts = ["comprehension", digest, _answer(trajectory, config), config.tests_weight]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _answer(trajectory: Trajectory, config: CvdpConfig) -> str | None:
    if trajectory.files is not None:
        files = trajectory.files
        return next((files[name] for name in ANSWER_FILES if name in files), "")
    return response_text(trajectory.completion, is_strict=config.parsing == "official")


def _words(text: str) -> list[str]:
    return re.sub(r"[^\w\s]", "", text.lower()).split()


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    return list(itertools.pairwise(words))


def _clipped(said: Sequence[object], wanted: Sequence[object]) -> int:
    """The number of answered items that are wanted, each at most as often as it is wanted."""
    return (Counter(said) & Counter(wanted)).total()
