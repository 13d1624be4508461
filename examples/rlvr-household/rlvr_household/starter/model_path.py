"""Where the small models lie."""

from __future__ import annotations

from importlib.resources import files


def student_model() -> str:
    """The student's model spec: what `--model starter` means for the house."""
    return f"gpt2:{files('rlvr_household.starter') / 'student'}"


def teacher_model() -> str:
    """The teacher's model spec, for `--teacher`."""
    return f"gpt2:{files('rlvr_household.starter') / 'teacher'}"
