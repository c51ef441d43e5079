# SPDX-License-Identifier: Apache-2.0
"""Diagrams as SVG text, in the colour of the page's own text, so that they fit a light and a dark theme.

Contract: pure; each function takes names and relations and gives one ``<svg>``. No program besides Python is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

__all__ = ["columns", "layers", "sequence"]

CHAR, LINE = 7.2, 18
ARROW = (
    '<defs><marker id="{0}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="currentColor"/></marker></defs>'
)


def _svg(title: str, width: float, height: float, parts: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:{width:.0f}px;width:100%;height:auto" '
        f'font-family="monospace" font-size="12">{"".join(parts)}</svg>'
    )


def _box(x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="4" '
        'fill="none" stroke="currentColor"/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "middle", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-weight="{weight}" fill="currentColor">'
        f"{escape(text)}</text>"
    )


def _line(a: tuple[float, float], b: tuple[float, float], marker: str = "", *, dashed: bool = False) -> str:
    end = f' marker-end="url(#{marker})"' if marker else ""
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<line x1="{a[0]:.0f}" y1="{a[1]:.0f}" x2="{b[0]:.0f}" y2="{b[1]:.0f}" stroke="currentColor"{end}{dash}/>'


def layers(title: str, needs: Mapping[str, frozenset[str]]) -> str:
    """Boxes in layers: each stands above all that it needs; an arrow that follows from others is left out."""
    level = dict.fromkeys(needs, 0)
    for _ in needs:
        level = {name: max((level[n] + 1 for n in needs[name] if n in level), default=0) for name in needs}
    rows = [[n for n in sorted(needs) if level[n] == k] for k in range(max(level.values()) + 1)]
    across, down, wide, high = 150, 70, 116, 30
    width = across * max(map(len, rows)) + 20
    place = {
        name: (width / 2 + (i - (len(row) - 1) / 2) * across, 20 + (len(rows) - 1 - k) * down)
        for k, row in enumerate(rows)
        for i, name in enumerate(row)
    }
    parts = [ARROW.format("needs")]
    for name, (x, y) in place.items():
        parts += [_box(x - wide / 2, y, wide, high), _text(x, y + 20, name)]
        for other in sorted(_direct(name, needs)):
            to_x, to_y = place[other]
            parts.append(_line((x, y + high), (to_x, to_y), "needs"))
    return _svg(title, width, 20 + len(rows) * down, parts)


def _direct(name: str, needs: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """What is needed and not needed through another."""
    known = needs[name] & needs.keys()
    through = {far for near in known for far in _reached(near, needs, frozenset({name}))}
    return frozenset(known - through)


def _reached(name: str, needs: Mapping[str, frozenset[str]], seen: frozenset[str]) -> frozenset[str]:
    found = (needs.get(name, frozenset()) & needs.keys()) - seen
    return found | {far for near in found for far in _reached(near, needs, seen | found)}


def sequence(title: str, lanes: Sequence[str], steps: Sequence[tuple[str, str, str, bool]]) -> str:
    """Life lines, and steps (from, to, what is sent, whether it is sent only sometimes) from top to bottom."""
    across, top, gap = 190, 44, 40
    x_of = {lane: 90 + i * across for i, lane in enumerate(lanes)}
    height = top + gap * (len(steps) + 1)
    parts = [ARROW.format("sent")]
    for lane, x in x_of.items():
        parts += [_box(x - 75, 8, 150, 26), _text(x, 26, lane, weight="bold")]
        parts.append(_line((x, 34), (x, height - 8), dashed=True))
    for n, (start, end, what, sometimes) in enumerate(steps, start=1):
        y = top + n * gap
        parts.append(_line((x_of[start], y), (x_of[end], y), "sent", dashed=sometimes))
        # Beside its start, so that a step over another life line is not written across it.
        side = across / 2 if x_of[end] > x_of[start] else -across / 2
        parts.append(_text(x_of[start] + side, y - 6, what))
    return _svg(title, across * (len(lanes) - 1) + 180, height, parts)


def columns(title: str, stages: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> str:
    """Stages side by side: a name, what leads to the next stage, and the other ends."""
    parts = [ARROW.format("next")]
    x, height = 10.0, 0.0
    for n, (name, onward, ends) in enumerate(stages):
        rows = [*onward, *ends]
        wide = CHAR * max(map(len, [name, *rows])) + 24
        parts.append(_text(x + wide / 2, 20, name, weight="bold"))
        parts.append(_box(x, 32, wide, LINE * len(onward) + 10))
        parts += [_text(x + 10, 50 + i * LINE, text, "start") for i, text in enumerate(onward)]
        below = 32 + LINE * len(onward) + 10
        parts += [_text(x + 10, below + 22 + i * LINE, text, "start") for i, text in enumerate(ends)]
        height = max(height, below + 22 + LINE * len(ends))
        if n < len(stages) - 1:
            parts.append(_line((x + wide, 46), (x + wide + 40, 46), "next"))
        x += wide + 40
    return _svg(title, x - 30, height, parts)
