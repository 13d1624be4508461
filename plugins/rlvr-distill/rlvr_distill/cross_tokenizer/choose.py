"""Align a teacher with the policy's tokens by bytes, or say why that cannot be."""

from __future__ import annotations

import structlog

from rlvr import BuildContext, ConfigError, Teacher, Tokenizer
from rlvr_distill.cross_tokenizer.teacher import AlignedTeacher

log = structlog.get_logger(__name__)


def adapt(config: None, context: BuildContext) -> Teacher:
    """
    The teacher `context.inner` in the tokens of `context.tokenizer`, aligned by bytes.

    Logs this once, with the number of its tokens that the student has too.

    Raises:
        ConfigError: A tokenizer does not know the bytes of its tokens, or they have none in common.
    """
    del config
    teacher: Teacher = context.inner
    student: Tokenizer = context.tokenizer
    name, differs = f"teacher {teacher.name}", context.notes["differs"]
    whose = [
        who
        for who, tokenizer in (("the policy's", student), ("the teacher's", teacher.tokenizer))
        if not tokenizer.has_bytes
    ]
    if whose:
        raise ConfigError(
            f"{name} was to score what the policy writes.",
            f"found: it has another tokenizer: {differs}; and {' and '.join(whose)} does not "
            "say the bytes of its tokens, by which the two could be aligned",
            "choose a teacher whose tokenizer is the policy's, or tokenizers with "
            "bytes_of(token) -> bytes",
        )
    aligned = AlignedTeacher(teacher, student)
    shared, ours, theirs = aligned.shared()
    if not shared:
        raise ConfigError(
            f"{name} was to score what the policy writes.",
            f"found: it has another tokenizer: {differs}; and none of its {theirs} texts is "
            f"one of the policy's {ours}",
            "choose a teacher that reads and writes the same alphabet",
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
