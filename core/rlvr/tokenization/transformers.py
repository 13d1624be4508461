"""A tokenizer of transformers as a `Tokenizer` of rlvr, with the model's chat template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlvr.errors import BackendError
from rlvr.log import get
from rlvr.parts import Tokenizer
from rlvr.tokenization.chat_template import ChatTemplate, Piece
from rlvr.tokenization.token_bytes import byte_table
from rlvr.types import Message

log = get(__name__)


class FastTokenizer(Tokenizer):
    """
    The `rlvr.parts.Tokenizer` of a model whose tokenizer transformers can read.

    A text never becomes a control token: only the template writes those, and the policy.

    Attributes:
        eos_id: The token that ends a text.
        stop_ids: All tokens that end the policy's turn: those that the tokenizer and the model's
            generation settings name, and the one that the template ends a conversation with.
        control_ids: Tokens that stand for no text: special ones, and added ones with a name
            (`<tool_call>`), but not those that are runs of blanks.
        vocab_size: One more than the largest id (the model may have more rows than that).
    """

    has_bytes = True
    can_save = True

    def __init__(
        self,
        inner: Any,
        name: str = "",
        eos_ids: Sequence[int] = (),
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Wrap a tokenizer of transformers.

        Args:
            inner: An `AutoTokenizer`, with a `backend_tokenizer` of the `tokenizers` library.
            name: What the model is called in errors.
            eos_ids: What the model's generation settings name.
            variables: Of its chat template, such as `enable_thinking`.

        Raises:
            BackendError: It has no end token, its tokens have no exact bytes, or its chat template
                fails on a plain conversation.
        """
        self.inner = inner
        self.name = name or str(inner.name_or_path)
        self._variables = dict(variables or {})
        backend = getattr(inner, "backend_tokenizer", None)
        if backend is None:
            raise BackendError(
                f"the tokenizer of {self.name} is {type(inner).__name__}, which has no "
                "tokenizer.json\n  try: a model with a tokenizer.json"
            )
        # Two copies, so that no setting is switched while another thread encodes.
        self._plain, self._special = _copy(backend), _copy(backend)
        self._plain.encode_special_tokens = True
        try:
            self._bytes = byte_table(self._special)
        except BackendError as error:
            raise BackendError(f"the tokenizer of {self.name}: {error}") from None
        self.vocab_size = len(self._bytes)
        self._adds_space = self.decode_bytes(_ids(self._plain, "x")).startswith(b" ")
        eos = inner.eos_token_id
        self._added = self._special.get_added_tokens_decoder()
        self.stop_ids: frozenset[int] = frozenset({*eos_ids, eos} - {None})
        self._end_ids: list[int] = []  # what closes a turn that the policy left open
        self._template = self._read_template()
        if self._template is not None:
            greeting = [Message(role="user", content="Hi")]
            self._template.opening(greeting)  # a template that fails is refused now
            self._end_ids = self._first_control(self._template.following(greeting))
            self.stop_ids |= self._end_of_conversation(self._template)
        if not self.stop_ids:
            raise BackendError(
                f"the tokenizer of {self.name} names no token that ends a text\n"
                "  set eos_token in its tokenizer_config.json"
            )
        self.bos_id = inner.bos_token_id
        self.eos_id: int = min(self.stop_ids) if eos is None else eos
        self.control_ids = self.stop_ids | {
            i for i, token in self._added.items() if token.special or token.content.strip()
        }

    def save(self, directory: Path) -> None:
        """Write it into the directory, as transformers does."""
        self.inner.save_pretrained(directory)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text that goes on from another; nothing is added, not even a space."""
        return self._continue(self._plain, text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts."""
        return [self.encode(text) for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of the ids; bytes that are not UTF-8 become U+FFFD. Added tokens are spelled out."""
        return self.decode_bytes(tokens).decode("utf-8", errors="replace")

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """The exact bytes of the ids; an id outside the vocabulary has none."""
        return b"".join(map(self.bytes_of, tokens))

    def bytes_of(self, token: int) -> bytes:
        """The exact bytes of one id, which may be part of a character."""
        return self._bytes[token] if 0 <= token < self.vocab_size else b""

    def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
        """
        Token ids of a prompt, ready for the policy's turn.

        The model's chat template decides; a later turn (`first` False) is what it puts between the
        token that ended the policy's turn and the next generation prompt. Without a template the
        contents are joined by newlines, after the model's begin token where it has one.

        Raises:
            BackendError: The template cannot render these messages.
        """
        if self._template is None:
            text = "\n".join(message.content for message in messages)
            if not first:
                return self.encode("\n" + text)
            return [*self._begin_ids(), *_ids(self._plain, text)]
        if first:
            return self._encode_pieces(self._template.opening(messages), _ids)
        ids = self._encode_pieces(self._template.following(messages), self._continue)
        return ids[self._count_end(ids) :]

    def closing(self, tokens: Sequence[int]) -> list[int]:
        """The ids that close a policy's turn that was cut off; [] if it ended by itself."""
        return [] if len(tokens) and self._is_end(tokens[-1]) else list(self._end_ids)

    def _read_template(self) -> ChatTemplate | None:
        if not self.inner.chat_template:
            log.warning("no_chat_template", model=self.name, prompts="contents joined by newlines")
            return None

        def apply(conversation: list[dict[str, Any]], is_open: bool) -> str:
            text: str = self.inner.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=is_open, **self._variables
            )
            return text

        controls = [t.content for i, t in self._added.items() if t.special or i in self.stop_ids]
        return ChatTemplate(apply, controls, self.name)

    def _end_of_conversation(self, template: ChatTemplate) -> frozenset[int]:
        """
        The control token that the template puts after the last turn; [] for none.

        Not what it puts after an earlier one: that may also end a part of a turn (gpt-oss ends its
        analysis with `<|end|>`), and the policy would stop there. Only where nothing is put after
        the last turn is it the same.
        """
        found: list[int] = []
        with suppress(BackendError):  # it renders no finished conversation
            found = self._first_control(template.ending())
        return frozenset(found or self._end_ids)

    def _first_control(self, pieces: Sequence[Piece]) -> list[int]:
        """The control token that a template's text begins with; [] for none."""
        for index in self._encode_pieces(pieces, self._continue):
            if index in self._added:
                is_control = self._added[index].special or index in self.stop_ids
                return [index] if is_control else []
            if self.bytes_of(index).strip():
                break
        return []

    def _count_end(self, ids: Sequence[int]) -> int:
        """How many of the ids end the policy's turn, so that the policy wrote them itself."""
        for count, index in enumerate(ids):
            if self._is_end(index):
                return count + 1
            if self.bytes_of(index).strip():
                break
        return 0

    def _is_end(self, index: int) -> bool:
        return index in self.stop_ids or index in self._end_ids

    def _begin_ids(self) -> list[int]:
        """The begin token, where the model's own tokenizer puts one before a text."""
        begin = self.bos_id
        return [begin] if begin is not None and self._special.encode("").ids[:1] == [begin] else []

    def _encode_pieces(
        self, pieces: Sequence[Piece], encode: Callable[[Any, str], list[int]]
    ) -> list[int]:
        ids: list[int] = []
        for i, piece in enumerate(pieces):
            inner = self._plain if piece.is_quoted else self._special
            ids += self._continue(inner, piece.text) if i else encode(inner, piece.text)
        return ids

    def _continue(self, inner: Any, text: str) -> list[int]:
        """Ids of a text that stands after another: SentencePiece would put a space before it."""
        if not self._adds_space:
            return _ids(inner, text)
        line = _ids(inner, "\n")
        both = _ids(inner, "\n" + text)
        return both[len(line) :] if both[: len(line)] == line else _ids(inner, text)


def _ids(inner: Any, text: str) -> list[int]:
    ids: list[int] = inner.encode(text, add_special_tokens=False).ids
    return ids


def _copy(backend: Any) -> Any:
    copy = type(backend).from_str(backend.to_str())
    copy.no_padding()
    copy.no_truncation()
    return copy
