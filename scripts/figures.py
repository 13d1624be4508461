"""Draws the figures of docs/images from what rlvr's own commands write, as small SVG files.

    python scripts/figures.py [step] [trace] [curves] [spans] [board] [waveform]

Without names all are drawn: about five minutes on two cores, most of it for the trace's run.
Needs what `make setup` installs. Each figure holds a title and a description for screen readers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

IMAGES = Path(__file__).parents[1] / "docs" / "images"
RLVR = Path(sys.executable).with_name("rlvr")
COLOURS = {
    "sample": "#4c78a8",
    "verification": "#f2a541",
    "second opinion": "#b79a20",
    "parity": "#9c755f",
    "train": "#54a24b",
    "checkpoint": "#767676",
}
SPANS = {
    "reasoning": "#cfe3f7",
    "action": "#fbd9a8",
    "observation": "#e4e4e4",
    "other": "#ffffff",
}
POSITION = "r1bqk1nr/pppp1ppp/2n5/2b1p3/2B1P3/5N2/PPPP1PPP/RNBQK2R w KQkq - 4 4"
PROBLEM = "cvdp_starter_sequence_detector_0001"


def rlvr(folder: Path, words: str) -> str:
    """What a command prints, run in the folder."""
    done = subprocess.run(
        [RLVR, *words.split()], cwd=folder, text=True, stdout=subprocess.PIPE, check=True
    )
    return done.stdout


def svg(width: float, height: float, title: str, description: str, body: list[str]) -> str:
    """An SVG document on white, 12 px text unless the body says otherwise."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
            f' width="{width:g}" height="{height:g}" font-family="sans-serif" font-size="12"'
            ' role="img">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(description)}</desc>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            *body,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: str, more: str = "") -> str:
    """A line of text; y is its baseline."""
    return f'<text x="{x:g}" y="{y:g}" fill="#222222" {more}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, colour: str) -> str:
    """A filled rectangle."""
    size = f'width="{max(width, 0.4):.4g}" height="{height:g}"'
    return f'<rect x="{x:.5g}" y="{y:g}" {size} fill="{colour}"/>'


def step(folder: Path) -> str:
    """The parts of a step, above from left to right and below back again, with what each gives."""
    wide, high, apart, above, below = 92, 36, 199, 12, 112
    path = f'fill="none" stroke="{COLOURS["checkpoint"]}" stroke-width="1.5"'
    head = f'<path d="M0 0 8 4 0 8z" fill="{COLOURS["checkpoint"]}"/>'
    body = [f'<marker id="head" {HEAD}>{head}</marker>']

    def arrow(line: str, x: float, y: float, words: str, more: str = "") -> None:
        body.append(f'<path d="{line}" {path} {more} marker-end="url(#head)"/>')
        place = 'text-anchor="start"' if "V" in line else 'text-anchor="middle"'
        body.append(text(x, y, words, f'{place} font-size="11"'))

    parts = {"task": True, "sampler": True, "reward": True, "advantage": True}
    back = {"checkpointer": True, "backend, loss": True, "annotate": False, "collate": False}
    for y, row in ((above, parts), (below, back)):
        for place, (name, is_part) in enumerate(row.items()):
            x, round_by = 8 + place * apart, high / 2 if is_part else 0
            size = f'width="{wide}" height="{high}" rx="{round_by:g}"'
            body.append(f'<rect x="{x:g}" y="{y}" {size} fill="#eef3f9" stroke="#4c78a8"/>')
            body.append(text(x + wide / 2, y + 22, name, 'text-anchor="middle"'))
    for place, given in enumerate(("Problem", "Group", "ScoredGroup")):
        x, y = 8 + place * apart + wide, above + high / 2
        arrow(f"M{x + 2} {y:g}H{x + apart - wide - 2}", x + (apart - wide) / 2, y - 6, given)
    for place, given in enumerate(("metrics", "Datum, reference", "Datum")):
        x, y = 8 + place * apart + wide, below + high / 2
        arrow(f"M{x + apart - wide - 2} {y:g}H{x + 2}", x + (apart - wide) / 2, y - 6, given)
    x, y = 8 + wide / 2, (above + high + below) / 2 + 4
    arrow(f"M{x + 3 * apart} {above + high + 2}V{below - 2}", x + 3 * apart + 6, y, "floats")
    more = 'stroke-dasharray="5 4"'
    arrow(f"M{x + apart} {below - 2}V{above + high + 2}", x + apart + 6, y, "next weights", more)
    about = "Task, sampler, reward, advantage, collate, annotate, backend with loss, checkpointer."
    return svg(16 + 3 * apart + wide, below + high + 12, "The parts of a step", about, body)


