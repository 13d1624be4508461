"""The report of `rlvr plugins check`: promises kept and promises broken."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from typing import Any

import attrs
from attrs import define, field, frozen

from rlvr.cli.output import print_json, table
from rlvr.errors import ExitCode, PartError, PrerequisiteError, explain
from rlvr.plugins import author_error
from rlvr.testing.process import ChangedError


@frozen
class Finding:
    """
    A promise that does not hold: of which part, what was asked, what was found, what to do.

    Attributes:
        hides: Promises, after their part's name, that could not be checked for the same cause.
    """

    part: str
    asked: str
    found: str
    do: str
    hides: list[str] = field(factory=list)


@define
class Report:
    """
    Results of the check; a part is named by kind and name.

    Attributes:
        counts: Promises by part that "hold", "fail", "skip" (do not apply), or were "refused": the
            part refuses what it was checked with (a model, options, a task) by a `ConfigError`, or
            by a `PrerequisiteError`, or the kit lacks something, such as torch.
        built_s: Seconds that building each part took.
        skipped: Why promises do not apply, and a promise of each.
        findings: Broken promises.
        warnings: What breaks no promise, and is likely a mistake.
        audited: Problems whose verdicts were audited, and how many there are, by part.
        refused: What a part said that refused something, and its name.
        refusing: Parts of which one of them was a `ConfigError`: they ask for something that the
            check was not given, or have a bug.
        is_missing_something: Whether one of them was a `PrerequisiteError`.
        hung: Parts that did not return in time, or ended the process.
        stopped_at: Part and promise at which a signal ended the check, "" where none did.
    """

    counts: dict[str, Counter[str]] = field(factory=dict)
    built_s: dict[str, float] = field(factory=dict)
    skipped: dict[str, str] = field(factory=dict)
    findings: list[Finding] = field(factory=list)
    warnings: list[str] = field(factory=list)
    audited: dict[str, tuple[int, int]] = field(factory=dict)
    refused: dict[str, str] = field(factory=dict)
    refusing: list[str] = field(factory=list)
    is_missing_something: bool = False
    hung: set[str] = field(factory=set)
    stopped_at: str = ""
    _found: dict[str, Finding] = field(factory=dict)

    @property
    def exit_code(self) -> ExitCode:
        """7: a promise is broken; 2: a part refuses; 4: a tool is missing; 0."""
        if self.findings:
            return ExitCode.PROMISE
        if self.refusing:
            return ExitCode.USAGE
        return ExitCode.PREREQUISITE if self.is_missing_something else ExitCode.DONE

    def refuse(self, part: str, error: Exception) -> None:
        """Count a promise that could not be checked: the part needs something it was not given."""
        self.lack(part, error)
        self.is_missing_something |= (is_missing := isinstance(error, PrerequisiteError))
        if not is_missing and part not in self.refusing:
            self.refusing.append(part)

    def lack(self, part: str, why: object) -> None:
        """Count a promise that could not be checked because something is missing."""
        self.hold(part, "refused")
        self.refused.setdefault(f"{part}: {one_line(why)}", part)

    def warn(self, part: str, text: str) -> None:
        """Add a warning, once."""
        if (warning := f"{part}: {text}") not in self.warnings:
            self.warnings.append(warning)

    def skip(self, part: str, reason: str, promise: str) -> None:
        """Count a promise that does not apply, or whose test needs something not installed."""
        from rlvr.testing.tools import NOT_CHECKED  # here: it needs pytest

        if reason.startswith(NOT_CHECKED):
            self.lack(part, reason.removeprefix(NOT_CHECKED))
        else:
            self.hold(part, "skip")
            self.skipped[f"{part}: {reason}"] = promise

    def add(self, part: str, asked: str, found: object, do: str, cause: str = "") -> None:
        """Add a finding; of several with one `cause` ("": the part and the text) the first."""
        text = re.sub(r" at 0x[0-9a-f]+", "", one_line(found))[:400]  # of no use to people
        known = self._found.get(cause := cause or f"{part}: {text}")
        self.hold(part, "refused" if known else "fail")
        if known:
            known.hides.append(f"{part}: {asked}")
        else:
            self._found[cause] = finding = Finding(part, asked, f"found: {text}", f"do: {do}")
            self.findings.append(finding)

    def add_raised(
        self, part: str, asked: str, error: Exception, target: str, do: str = "", cause: str = ""
    ) -> None:
        """Add the finding of an error that a part, or the kit, raised."""
        if isinstance(error, ChangedError):
            asked = "it leaves alone what all parts share, and ends what it starts."
        self.add(part, asked, said(error), mended_by(error, target) + do, cause or cause_of(error))

    def hang(self, part: str, asked: str, why: object, target: str) -> None:
        """Add the finding of a part that did not return, or ended the process."""
        self.hung.add(part)
        mend = "" if "it was at" in str(why) else f"mend {target}; "
        do = f"{mend}let it return, not exit: give what it waits for a timeout, or raise --limit"
        self.add(part, asked, why, do)

    def hold(self, part: str, outcome: str = "hold") -> None:
        """Count a promise that holds (or is skipped)."""
        self.counts.setdefault(part, Counter())[outcome] += 1


def named(spec: Any) -> str:
    """A record in words: its kind and name."""
    return f"{spec.kind} {spec.name}"


def one_line(text: object) -> str:
    """A text's lines, joined so that one sees where each ends."""
    joined = ""
    for line in filter(None, (" ".join(line.split()) for line in str(text).splitlines())):
        joined += f"{'' if joined[-1] in '.,:;!?([{' else ';'} {line}" if joined else line
    return joined


