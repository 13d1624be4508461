"""Check what is sampled: messages, token ids, completions, trajectories, results of episodes.

A `fault_of_...` gives the fault in words, "" if there is none; its caller names the part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from rlvr.border.calls import Border, shown
from rlvr.errors import RlvrError
from rlvr.parts import EpisodeResult, Tokenizer
from rlvr.plugins.author_error import passes, said
from rlvr.types import Completion, Finish, Message, Problem, Segment, Trajectory


class MisfitError(ValueError):
    """A text that a part cannot handle, or a wrong result, in a sentence that names the part."""


def fault_of_completion(found: object) -> str:
    """The fault of an object that should be a Completion; "" if it is one."""
    if isinstance(found, Completion) and not all(isinstance(v, int) for v in found.versions):
        return f"{shown(found.versions)} as the versions that drew it"
    return _fault_of_drawn(found, Completion) or _fault_of_finish(getattr(found, "finish", ""))


def fault_of_trajectory(trajectory: object, problem: Problem) -> str:
    """The fault of an object that should be a trajectory of the problem; "" if it is one."""
    if not isinstance(trajectory, Trajectory):
        return f"{shown(trajectory)} for problem {problem.id!r}"
    if trajectory.problem_id != problem.id:
        return f"a trajectory of {shown(trajectory.problem_id)} for problem {problem.id!r}"
    if trajectory.files is not None and (fault := fault_of_texts_by_name(trajectory.files)):
        return f"a trajectory with files that are no texts by path: {fault}"
    faults = (_fault_of_drawn(one, Segment) for one in trajectory.segments)
    fault = _fault_of_finish(trajectory.finish) or next(filter(None, faults), "")
    return f"{fault} for problem {problem.id!r}" if fault else ""


def _fault_of_finish(finish: object) -> str:
    is_known = isinstance(finish, str) and finish in get_args(Finish)
    return "" if is_known else f"{shown(finish)} as finish"


def _fault_of_drawn(drawn: object, kind: type[Segment | Completion]) -> str:
    """The fault of a completion, or of a segment of a trajectory; "": none."""
    if not isinstance(drawn, kind):
        return shown(drawn)
    text: object = drawn.text
    if not isinstance(text, str):
        return f"{shown(text)} as text"
    if drawn.tokens.ndim != 1 or drawn.tokens.min(initial=0) < 0:
        return f"{shown(drawn.tokens)} as token ids"
    if drawn.logprobs is None:
        return ""
    if drawn.logprobs.shape != drawn.tokens.shape:
        return f"{len(drawn.logprobs)} logprobs of {len(drawn.tokens)} tokens"
    return "" if np.isfinite(drawn.logprobs).all() else "a logprob that is not finite"


def fault_of_messages(found: object) -> str:
    """The fault of an object that should be a sequence of messages; "" if it is one."""
    if not isinstance(found, Sequence):
        return shown(found)
    for message in found:
        if not isinstance(message, Message) or not isinstance(message.content, str):
            return f"{shown(message)}, which is no Message"
        if not isinstance(message.role, str) or not message.role:
            return f"{shown(message.role)} as a role"
    return ""


def fault_of_result(found: object) -> str:
    """The fault of an object that should be an EpisodeResult; "" if it is one."""
    if not isinstance(found, EpisodeResult):
        return shown(found)
    notes: object = found.notes
    if not isinstance(notes, Mapping):
        return f"{shown(notes)} as notes"
    fault = "" if found.files is None else fault_of_texts_by_name(found.files)
    return f"{fault} as files" if fault else ""


def fault_of_texts_by_name(found: object) -> str:
    """The fault of an object that should map texts to texts; "" if it does."""
    if not isinstance(found, Mapping):
        return shown(found)
    wrong = [pair for pair in found.items() if not all(isinstance(text, str) for text in pair)]
    return shown(wrong[0]) if wrong else ""


def fault_of_ids(found: object, vocab_size: int) -> str:
    """The fault of an object that should be token ids (n,) of the vocabulary; "" if it is."""
    try:
        ids = np.asarray(found)
    except (TypeError, ValueError):
        return shown(found)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        return shown(found)
    is_inside = ids.min(initial=0) >= 0 and ids.max(initial=0) < vocab_size
    return "" if is_inside else f"{shown(found)} for a vocabulary of {vocab_size}"


def ids_by(tokenizer: Tokenizer, method: str, *given: Any, **options: Any) -> list[int]:
    """
    Token ids by a tokenizer.

    Raises:
        PartError: It gives something else.
        MisfitError: It raised, which may be for want of one text's characters; named as well.
    """
    at = Border(tokenizer, "tokenizer", method, promised="ids of its vocabulary")
    try:
        found = getattr(tokenizer, method)(*given, **options)
    except RlvrError:
        raise
    except BaseException as error:  # the plugin border
        if passes(error):
            raise
        raise MisfitError(at.sentence(f"it raised {said(error)}")) from error
    at.check(fault_of_ids(found, tokenizer.vocab_size))
    return list(found)


def text_by(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of ids by a tokenizer."""
    at = Border(tokenizer, "tokenizer", "decode", promised="a text")
    found: object = at.call(tokenizer.decode, ids)
    at.check("" if isinstance(found, str) else shown(found))
    return str(found)