HEAD = (
    'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
    ' markerUnits="userSpaceOnUse" orient="auto"'
)


def trace(folder: Path) -> str:
    """Spans of a run with `--max-staleness 1`: a row for each lane, time to the right."""
    words = "run --plugin cvdp --algo grpo --steps 4 --max-staleness 1 --out run eval.samples=0"
    rlvr(folder, words)
    rlvr(folder, "runs trace run --out trace.json")
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X"]
    begin = min(e["ts"] for e in spans)
    end = max(e["ts"] + e["dur"] for e in spans)
    kinds = {tid: re.sub(r" \d+$", "", name) for tid, name in lanes.items()}
    order = {kind: place for place, kind in enumerate(COLOURS)}
    shown = sorted((t for t in lanes if kinds[t] in order), key=lambda t: (order[kinds[t]], t))
    rows = {tid: 8 + 18 * row for row, tid in enumerate(shown)}
    left, width, bottom = 120, 640, 8 + 18 * len(rows)
    scale = width / (end - begin)
    body = [text(8, y + 11, lanes[tid]) for tid, y in rows.items()]
    for event in spans:
        if (tid := event["tid"]) in rows:
            x, wide = left + (event["ts"] - begin) * scale, event["dur"] * scale
            body.append(box(x, rows[tid], wide - 0.8, 14, COLOURS[kinds[tid]]))
    seconds = (end - begin) / 1e6
    for tick in range(0, int(seconds) + 1, 20):
        x = left + tick * 1e6 * scale
        body.append(f'<path d="M{x:.5g} 4V{bottom}" stroke="#cccccc" stroke-width="0.5"/>')
        body.append(text(x, bottom + 14, f"{tick} s", 'text-anchor="middle"'))
    about = f"Bars of {', '.join(dict.fromkeys(kinds[t] for t in shown))} over {seconds:.0f} s."
    title = "What a run with --max-staleness 1 did at which time"
    return svg(left + width + 24, bottom + 24, title, about, body)


def curves(folder: Path) -> str:
    """`rlvr runs compare` of two learning rates, as the command draws it."""
    for name, rate in (("slow", "2e-3"), ("fast", "7e-3")):
        words = f"run --plugin toy --algo grpo --steps 30 --out {name} train.lr={rate}"
        rlvr(folder, f"{words} eval.every=10")
    (folder / "matplotlibrc").write_text("svg.fonttype: none\nsvg.hashsalt: rlvr\n")
    rlvr(folder, "runs compare slow fast --out curves.svg")
    drawn = (folder / "curves.svg").read_text()
    drawn = re.sub(r"\d+\.\d\d+", lambda number: f"{float(number[0]):.1f}", drawn)
    return re.sub("font-family: [^;]*sans-serif", "font-family: sans-serif", drawn)


def spans(folder: Path) -> str:
    """The first trajectory of the house's solver, each span with the colour of its type."""
    rlvr(folder, "household play --model solver --problems 1 --out log.jsonl")
    record = json.loads(rlvr(folder, "sad spans log.jsonl --json").splitlines()[0])
    body, x = [], 10.0
    for kind, colour in SPANS.items():
        body += [box(x, 8, 14, 14, colour), text(x + 20, 20, kind)]
        body.append(f'<rect x="{x:g}" y="8" width="14" height="14" fill="none" stroke="#999999"/>')
        x += 120
    y = 34
    for span in record["spans"]:
        for line in record["text"][span["start"] : span["end"]].splitlines():
            body.append(box(10, y, 700, 18, SPANS[span["type"]]))
            body.append(text(16, y + 13, line, 'font-family="monospace"'))
            y += 18
    title = "A trajectory and the types of its spans"
    about = "Thoughts are reasoning, commands action, replies observation, the task other."
    return svg(720, y + 8, title, about, body)


