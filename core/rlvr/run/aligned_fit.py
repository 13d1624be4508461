"""Whether a teacher reads the student's tokens: as it is, aligned by bytes, or not at all."""

from __future__ import annotations

from rlvr.errors import ConfigError, explain
from rlvr.log import get
from rlvr.parts import Teacher, Tokenizer
from rlvr.run.aligned import AlignedTeacher
from rlvr.run.same_tokenizer import difference, warn_of_frame

log = get(__name__)


def in_tokens_of(student: Tokenizer, teacher: Teacher) -> Teacher:
    """
    A teacher that takes and gives the student's token ids.

    One with the same tokenizer, by content, is itself. One with another is aligned by bytes, which
    is said once, with how many of its tokens the student has.

    Raises:
        ConfigError: A tokenizer does not know the bytes of its tokens, or they have none in common.
    """
    name = f"teacher {teacher.name}"
    differs = difference(student, teacher.tokenizer)
    if not differs:
        warn_of_frame(student, teacher.tokenizer, name)
        return teacher
    whose = [
        who
        for who, tokenizer in (("the policy's", student), ("the teacher's", teacher.tokenizer))
        if not hasattr(tokenizer, "bytes_of")
    ]
    if whose:
        raise ConfigError(
            explain(
                f"{name} was to score what the policy writes.",
                f"found: it has another tokenizer: {differs}; and {' and '.join(whose)} does not "
                "say the bytes of its tokens, by which the two could be aligned",
                "choose a teacher whose tokenizer is the policy's, or tokenizers with "
                "bytes_of(token) -> bytes",
            )
        )
    aligned = AlignedTeacher(teacher, student)
    shared, ours, theirs = aligned.shared()
    if not shared:
        raise ConfigError(
            explain(
                f"{name} was to score what the policy writes.",
                f"found: it has another tokenizer: {differs}; and none of its {theirs} texts is "
                f"one of the policy's {ours}",
                "choose a teacher that reads and writes the same alphabet",
            )
        )
    log.warning(
        "teacher_aligned_by_bytes",
        teacher=name,
        differs=differs,
        shared=shared,
        of_policy=round(shared / ours, 4),
        of_teacher=round(shared / theirs, 4),
        why="its tokenizer is another one: both cuts of an answer are matched by bytes; control "
        "tokens and templates carry no signal",
        see="align/1-1 in the metrics",
    )
    return aligned
