"""The corpus of the starter model: reproducible, without test problems, mixed in quality."""

from __future__ import annotations

import itertools
import random

from rlvr_cvdp.prompts.starter import brief_prompt
from starter_problems.build import held_out_keys
from starter_problems.corpus import AUTHORS, corpus, write_example
from starter_problems.families import FAMILIES
from starter_problems.style import STYLES


def test_a_seed_gives_one_corpus() -> None:
    """Equal seeds give equal text, other seeds other text."""
    first, again, other = (list(itertools.islice(corpus(seed), 50)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_examples_read_as_a_prompt_and_a_fenced_answer() -> None:
    """The prompt ends with the file to write; right answers are one closed block."""
    for prompt, answer, is_right in itertools.islice(corpus(3), 200):
        assert prompt.endswith(".sv\n")
        assert answer.startswith("```verilog\nmodule ") or not is_right
        if is_right:
            assert answer.endswith("endmodule\n```\n")


def test_answers_are_of_mixed_quality() -> None:
    """Between three and five answers in ten are right, so rewards differ within a group."""
    examples = list(itertools.islice(corpus(4), 2000))
    assert 0.32 < sum(example.is_right for example in examples) / 2000 < 0.48
    assert abs(sum(author.share for author in AUTHORS) - 1) < 1e-9


def test_a_wrong_answer_differs_from_the_right_one() -> None:
    """Whoever slips writes something else than the solution in their style."""
    rng = random.Random(6)
    for draw in FAMILIES.values():
        for _ in range(10):
            draft = draw(rng)
            example = write_example(draft, rng)
            texts = {f"```verilog\n{draft.render(style)}```\n" for style in STYLES}
            assert (example.answer in texts) == example.is_right
            assert example.prompt == brief_prompt(draft.spec, draft.target)


def test_held_out_behaviours_are_left_out() -> None:
    """No example of the corpus asks for what a test problem asks for."""
    rng = random.Random(8)
    pool = [FAMILIES["decoder"](rng) for _ in range(200)]
    prompts = {brief_prompt(d.spec, d.target) for d in pool if d.key in held_out_keys()}
    assert prompts, "the pool holds no test behaviour; enlarge it"
    written = {example.prompt for example in itertools.islice(corpus(9), 5000)}
    assert not prompts & written
