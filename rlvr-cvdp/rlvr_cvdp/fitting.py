"""Default options that suit a data set of CVDP and a model.

The rule for the length of answers: a reference as the answer that it would be; else one and a half
times the given files that are to be changed, and for files to be made as much as the request has.
`MOST` of the problems' answers fit, with `MARGIN` to spare, and with four times the room where the
chat template lets the model reason first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import evolve, frozen

from rlvr import ConfigError, ModelFacts, Proposed, Situation, parse_variables
from rlvr_cvdp.answers.official import official_text
from rlvr_cvdp.answers.text_scores import ANSWER_FILES
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.datasets.references import read_references
from rlvr_cvdp.datasets.rows import read_rows
from rlvr_cvdp.datasets.split import splits_of, torn_families
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.prompts.official import prompt_maker
from rlvr_cvdp.prompts.truncate import estimated_prompt, estimated_tokens, fit_prompt

MOST = 0.95
MARGIN = 1.25
CHANGED = 1.5
"""A changed file in lengths of the given one; of the published references two thirds are below."""
REASONING = 4
LEAST = 512
"""Tokens that an answer may have at least."""
STEP = 64
SPARE = 16
"""Tokens of a prompt that are left free: a template may add some for its variables."""
HOLDOUTS = (0.2, 0.35, 0.5)
"""Shares of the families to hold out: the first that leaves both sides some problems."""
SWITCHES: Mapping[str, object] = {
    "enable_thinking": False,
    "thinking": False,
    "reasoning_effort": "low",
}
"""Variables by which chat templates are told how long to reason, and what keeps it short."""
_ROUNDS = 8


def fit(situation: Situation) -> Mapping[str, Proposed]:
    """
    Lengths of answers and prompts, the template's variables, and a share of families to hold out.

    Raises:
        ConfigError: The model's context has no room for any problem, and nobody typed lengths.
    """
    config = CvdpConfig(**situation.options("cvdp"))
    assert situation.dataset is not None, "the core asks where there is a data set"
    records = _records(situation.dataset, config)
    if not records:
        return {}
    found: dict[str, Proposed] = {}
    facts = situation.facts
    if facts is not None and facts.template_option:
        found |= _template(facts)
    found |= _lengths(records, config, situation, found)
    if situation.trains:
        found |= _holdout(records, config)
    return found


def _records(path: Path, config: CvdpConfig) -> list[CvdpProblem]:
    records = [row for row in read_rows(path) if isinstance(row, CvdpProblem)]
    references = read_references(Path(config.references)) if config.references else {}
    return [evolve(r, reference=r.reference or references.get(r.id, {})) for r in records]


def _template(facts: ModelFacts) -> dict[str, Proposed]:
    """The template's own switches of reasoning, set so that the tokens go to the answer."""
    known = [name for name in SWITCHES if name in facts.template_variables]
    if not known:
        return {}
    words = tuple(f"{name}={json.dumps(SWITCHES[name]).strip(chr(34))}" for name in known)
    why = f"the chat template reads {' and '.join(known)}; tokens go to the answer"
    return {facts.template_option: Proposed(words, why)}


def _reasons(situation: Situation, found: Mapping[str, Proposed]) -> bool:
    """Whether the model writes its reasoning before the answer, by its chat template."""
    facts = situation.facts
    if facts is None:
        return False
    option = facts.template_option
    words = situation.values.get(option, ()) if option else ()
    if option in found and option not in situation.said:
        words = found[option].value
    variables = parse_variables(words, option)
    switches = [name for name in SWITCHES if name in facts.template_variables]
    if not switches:
        return facts.opening.rstrip().endswith("<think>")
    return any(variables.get(name) is not False for name in switches)


@frozen
class _Size:
    """Tokens of a problem's answer, of its prompt, and of the prompt without what may be cut."""

    record: CvdpProblem
    answer: int
    whole: int
    core: int


