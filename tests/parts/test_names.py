"""Names that are nearly those of a kind are found; names that authors use are let alone."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest

from rlvr import (
    Advantage,
    Backend,
    Callback,
    Checkpointer,
    Curriculum,
    Episode,
    Loss,
    NearMissWarning,
    Needs,
    Part,
    Policy,
    RewardFn,
    SampledBackend,
    Sampler,
    SingleTurn,
    Task,
    Teacher,
    Tokenizer,
)
from rlvr.parts.base import RETIRED, check_object

KINDS = {
    kind.kind: kind
    for kind in (
        *(Task, Episode, RewardFn, Sampler, Checkpointer, Advantage, Loss),
        *(Backend, Policy, Teacher),
    )
}


def made(kind: type, *bases: type, **names: Any) -> type[Any]:
    """A class whose essential methods are there, as a plugin would have it."""
    essentials = {n: lambda self, *_: None for n in getattr(kind, "__abstractmethods__", ())}
    return type("Mine", (*bases, kind), {**essentials, **names, "__module__": "rlvr_mine.part"})


def method(self: Any, *given: Any) -> None: ...


WRONG_WORDS = [
    (RewardFn, "verdict_hash", "verdict_key"),
    (RewardFn, "verdict_id", "verdict_key"),
    (RewardFn, "for_seed", "with_seed"),
    (RewardFn, "set_seed", "with_seed"),
    (RewardFn, "for_step", "at_step"),
    (RewardFn, "expected_time", "expected_seconds"),
    (RewardFn, "second_judge", "second_opinion"),
    (RewardFn, "get_verdict_key", "verdict_key"),
    (Task, "warn", "warnings"),
    (Task, "why_empty", ""),
    (Task, "discovery", "discover"),
    (Task, "measurement", "measure"),
    (Task, "get_reference", "reference"),
    (Task, "unsupported_rows", "unsupported"),
    (Episode, "stop_words", "stop_texts"),
    (Episode, "stop_strings", "stop_texts"),
    (Episode, "next_token_ids", "next_tokens"),
    (Advantage, "each_token", "per_token"),
    (Advantage, "per_tokens_of", "per_token"),
    (Advantage, "load_memory", "with_memory"),
    (Loss, "token_weight_of", "token_weights"),
    (Loss, "token_counts", "token_weights"),
    (Loss, "compute_token_weights", "token_weights"),
    (Loss, "builtin_name", "builtin_form"),
    (Callback, "step_done", "step_finished"),
    (Callback, "step_ended", "step_finished"),
    (Callback, "on_step_end", "step_finished"),
    (Callback, "on_step_finished", "step_finished"),
    (Callback, "on_run_start", "run_started"),
    (Callback, "checkpoint_written", "checkpoint_saved"),
    (Callback, "groups_verified", "groups_scored"),
    (Callback, "on_evaluate", "evaluated"),
    (Backend, "live_weights", "live_policy"),
    (Policy, "export_model", "export_weights"),
    (Teacher, "check_problem_ids", "check_problems"),
]


@pytest.mark.parametrize(("kind", "name", "meant"), WRONG_WORDS)
def test_one_wrong_word_is_told(kind: type[Part], name: str, meant: str) -> None:
    """As a warning, or a refusal where it is as near as that; a common word alone is neither."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            made(kind, **{name: method})
        except TypeError as error:
            assert f"did you mean {meant}" in str(error)  # noqa: PT017  # either way is right
            return
    if meant:
        assert [w.category for w in told] == [NearMissWarning]
        assert f"did you mean {meant}?" in str(told[0].message)
    else:
        assert not told


