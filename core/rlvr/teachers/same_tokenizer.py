"""Compare two tokenizers by their ids and texts, as names say little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlvr.log import get
from rlvr.parts import Tokenizer
from rlvr.types import Message

log = get(__name__)

_SHOWN = 3
_CHUNK = 2048
_TEXTS = (
    "".join(map(chr, range(256))),
    "0 12 123 1234 12345 3.14159 1e-5 0x1F 1,000,000",
    " a  b   c\td\n e\n\nf\r\n \n    g        h",
    "def f(x: int) -> str:\n    return f'{x!r}' if x != 0 else \"\"  # don't, it's 1st\n",
    "module top #(parameter N = 8)(input wire [N-1:0] a, output reg q); endmodule",
    '{"k": [1, true, null, "\\u00e9"]} <a href="#">x</a> <|endoftext|> </s> [INST]',
    "naïve ÅÄÖ ß Ελληνικά русский العربية हिन्दी 中文字符 日本語 한국어",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1f7 e\u0301 \u200b\ufeff",
)
_TALKS = (
    (Message(role="user", content="Hi"),),
    (Message(role="system", content="Be brief."), Message(role="user", content="2+2?\n")),
)


def difference(student: Tokenizer, teacher: Tokenizer) -> str:
    """
    The first ids or text in which two tokenizers differ; "" if they are equal.

    Every id's bytes are compared (a row that only pads a vocabulary has none), then the ids of
    texts: bytes, digits, blanks, code, scripts, and the whole vocabulary written out.
    """
    if student is teacher:
        return ""
    return _differing_ids(student, teacher) or _differing_text(student, teacher)


def warn_of_frame(student: Tokenizer, teacher: Tokenizer, name: str) -> None:
    """
    Say where a teacher that reads the same ids frames prompts or ends answers otherwise.

    It scores the student's prompt as it stands, which is not how it was trained to be asked.
    """
    if student is teacher:
        return
    said = ["the chat template"] if _renders_otherwise(student, teacher) else []
    if student.eos_id != teacher.eos_id:
        said.append("the token that ends an answer")
    if said:
        log.warning(
            "teacher_reads_otherwise",
            teacher=name,
            differs=said,
            why="it scores the policy's own prompts, framed as the policy's template does; its "
            "logprobs may be biased",
            do="use a teacher trained with the same template, or look at its teacher/kl",
        )


def _differing_ids(student: Tokenizer, teacher: Tokenizer) -> str:
    first, second = student.vocab_size, teacher.vocab_size
    is_exact = student.has_bytes and teacher.has_bytes
    every = range(max(first, second))
    spelled = ((t, _spelled(student, t, is_exact), _spelled(teacher, t, is_exact)) for t in every)
    found = [(token, ours, theirs) for token, ours, theirs in spelled if ours != theirs]
    if not found:
        return ""
    examples = "; ".join(
        f"id {token} is {_shown(ours)} here, {_shown(theirs)} there"
        for token, ours, theirs in found[:_SHOWN]
    )
    sizes = f"{first} ids here, {second} there, " if first != second else ""
    return f"{sizes}{len(found)} of {len(every)} ids differ: {examples}"


def _differing_text(student: Tokenizer, teacher: Tokenizer) -> str:
    for text in (*_TEXTS, *_vocabulary(student)):
        ours, theirs = _ids(student, text), _ids(teacher, text)
        if ours != theirs:
            at = next(
                (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
                min(len(ours), len(theirs)),
            )
            return (
                f"the same ids, cut otherwise: {text[:24]!r}... becomes {list(ours[at : at + 3])} "
                f"here and {list(theirs[at : at + 3])} there, from its token {at} on"
            )
    return ""


def _spelled(tokenizer: Tokenizer, token: int, is_exact: bool) -> bytes:
    """The bytes of an id; none past the vocabulary."""
    if token >= tokenizer.vocab_size:
        return b""
    if is_exact:
        return tokenizer.bytes_of(token)
    return tokenizer.decode([token]).encode("utf-8", "surrogatepass")


def _shown(spelled: bytes) -> str:
    return repr(spelled)[1:] if spelled else "nothing"


def _ids(tokenizer: Tokenizer, text: str) -> Sequence[int]:
    try:
        return list(tokenizer.encode(text))
    except ValueError:  # a tokenizer of few characters: both must refuse the text
        return [-1]


def _vocabulary(tokenizer: Tokenizer) -> Iterator[str]:
    """All tokens written out, some thousand at a time."""
    for first in range(0, tokenizer.vocab_size, _CHUNK):
        ids = range(first, min(first + _CHUNK, tokenizer.vocab_size))
        texts = [tokenizer.decode([token]) for token in ids]
        yield "".join(texts)
        yield " ".join(texts)


def _renders_otherwise(student: Tokenizer, teacher: Tokenizer) -> bool:
    return any(
        _rendered(student, talk, is_first) != _rendered(teacher, talk, is_first)
        for talk in _TALKS
        for is_first in (True, False)
    )


def _rendered(tokenizer: Tokenizer, talk: Sequence[Message], is_first: bool) -> object:
    try:
        return list(tokenizer.render(talk, first=is_first))
    except (ValueError, RuntimeError) as error:  # a template that knows no system message
        return type(error).__name__