def board(folder: Path) -> str:
    """`rlvr chess board` of an Italian game, as the command draws it."""
    (folder / "position.pgn").write_text(f'[SetUp "1"]\n[FEN "{POSITION}"]\n\n*\n')
    rlvr(folder, "chess board position.pgn --svg board.svg")
    return (folder / "board.svg").read_text()


def waveform(folder: Path) -> str:
    """40 ns of `rlvr cvdp waves` around the first match that a golden answer finds."""
    rlvr(folder, f"cvdp waves --id {PROBLEM} --golden --format vcd --out waves")
    (dump,) = (folder / "waves").glob("*.vcd")
    names, widths, changes = read_vcd(dump.read_text())
    (found,) = (code for code, name in names.items() if name == "found")
    first = next(t for t, value in changes[found] if value == "1") - 34
    left, scale, until = 70, 14, first + 40
    body = []
    for row, (code, name) in enumerate(names.items()):
        low, high = 40 + 34 * row, 20 + 34 * row
        body.append(text(8, low - 5, name))
        ends = [*(t for t, _ in changes[code][1:]), until]
        for (start, value), stop in zip(changes[code], ends, strict=True):
            if stop <= first or start >= until:
                continue
            x = left + (max(start, first) - first) * scale
            end = left + (min(stop, until) - first) * scale
            if widths[code] == 1 and value in ("0", "1"):
                y = high if value == "1" else low
                body.append(f'<path d="M{x:g} {low}V{y}H{end:g}V{low}" {LINE}/>')
            else:
                body.append(f'<path d="M{x:g} {high}H{end:g}V{low}H{x:g}z" {LINE}/>')
                body.append(text((x + end) / 2, low - 6, value.upper(), 'text-anchor="middle"'))
    bottom = 40 + 34 * len(names)
    for tick in range(0, 41, 10):
        when = f"{first + tick} ns"
        body.append(text(left + tick * scale, bottom - 8, when, 'text-anchor="middle"'))
    title = "Waveform of a detector of the bits 1001"
    about = f"Levels of {', '.join(names.values())} over 40 ns; a box holds a state's number."
    return svg(left + 40 * scale + 24, bottom + 4, title, about, body)


LINE = 'fill="none" stroke="#2f6f4f" stroke-width="1.5"'


Changes = dict[str, list[tuple[int, str]]]


def read_vcd(dump: str) -> tuple[dict[str, str], dict[str, int], Changes]:
    """By the code of each signal its name, its bits, and the times in ns with the new value."""
    declared = re.findall(r"\$var \w+ (\d+) (\S+) (\w+)", dump)
    names = {code: name for _, code, name in declared}
    widths = {code: int(width) for width, code, _ in declared}
    changes: Changes = {code: [] for code in names}
    now = 0
    for line in dump.partition("$enddefinitions")[2].splitlines():
        if line.startswith("#"):
            now = int(line[1:])
        elif found := re.fullmatch(r"(?:b([01xz]+) |([01xz]))(\S+)", line):
            value = found[2] or str(int(found[1], 2) if set(found[1]) <= set("01") else found[1])
            at = changes[found[3]]
            if at and at[-1][0] == now:
                at.pop()
            at.append((now, value))
    return names, widths, changes


FIGURES: dict[str, Callable[[Path], str]] = {
    figure.__name__: figure for figure in (step, trace, curves, spans, board, waveform)
}


def main(names: list[str]) -> int:
    """Draw the named figures, or all of them."""
    for name in names or FIGURES:
        with TemporaryDirectory() as folder:
            drawn = FIGURES[name](Path(folder))
        (IMAGES / f"{name}.svg").write_text(drawn, encoding="utf-8")
        print(f"docs/images/{name}.svg: {len(drawn)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
