"""Answers in words: the official ROUGE-2 and BLEU-2 rule, and how rows and answers reach it."""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr import Reward, Trajectory
from rlvr_cvdp.answers.text_scores import rouge2, text_score

REFERENCE = "the cat is on the mat"
WORDS = st.lists(
    st.sampled_from(["the", "The", "cat", "cat.", "is", "on", "mat,", "--", "é"]), max_size=9
)


def row(category: str = "cid006", response: str = REFERENCE, **changes: Any) -> dict[str, Any]:
    """A row as the data set has it: no harness, the answer in output.response."""
    return {
        "id": "cvdp_copilot_cat_0001",
        "categories": [category, "easy"],
        "input": {"prompt": "Which words?", "context": {"rtl/a.sv": "module a; endmodule"}},
        "output": {"response": response, "context": {}},
        "harness": {},
        **changes,
    }


def brute_rouge(answer: str, reference: str) -> float | None:
    """Each pair of the reference that is still unclaimed and that the answer holds counts once."""

    def pairs(text: str) -> list[str]:
        words = re.sub(r"[^\w\s]", "", text.lower()).split()
        return [f"{words[i]} {words[i + 1]}" for i in range(len(words) - 1)]

    wanted, said = pairs(reference), pairs(answer)
    hits = [p for i, p in enumerate(wanted) if p in said and p not in wanted[:i]]
    return len(hits) / len(wanted) if wanted else None


def brute_bleu(answer: str, reference: str) -> float:
    """The formula of Papineni et al. 2002 for two n-gram sizes, matching by crossing out."""
    said, wanted = answer.split(), reference.split()
    logs = []
    for n in (1, 2):
        have = [said[i : i + n] for i in range(len(said) - n + 1)]
        left = [wanted[i : i + n] for i in range(len(wanted) - n + 1)]
        hits = 0
        for gram in have:
            if gram in left:
                left.remove(gram)
                hits += 1
        if n == 1 and not hits:
            return 0.0
        logs.append(math.log(hits / len(have) if hits else sys.float_info.min))
    penalty = 1.0 if len(said) > len(wanted) else math.exp(1 - len(wanted) / len(said))
    return penalty * math.exp(sum(logs) / 2)


@pytest.mark.parametrize(
    ("answer", "rouge", "bleu"),
    [
        (REFERENCE, 1.0, 1.0),
        ("the cat sat on the mat", 3 / 5, math.sqrt(5 / 6 * 3 / 5)),
        ("the cat", 1 / 5, math.exp(1 - 6 / 2)),
        ("The cat is on the mat!", 1.0, math.sqrt(4 / 6 * 3 / 5)),
        ("the cat is on the mat the cat is on the mat", 1.0, math.sqrt(6 / 12 * 5 / 11)),
        ("nothing of it", 0.0, 0.0),
        ("mat the on is cat the", 0.0, math.sqrt(sys.float_info.min)),
        ("the", 0.0, math.exp(1 - 6) * math.sqrt(sys.float_info.min)),
        ("", 0.0, 0.0),
    ],
)
def test_scores_worked_by_hand(answer, rouge, bleu):
    """Recall of pairs, clipped precision and the penalty for short answers, by the formulas."""
    score = text_score(answer, REFERENCE)
    assert score.rouge == pytest.approx(rouge)
    assert score.bleu == pytest.approx(bleu, rel=1e-9, abs=0)


def test_forty_percent_is_not_enough():
    """Both scores must lie above 0.40; exactly 0.40 is wrong, as officially."""
    reference = "a b c d e f"
    answer = "a b c x x x"
    assert rouge2(answer, reference) == 0.4
    assert not text_score(answer, reference).is_right
    assert text_score("a b c d x x", reference).rouge == pytest.approx(0.6)
    assert text_score("a b c d x x", reference).is_right


def test_a_repeated_pair_counts_once_above_and_each_time_below():
    """The official recall of a reference with repeats stays below 1 even for itself."""
    assert rouge2("go go go go", "go go go go") == pytest.approx(1 / 3)


@given(answer=WORDS, reference=WORDS)
def test_scores_agree_with_brute_force(answer, reference):
    """Any words: the same numbers as the formulas done naively."""
    said, wanted = " ".join(answer), " ".join(reference)
    expected = brute_rouge(said, wanted)
    if expected is None:
        with pytest.raises(ValueError, match="no pair"):
            rouge2(said, wanted)
        return
    score = text_score(said, wanted)
    assert score.rouge == pytest.approx(expected)
    assert score.bleu == pytest.approx(brute_bleu(said, wanted) if said else 0.0, rel=1e-9, abs=0)
    assert 0.0 <= score.rouge <= 1.0
    assert 0.0 <= score.bleu <= 1.0