FORMS = {
    Task: "proof proving probing annotations discovery offline measuring refs curricula is_off",
    Episode: "starting started results res stopping_texts stop_txt next_toks next_tokens_of "
    "writing_tokens is_writing_tokens",
    RewardFn: "verdict_keying key_of_verdict expected_secs expect_seconds seconds_expected "
    "with_seeding second_opinions has_opinion has_2nd_opinion is_second_opinion",
    Sampler: "draw_from_policy drawing_from_policy drawn_from_policy draws_policy draws_from_pol "
    "is_drawn_from_policy why_is_empty empty_why why_empties draw_policy",
    Advantage: "adaptation adapting keeping kept meeting per_tok refills_limit limit_refill warns "
    "with_memories",
    Loss: "adaptation token_weighting tok_weights token_wts weights_of_tokens builtin_forms "
    "built_in_form importance_weighting is_importance_weighted with_mem",
    Backend: "capability caps capable eval_losses evaluation_loss loss_eval live_policies "
    "living_policy live_pol alive_policy",
    Policy: "exporting_weights export_wts exportable exports is_exportable image_proc "
    "img_processor ctx_length context_len tokeniser",
    Teacher: "answering answers caps capability scoring scored metric checking_problems "
    "problem_check img_processor",
    Checkpointer: "pinning pinned pins pinner is_pinned",
    Callback: "evaluation evaluating run_start run_starting runs_started step_finishing "
    "step_finish checkpoint_saving ckpt_saved groups_scoring",
    Tokenizer: "closes bytes_for byte_of has_byte saveable saving stop_token_ids stopping_ids "
    "ctrl_ids controls_ids",
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in FORMS.items() for name in names.split()]
)
def test_forms_of_the_same_words_are_told(kind: type[Part], name: str) -> None:
    """Nouns for verbs, gerunds, plurals, short forms and another order, of methods and flags."""
    told: list[warnings.WarningMessage] = []
    for value in (method, True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                made(kind, **{name: value})
            except TypeError as error:
                assert "did you mean" in str(error)  # noqa: PT017  # either way is right
                return
        told += caught
    assert told, name
    assert {w.category for w in told} == {NearMissWarning}


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        (RewardFn, "seconds", "expected_seconds"),
        (RewardFn, "key", "verdict_key"),
        (RewardFn, "seed", "with_seed"),
        (RewardFn, "opinion", "second_opinion"),
        (Loss, "weights", "token_weights"),
        (Advantage, "memory", "with_memory"),
        (Advantage, "keep_group", "keep"),
        (Checkpointer, "pin_step", "pin"),
        (Callback, "saved", "checkpoint_saved"),
        (Callback, "on_step", "step_finished"),
        (Task, "answer_probes", "probes"),
        (Policy, "export", "export_weights"),
    ],
)
def test_a_word_more_or_less_with_the_same_arguments_is_told(
    kind: type[Part], name: str, meant: str
) -> None:
    """With other arguments it is a method of the author's own."""
    with pytest.warns(NearMissWarning, match=f"did you mean {meant}"):
        made(kind, **{name: getattr(kind, meant)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(kind, **{name: lambda self: None})
        made(kind, **{name: lambda self, other: None})
        made(kind, **{name: getattr(kind, meant), meant: getattr(kind, meant)})


def test_odd_names_are_looked_at() -> None:
    """Names of small words alone are like nothing, and break nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(Task, of=method, has=method)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [(KINDS[kind], old, new) for kind, names in RETIRED.items() for old, new in names.items()],
)
def test_a_name_of_an_earlier_version_is_refused(kind: type[Part], old: str, new: str) -> None:
    """With the name of today, which the kind has; a class that defines both is let alone."""
    assert hasattr(kind, new) or new in inspect.get_annotations(kind)
    is_method = callable(getattr(kind, new, None))
    value = method if is_method else 1
    with pytest.raises(TypeError, match=f"did you mean {new}"):
        type("Mine", (kind,), {old: value})
    with pytest.raises(TypeError, match=f"did you mean {new}"):
        type("Mine", (kind,), {"__annotations__": {old: "int"}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        type("Mine", (kind,), {old: value, new: value})
        type("Mine", (kind,), {old: value, "not_a_part_method": {old}})


def test_no_table_forgets_a_retired_name() -> None:
    """The old names of rlvr 0.1's own changelog."""
    old = {name for names in RETIRED.values() for name in names}
    assert old >= {"reseeded", "scheduled", "spare", "refine", "annotations", "appraise", "sight"}


def test_a_slip_in_a_mixin_is_refused() -> None:
    """It is no part itself: it is looked at when the part is made of it."""
    mixin = type("Keys", (), {"verdict_keys": method, "__module__": "rlvr_mine.keys"})
    with pytest.raises(TypeError, match=r"Keys\.verdict_keys: did you mean verdict_key\?"):
        made(RewardFn, mixin)
    deep = type("Deep", (mixin,), {"__module__": "rlvr_mine.keys"})
    with pytest.raises(TypeError, match=r"Keys\.verdict_keys"):
        made(RewardFn, deep)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(RewardFn, mixin, not_a_part_method={"verdict_keys"})


def test_a_slip_in_a_helper_that_is_a_part_of_no_kind_is_refused() -> None:
    """`Part` alone knows no names; the kind comes with the class below."""
    helper = type("Helper", (Part,), {"with_sed": method, "__module__": "rlvr_mine.part"})
    with pytest.raises(TypeError, match=r"Helper\.with_sed: did you mean with_seed\?"):
        made(RewardFn, helper)


def test_the_standard_library_is_no_mixin_of_the_authors() -> None:
    """Its names are not the author's."""
    import threading

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(Task, threading.Thread)


def test_a_helper_beside_the_name_that_is_meant_is_free() -> None:
    """Nothing is switched off where the class has both."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(RewardFn, verdict_key=method, verdict_keys=method, verdict_hash=method)
        made(Task, probes=method, probe=method)


ATTRIBUTES = (
    "last", "saved", "need", "state", "config", "context", "options", "rows", "path", "paths",
    "dataset", "cache", "client", "lock", "pool", "seed", "seeds", "step", "steps", "rng", "board",
    "engine", "tool", "tools", "timeout_s", "limit", "limits", "workers", "history", "problem",
    "turn", "turns", "messages", "answer", "answers", "files", "notes", "results", "done", "ended",
    "started", "finished", "total", "count", "counts", "mean", "means", "beta", "gamma", "alpha",
    "epsilon", "clip", "scale", "weight", "weights", "metric", "warning", "warned", "memory",
    "directory", "folder", "url", "session", "process", "sandbox", "image", "container", "model",
    "models", "vocab", "ids", "heads", "names", "scores", "states", "label", "labels", "split",
    "splits", "verdict", "verdicts", "keys", "key", "probe", "proof", "runs", "run", "writer",
    "file", "handle", "queue", "log", "logger", "level", "best", "newest", "oldest", "kept",
    "keeps_last", "pinned", "pins", "lists", "loads", "window", "records", "teacher", "numbers",
)  # fmt: skip
METHODS = (
    "close", "open", "build", "parse", "read", "write_file", "load_rows", "make_prompt", "render",
    "is_open", "is_done", "is_right", "has_tool", "can_run", "as_dict", "from_row", "to_json",
    "reset", "compile", "simulate", "execute", "run_tool", "judge", "grade", "score_of", "compare",
    "extract_answer", "normalise", "digest_of", "best_move", "legal_moves", "difficulty",
    "last_step", "latest", "newest", "path_of", "folder_of", "remove_old", "prune", "manifest",
    "write_line", "plot", "draw", "flush", "send", "post", "baseline", "centred", "whiten",
    "clip_ratio", "entropy_of", "kl", "ratio", "loss_of", "weigh", "sum_of", "per_group",
    "per_sequence", "with_tools", "with_options", "for_problem", "at_end", "by_family", "log",
    "token_ids", "family", "families", "prompt_of", "problem_of", "load_problems", "read_reference",
    "episode_of", "make_episode", "sandbox", "time_limit",
)  # fmt: skip
PARTS = (Task, RewardFn, Episode, Curriculum, Checkpointer, Callback, Advantage, Loss, Sampler)


@pytest.mark.parametrize("kind", PARTS)
def test_names_that_authors_use_are_let_alone(kind: type[Part]) -> None:
    """As methods of the class, and as attributes of the object: at most two are warned of."""
    told = []
    for name in METHODS:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made(kind, **{name: method})
        told += [str(w.message) for w in caught]
    assert len(told) <= 2, told
    part = made(kind)()
    for name in ATTRIBUTES:
        vars(part)[name] = [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_object(part)


@pytest.mark.parametrize("name", ["need", "needss", "Needs", "nedes", "neds"])
@pytest.mark.parametrize("kind", [Advantage, Loss])
def test_needs_set_under_a_short_slip_are_refused(kind: type[Part], name: str) -> None:
    """The value says what is meant, also where the name is short; other values are let alone."""
    part = made(kind)()
    setattr(part, name, ["water"])
    check_object(part)
    setattr(part, name, Needs(annotations={"reference"}))

    with pytest.raises(TypeError, match="did you mean needs"):
        check_object(part)


@pytest.mark.parametrize(("kind", "slip"), [(SingleTurn, "taek"), (SampledBackend, "loda")])
def test_a_slip_of_a_name_that_the_kind_itself_defines_is_found(kind: type, slip: str) -> None:
    """Some kinds define what is essential; a subclass may mean to replace it all the same."""
    with pytest.raises(TypeError, match="did you mean"):
        made(kind, **{slip: method})
    made(kind, **{slip: method, "take": method, "load": method})
