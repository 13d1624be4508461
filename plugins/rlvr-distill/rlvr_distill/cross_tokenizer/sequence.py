"""One training sequence as a teacher with another tokenizer reads it.

What the policy wrote is cut anew by the teacher's tokenizer, turn by turn and between the control
tokens, so that both have a boundary where a turn begins; headers of turns are template. The first
prompt is rendered with the teacher's own template where the messages are known (and the student's
template gives the datum's tokens back); else it, and what the environment adds later, keeps its
bytes. A control token becomes the teacher's of the same name; else it is left out, and the header
that it opens too. What ends an answer becomes what ends the teacher's: it is compared as if it were
one byte of text, because an end that costs nothing is what a policy would learn.

Shapes: T tokens of the datum, S of the teacher's sequence.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import attrs
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from rlvr import Datum, IntArray
from rlvr_distill.cross_tokenizer.align import Alignment, align
from rlvr_distill.cross_tokenizer.token_bytes import Encoded, TokenBytes
from rlvr_distill.cross_tokenizer.vocabulary_map import VocabularyMap

_HEADERS = {
    b"<|start|>": b"<|message|>",
    b"<|channel|>": b"<|message|>",
    b"<|constrain|>": b"<|message|>",
    b"<|start_header_id|>": b"<|end_header_id|>",
    b"<|im_start|>": b"\n",
    b"<start_of_turn>": b"\n",
}
"""Control tokens that open a header, and what closes it (Harmony, Llama 3, ChatML, Gemma)."""
Prompt = Callable[[Datum], Sequence[int] | None]
"""The first prompt of a datum in the teacher's tokens; None where its messages are not known."""


@frozen(eq=False)
class TeacherSequence:
    """
    A datum in the teacher's tokens.

    Attributes:
        tokens: (S,) its ids.
        alignment: Groups of the policy's tokens (T,) and the teacher's (S,); -1 at prompts, control
            tokens, and bytes that one of the two cannot spell.
        lengths: (T,) bytes of the datum's tokens, 0 for control tokens and headers, 1 for ends.
        is_rendered: Whether the prompt was rendered with the teacher's template.
        is_cut: Whether the teacher cannot read all of it.
    """

    tokens: NDArray[np.int64]
    alignment: Alignment
    lengths: NDArray[np.int64]
    is_rendered: bool
    is_cut: bool

    def masked(self, datum: Datum) -> Datum:
        """The datum that the teacher scores; its mask marks the aligned tokens."""
        mask = self.alignment.theirs >= 0
        nothing = np.zeros(len(mask))
        return Datum(
            tokens=self.tokens,
            mask=mask,
            logprobs=nothing,
            advantages=nothing,
            weights=mask.astype(np.float32),
            temperature=datum.temperature,
            problem_id=datum.problem_id,
            labels=datum.labels,
        )


class Reader:
    """
    Reads data of a policy with the tokens of a teacher.

    Args:
        ours: The policy's vocabulary.
        theirs: The teacher's.
        prompt: How it renders the first prompt of a datum.
        longest: Tokens that it reads; what comes after them is not compared.
    """

    def __init__(
        self, ours: TokenBytes, theirs: TokenBytes, prompt: Prompt, longest: int = sys.maxsize
    ) -> None:
        self._ours, self._theirs, self._prompt = ours, theirs, prompt
        self._longest = longest
        self._control = VocabularyMap(ours, theirs)  # a control token of ours as theirs

    def read(self, datum: Datum) -> TeacherSequence:
        lengths = self._ours.lengths_of(datum.tokens)
        prompt = self._prompt(datum)
        begin = 0 if prompt is None else int(np.argmax(datum.mask))
        header = _in_headers(datum.tokens, self._ours)
        is_end = datum.mask & np.isin(datum.tokens, self._ours.ends)
        parts = [_silent(list(prompt or ()))]
        is_kept = True  # the control token before a header was kept
        for start, stop in _runs(lengths > 0, header, datum.mask, begin):
            tokens = datum.tokens[start:stop]
            if not lengths[start]:
                kept = np.array([self._control.id_of(int(t))[0] for t in tokens])
                is_kept = kept[-1] >= 0
                sizes = is_end[start:stop][kept >= 0].astype(np.int64)
                parts.append(_silent(kept[kept >= 0], sizes))
            elif is_kept or not header[start]:
                part = self._theirs.encode(b"".join(self._ours.bytes_of(int(t)) for t in tokens))
                is_own = datum.mask[start] and not header[start]
                parts.append(part if is_own else _silent(part.ids.tolist()))
        lengths = np.where(header, 0, lengths) + is_end
        whole = _begun(_joined(parts), self._theirs.ends[0])
        there = whole.ids >= 0
        is_read = np.cumsum(there) <= self._longest
        missing = whole.missing | ~is_read
        alignment = align(np.where(datum.mask, lengths, 0), whole.lengths, missing)
        there &= is_read
        return TeacherSequence(
            tokens=whole.ids[there],
            alignment=attrs.evolve(alignment, theirs=alignment.theirs[there]),
            lengths=lengths,
            is_rendered=prompt is not None,
            is_cut=not is_read.all(),
        )


def _silent(
    ids: Sequence[int] | NDArray[np.int64], lengths: NDArray[np.int64] | None = None
) -> Encoded:
    """Tokens as context; only those with a length are compared."""
    nothing = np.zeros(len(ids), np.int64)
    return Encoded(
        np.array(ids, np.int64), nothing if lengths is None else lengths, nothing.astype(bool)
    )


def _joined(parts: Sequence[Encoded]) -> Encoded:
    columns = ([getattr(p, name) for p in parts] for name in ("ids", "lengths", "missing"))
    return Encoded(*map(np.concatenate, columns))


def _begun(whole: Encoded, begin: int) -> Encoded:
    """The sequence with a token before the first that is to be scored."""
    there = np.flatnonzero(whole.ids >= 0)
    is_begun = len(there) and whole.lengths[there[0]] == 0
    return whole if is_begun else _joined([_silent([begin]), whole])


def _runs(
    is_text: NDArray[np.bool_], header: NDArray[np.bool_], mask: NDArray[np.bool_], begin: int
) -> Iterator[tuple[int, int]]:
    """Stretches `[start, stop)` of one author and one kind, from `begin` on."""
    kind = is_text * 4 + header * 2 + mask
    cuts = np.flatnonzero(kind[begin + 1 :] != kind[begin:-1]) + begin + 1
    edges = [begin, *cuts.tolist(), len(kind)]
    yield from pairwise(edges)


def _in_headers(tokens: IntArray, spelling: TokenBytes) -> NDArray[np.bool_]:
    """(T,) True at text tokens that name a role or a channel: `analysis` after `<|channel|>`."""
    found = np.zeros(len(tokens), bool)
    closer = b""
    is_control = spelling.lengths_of(tokens) == 0
    if not is_control.any():
        return found
    for at, token in enumerate(tokens.tolist()):
        spelled = spelling.bytes_of(token)
        if is_control[at]:
            closer = _HEADERS.get(spelled, b"")
        elif closer:
            found[at] = True
            if closer in spelled:
                closer = b""
    return found