def said(error: BaseException) -> str:
    """An error in words; of a failed assertion its message, else the values that pytest shows."""
    if not isinstance(error, AssertionError):
        return str(error) if isinstance(error, PartError) else author_error.said(error)
    message, _, _ = (text := str(error) or "no message").partition("\nassert ")
    return _in_words(text) if re.match(r"\W|\w+\(|assert ", message) else message  # a repr


def _in_words(text: str) -> str:
    """The values that pytest shows, without its notation: what does not hold, and where from."""
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines):
        if line.startswith("assert "):
            lines[number] = f"this does not hold: {line.removeprefix('assert ')}"
        elif found := re.fullmatch(r"\+\s+(?:where|and)\s+(.+)", line):
            lines[number] = found[1]
    return "\n".join(line for line in lines if line)


def cause_of(error: BaseException) -> str:
    """What an error goes back to: class and place in the author's code, else its text; "": ours."""
    while error.__cause__ is not None:
        error = error.__cause__
    if place := author_error.place_of(error):
        return f"{type(error).__name__} at {place}"
    if isinstance(error, PartError):  # which promise of which method: not what came
        return str(error).partition("; came: ")[0]
    return "" if isinstance(error, AssertionError) else author_error.said(error)


def mended_by(error: BaseException, target: str) -> str:
    """The innermost line of the author's code in the traceback, else what the spec names."""
    return f"mend {author_error.place_of(error, in_library=False) or target}"


def print_report(args: argparse.Namespace, report: Report) -> ExitCode:
    """As JSON, or a line a part, then each finding in three sentences; gives the exit code."""
    if args.json:
        print_json({k: v for k, v in attrs.asdict(report).items() if not k.startswith("_")})
        return report.exit_code
    rows = [
        [
            part,
            f"{report.built_s[part]:.2f} s" if part in report.built_s else "-",
            *(counts[name] for name in ("hold", "fail", "skip", "refused")),
        ]
        for part, counts in report.counts.items()
    ]
    print(table(["part", "built in", "hold", "fail", "do not apply", "not checked"], rows))
    if args.verbose:
        for reason, promise in report.skipped.items():
            print(f"does not apply: {reason} ({promise})")
    for finding in report.findings:
        others = ""
        if count := len(finding.hides):
            parts = ", ".join(dict.fromkeys(hidden.partition(": ")[0] for hidden in finding.hides))
            more = f"{count} more promise{'s' * (count > 1)} could not be checked"
            others = f"because of this, {more}: {parts} (-v says which)"
        asked = f"{finding.part}: {finding.asked}"
        print("\n" + explain(asked, finding.found, "\n  ".join(filter(None, [finding.do, others]))))
        if args.verbose:
            for hidden in finding.hides:
                print(f"    {hidden}")
    for text in report.warnings:
        print(f"\nwarning: {text}")
    for text in report.refused:
        print(f"\nnot checked: {text}")
    for part, (some, every) in report.audited.items():
        if some < every:
            print(f"\n{part}: verdicts on {some} of {every} problems were audited (--problems)")
    if report.stopped_at:
        print(f"\nstopped before the end of the check, at {report.stopped_at}")
    if report.findings:
        print(f"\n{args.name} breaks promises: {sum(c['fail'] for c in report.counts.values())}")
    elif report.stopped_at:
        print(f"{args.name} broke no promise until then")
    elif report.refusing:
        count, parts = len(report.refusing), ", ".join(report.refusing)
        print(
            f"\n{args.name}: {count} part{'s' * (count > 1)} could not be checked: {parts}\n"
            "  each says above what it asks for: give it (key=value, --dataset, --model) or mend it"
        )
    elif report.refused:
        print(f"\n{args.name} keeps every promise that could be checked; give it what is asked for")
    else:
        print(f"{args.name} keeps every promise that applies")
    return report.exit_code