def _lengths(
    records: Sequence[CvdpProblem],
    config: CvdpConfig,
    situation: Situation,
    found: Mapping[str, Proposed],
) -> dict[str, Proposed]:
    facts, said = situation.facts, situation.said
    count = facts.count if facts is not None else estimated_tokens
    factor = REASONING if _reasons(situation, found) else 1
    answers = [answer_tokens(record, count) for record in records]
    wanted = _rounded(factor * MARGIN * _at(answers, MOST))
    known = sum(bool(r.reference or r.response) for r in records)
    why = (
        f"{MOST:.0%} of {len(records)} answers are at most {_at(answers, MOST)} tokens "
        f"({known} by their reference), and a quarter more"
        + (", four times for reasoning" if factor > 1 else "")
    )
    if facts is None:
        return {"sampler.max_tokens": Proposed(wanted, f"{why}; estimated without the model")}
    both = zip(records, answers, strict=True)
    sizes = [_size(record, answer, config, facts) for record, answer in both]
    context = facts.context_length
    is_starter = situation.values["run.model"] == "starter"  # nobody chose it for this file
    if not is_starter and not {"sampler.max_tokens", "cvdp.max_prompt_tokens"} & said:
        _refuse_too_short(sizes, facts, situation)
    longest = max(size.whole for size in sizes)
    allowed = wanted
    if wanted + longest + SPARE > context:
        allowed = max(1, min(wanted, max(context // 2, context - longest - SPARE)))
    if allowed < wanted:
        cut = sum(factor * tokens > allowed for tokens in answers)
        why = f"half of the context of {context}: {wanted} were wanted ({why}); {cut} of "
        why += f"{len(records)} answers may be cut"
    proposed = {"sampler.max_tokens": Proposed(allowed, why)}
    taken = situation.values["sampler.max_tokens"] if "sampler.max_tokens" in said else allowed
    room = context - int(taken) - SPARE
    if longest > room > 0:
        proposed["cvdp.max_prompt_tokens"] = _budget(sizes, config, facts, room)
    return proposed


def answer_tokens(record: CvdpProblem, count: Callable[[str], int]) -> int:
    """About how many tokens an answer to a problem has, by the rule of this module."""
    if record.is_comprehension:
        return count(json.dumps({"code": [{ANSWER_FILES[0]: record.response}]}))
    if record.reference:
        return count(_as_answer(record.reference))
    given = {path: record.context[path] for path in record.targets if path in record.context}
    changed = count(_as_answer(given)) if given else 0
    made = count(record.prompt) if len(given) < len(record.targets) else 0
    return int(CHANGED * changed) + made


def _as_answer(files: Mapping[str, str]) -> str:
    text = official_text(files)
    return text if len(files) > 1 else f"```systemverilog\n{text}\n```\n"


def _size(record: CvdpProblem, answer: int, config: CvdpConfig, facts: ModelFacts) -> _Size:
    maker = prompt_maker(config, record)
    whole = core = facts.prompt_tokens(maker(record))
    if whole + LEAST > facts.context_length // 2:
        core = min(whole, facts.prompt_tokens(fit_prompt(record, maker, 1).messages))
    return _Size(record, answer, whole, core)


def _refuse_too_short(sizes: Sequence[_Size], facts: ModelFacts, situation: Situation) -> None:
    least = min(sizes, key=lambda size: size.core + size.answer)
    needed = least.core + least.answer + SPARE
    if needed <= facts.context_length:
        return
    raise ConfigError(
        f"the problems of {situation.dataset} were to be put to the model {situation.model}.",
        f"found: its context holds {facts.context_length} tokens; the shortest problem needs "
        f"{needed}: {least.core} of its prompt cannot be cut, and its answer has about "
        f"{least.answer}",
        "take a model with a longer context, or say how long answers may be all the same: "
        f"sampler.max_tokens={max(1, facts.context_length // 2)}",
    )


def _budget(sizes: Sequence[_Size], config: CvdpConfig, facts: ModelFacts, room: int) -> Proposed:
    """
    The budget, in estimated tokens, with which all prompts fit `room` tokens of the model.

    Found by trying: the estimate and the model's tokenizer differ from text to text.
    """
    long = [size for size in sizes if size.whole > room]
    ratios = [s.whole / estimated_prompt(prompt_maker(config, s.record)(s.record)) for s in long]
    budget = max(1, int(room / max(ratios)))
    for _ in range(_ROUNDS):
        cuts = [_cut(size.record, config, facts, budget) / room for size in long]
        if max(cuts) <= 1:
            break
        budget = max(1, int(budget / max(cuts) * 0.98))
    too_long = sum(size.core > room for size in sizes)
    why = f"{len(long)} of {len(sizes)} prompts are longer than the {room} tokens that are left"
    if too_long:
        why += f"; {too_long} of them cannot be cut so far, and lose their middle"
    return Proposed(budget, why)


def _cut(record: CvdpProblem, config: CvdpConfig, facts: ModelFacts, budget: int) -> int:
    """Tokens of a prompt within the budget; 0 if its uncuttable parts alone are more than that."""
    fitted = fit_prompt(record, prompt_maker(config, record), budget)
    is_over = bool(fitted.notes.get("prompt_cut", {}).get("is_over"))
    return 0 if is_over else facts.prompt_tokens(fitted.messages)


def _holdout(records: Sequence[CvdpProblem], config: CvdpConfig) -> dict[str, Proposed]:
    """A share of the families, where rows declare no split and the share leaves both sides some."""
    if any(r.split for r in records) or torn_families(records):
        return {}
    if all(r.source != "cvdp" for r in records):
        return {}
    for share in HOLDOUTS:
        splits = splits_of(records, share, config.holdout_seed)
        test = sum(split == "test" for split in splits.values())
        if 0 < test < len(records):
            why = f"no row declares a split; {test} of {len(records)} problems are kept for test"
            return {"cvdp.holdout": Proposed(share, why)}
    return {}


def _at(values: Sequence[int], share: float) -> int:
    """The smallest value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def _rounded(tokens: float) -> int:
    return max(LEAST, -(-int(tokens) // STEP) * STEP)
