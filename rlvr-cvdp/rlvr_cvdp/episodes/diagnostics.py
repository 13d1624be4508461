"""What the tools said about the files, as the policy is shown it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve

from rlvr_cvdp.episodes.message_budget import short
from rlvr_cvdp.episodes.tools import Ran
from rlvr_cvdp.results.messages import ToolMessage, read_messages

_OWN = ("/rlvr/", "/src/")


def messages_of(ran: Ran) -> list[ToolMessage]:
    """
    A tool run's errors, then its warnings, each once.

    Where it failed and no error can be read out of it, each line that it wrote counts as one.
    Where it succeeded nothing is an error, and what iverilog is sorry for does not matter.
    """
    found = [m for m in read_messages(ran.output, ran.tool) if m.severity != "note"]
    if ran.ok:
        found = [m for m in found if not m.text.startswith("sorry:")]
        return list(dict.fromkeys(evolve(m, severity="warning") for m in found))
    if not any(message.severity == "error" for message in found):
        lines = cleaned(ran.output)
        found += [ToolMessage(tool=ran.tool, severity="error", text=line) for line in lines]
    return sorted(dict.fromkeys(found), key=lambda message: message.severity != "error")


def shown(found: Sequence[ToolMessage], files: Mapping[str, str]) -> list[str]:
    """The messages with their places, each line of a file that they speak of below the first."""
    texts, quoted = [], set()
    for message in found:
        text, place = short(str(message)), (message.file, message.line)
        lines = files.get(message.file, "").split("\n")
        number = message.line or 0
        if place not in quoted and 0 < number <= len(lines) and lines[number - 1].strip():
            text += f"\n    {short(lines[number - 1].strip())}"
            quoted.add(place)
        texts.append(text)
    return texts


def tally(found: Sequence[ToolMessage]) -> str:
    """`3 errors, 1 warning`."""
    errors = sum(message.severity == "error" for message in found)
    counts = {"error": errors, "warning": len(found) - errors}
    return ", ".join(f"{n} {word}{'s' * (n != 1)}" for word, n in counts.items() if n)


def cleaned(output: str) -> list[str]:
    """
    The lines of an output, paths as the policy knows them (`rtl/x.sv`).

    Lines about the sandbox's own files are left out; the hidden harness is never in the tree that
    tools are run on.
    """
    lines = (short(line.rstrip()) for line in output.replace("/code/", "").splitlines())
    return [line for line in lines if line and not any(place in line for place in _OWN)]
