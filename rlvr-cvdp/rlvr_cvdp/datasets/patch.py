"""Unified diffs without a header, as the agentic data sets hold their solutions."""

from __future__ import annotations

import re

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")


def apply_patch(text: str, diff: str) -> str:
    """
    The text after the diff. A diff against an empty text makes a new file.

    Raises:
        ValueError: A line that the diff takes away or keeps is not there.
    """
    if "\n" not in diff and r"\n" in diff:  # escaped twice
        diff = diff.replace(r"\n", "\n")
    before = text.removesuffix("\n").split("\n") if text else []
    after: list[str] = []
    position = 0
    in_hunk = False
    ends_with_newline = True
    for line in diff.split("\n") if diff else []:
        hunk = _HUNK.match(line)
        if hunk:
            start = int(hunk[1]) if hunk[2] == "0" else max(int(hunk[1]) - 1, 0)
            after += before[position:start]
            position, in_hunk = start, True
        elif not in_hunk:
            continue  # a header: --- and +++
        elif line.startswith("+"):
            after.append(line[1:])
        elif line.startswith("\\"):
            ends_with_newline = False
        elif not line and position >= len(before):
            continue  # the end of the diff's last line
        else:
            kept = before[position] if position < len(before) else None
            if kept is None or kept.removesuffix("\r") != line[1:].removesuffix("\r"):
                raise ValueError(f"the patch does not fit at line {position + 1}: {line[1:]!r}")
            if not line.startswith("-"):
                after.append(before[position])
            position += 1
    after += before[position:]
    return "\n".join(after) + ("\n" if after and ends_with_newline else "")
