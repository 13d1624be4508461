"""Families of problems, and their split into training and test."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

from rlvr import ConfigError
from rlvr_cvdp.problem import CvdpProblem

OFFICIAL = re.compile(r"cvdp_(?:copilot|agentic)_(.+)")
"""Ids of the benchmark itself, which was made for evaluation."""

_NUMBERED = re.compile(r"cvdp_(?!starter_)(.+)_\d+")
_NAMED = 5


def is_official(name: str) -> bool:
    """Whether an id is one of the evaluation benchmark's."""
    return OFFICIAL.fullmatch(name) is not None


def family_of(name: str) -> str:
    """
    The design that a problem is about: problems of one family give each other away.

    An id of the benchmark without its kind and number: `cvdp_copilot_lfsr_0001` and
    `cvdp_agentic_lfsr_0005` are of the family `lfsr`. The embedded set is split problem by
    problem, and other ids are not known to be related: each is a family of its own.
    """
    official = OFFICIAL.fullmatch(name)
    if official:
        return re.sub(r"_\d+$", "", official[1]).lower()
    numbered = _NUMBERED.fullmatch(name)
    return numbered[1].lower() if numbered else name


def splits_of(records: Sequence[CvdpProblem], share: float, seed: int) -> dict[str, str]:
    """
    Problem id to "train", "test" or, where nothing splits it off, "".

    A row's own `split` counts, and its family follows it. Of the other families the share `share`
    is held out by a hash of the family's name and the seed, so that rows which are added later
    move no family.

    Raises:
        ConfigError: A share was asked for, and rows put a family on both sides.
    """
    declared = _declared(records)
    torn = torn_families(records)
    if share and torn:
        raise ConfigError(
            f"the share {share:g} of the families was to be held out (cvdp.holdout).",
            f"found: the rows' own splits have {_some(torn)} in training and in test",
            "correct the splits of these rows, or leave cvdp.holdout out",
        )
    found = {}
    for record in records:
        family = family_of(record.id)
        split = record.split
        if not split and share:
            splits = declared.get(family, set())
            split = min(splits) if splits else _drawn(family, share, seed)
        found[record.id] = split
    return found


def torn_families(records: Sequence[CvdpProblem]) -> list[str]:
    """Families that rows put into several splits, sorted."""
    return sorted(name for name, splits in _declared(records).items() if len(splits) > 1)


def honesty_notices(records: Sequence[CvdpProblem], splits: Mapping[str, str]) -> list[str]:
    """Warnings before training on these rows."""
    notices = []
    loose = [r.id for r in records if is_official(r.id) and not splits[r.id]]
    if loose:
        notices.append(
            f"{len(loose)} of {len(records)} problems are of the CVDP benchmark, which is for "
            "evaluation, and nothing splits them into training and test. What is trained here "
            "cannot be evaluated on them: rlvr eval will not call such a score held-out. "
            "Split families off with cvdp.holdout=0.2, or give the rows a split."
        )
    torn = [name for name in torn_families(records) if any(splits.values())]
    if torn:
        notices.append(
            f"the rows put {_some(torn)} into training and into test: problems of one family "
            "give each other away, so a score on them is not held-out."
        )
    return notices


def _declared(records: Sequence[CvdpProblem]) -> dict[str, set[str]]:
    declared: dict[str, set[str]] = {}
    for record in records:
        if record.split:
            declared.setdefault(family_of(record.id), set()).add(record.split)
    return declared


def _drawn(family: str, share: float, seed: int) -> str:
    digest = hashlib.sha256(f"{seed} {family}".encode()).digest()
    return "test" if int.from_bytes(digest[:8], "big") < share * 2**64 else "train"


def _some(families: Sequence[str]) -> str:
    more = f" and {len(families) - _NAMED} more" if len(families) > _NAMED else ""
    kind = "the family" if len(families) == 1 else "the families"
    return f"{kind} {', '.join(families[:_NAMED])}{more}"