def judge(bench, text: str, *, files: dict[str, str] | None = None, **options: Any) -> Reward:
    task = bench.task(row(), **options)
    (problem,) = task.problems("all")
    trajectory = Trajectory.from_text(problem.id, text)
    if files is not None:
        trajectory = Trajectory(problem_id=problem.id, files=files)
    reward = bench.reward(**options)
    key = reward.verdict_key(problem, trajectory)
    assert key == reward.verdict_key(problem, trajectory)
    return asyncio.run(reward(problem, trajectory))


@pytest.mark.parametrize("category", ["cid006", "cid008"])
def test_prompt_reference_and_reward(bench, category):
    """The category reads, asks for JSON, and its own reference earns the whole reward."""
    task = bench.task(row(category))
    (problem,) = task.problems("all")
    system, user = problem.prompt
    assert "Correspondence" in system.content
    assert user.content.endswith('the format: { "response": "<your answer here>" }\n')
    assert REFERENCE not in system.content + user.content
    reference = task.reference(problem)
    text = Trajectory.from_text(problem.id, reference.completion)
    assert asyncio.run(bench.reward()(problem, text)).value == 1.0
    reward = asyncio.run(bench.reward()(problem, reference))
    assert (reward.score01, reward.value) == (1.0, 1.0)
    assert reward.components == {"rouge": 1.0, "bleu": 1.0}


def test_a_wrong_answer_gets_the_lower_score(bench):
    """Wrong answers are worth the lower score, always less than a right one, and say why."""
    reward = judge(bench, json.dumps({"response": "the cat sleeps all day long"}))
    assert reward.score01 == 0.0
    assert reward.value == pytest.approx(min(reward.components.values()))
    assert reward.value <= 0.4
    assert "not above 0.40" in reward.evidence["why"]


@pytest.mark.parametrize(
    ("text", "official", "lenient"),
    [
        (json.dumps({"response": REFERENCE}), 1.0, 1.0),
        ("Sure: " + json.dumps({"response": f"```\n{REFERENCE}\n```"}) + " Done.", 1.0, 1.0),
        (REFERENCE, 0.0, 1.0),
        (f"```\n{REFERENCE}\n```", 0.0, 1.0),
        (f'<think>{{"response": "no"}}</think>{{"response": "{REFERENCE}"}}', 0.0, 1.0),
        ('{"response": "the cat\nis on\nthe mat"}', 0.0, 1.0),
        ('{"response": "the cat is on the "mat""}', 0.0, 1.0),
        ('{"response": ["the cat"]}', 0.0, 0.0),
        ('{"code": []}', 0.0, 0.0),
        ("{}", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_reading_answers(bench, text, official, lenient):
    """Strictly as the official runner reads it, or leniently; both are offered."""
    assert judge(bench, text, parsing="official").score01 == official
    assert judge(bench, text, parsing="lenient").score01 == lenient


def test_answers_as_files(bench):
    """The runner's file names for answers in words are accepted; others are no answer."""
    for name in ("subjective.txt", "docs/subjective.txt"):
        assert judge(bench, "", files={name: REFERENCE}).score01 == 1.0
    nothing = judge(bench, "", files={"rtl/a.sv": REFERENCE})
    assert (nothing.score01, nothing.value) == (0.0, 0.0)


def test_agentic_form(bench):
    """The agentic form keeps the reference elsewhere: by name, or as a diff of docs."""
    agentic = {
        "id": "cvdp_agentic_cat_0001",
        "categories": ["cid008", "easy"],
        "prompt": "Which words?",
        "context": {},
        "patch": {"docs/subjective.txt": f"@@ -0,0 +1,1 @@\n+{REFERENCE}\n"},
        "harness": {},
    }
    named = {**agentic, "id": "b", "patch": {}, "subjective_reference": REFERENCE}
    records = [problem.payload for problem in bench.task(agentic, named).problems("all")]
    assert [record.response.strip() for record in records] == [REFERENCE, REFERENCE]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"category": "cid009"}, "a language model judges"),
        ({"category": "cid010"}, "a language model judges"),
        ({"response": ""}, "no reference answer"),
        ({"response": "word!"}, "no pair of words"),
    ],
)
def test_what_no_program_can_verify(bench, changes, reason):
    """Judged by a model, or published without its answer: listed with the reason."""
    (words,) = bench.task(row(**changes)).unsupported().values()
    assert reason in words


def test_another_reference_is_another_problem(bench):
    """Verdicts are kept by problem: the reference is part of what names it."""
    digests = {
        next(iter(bench.task(row(response=words)).problems("all"))).digest
        for words in (REFERENCE, REFERENCE + " now")
    }
    assert len(digests) == 2
