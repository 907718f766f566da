"""Pictures of the page as SVG: use of links over time, the fabric coloured by load, histograms, matrices."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fabricsim.report.page.html import Html
from fabricsim.results.packets import Tap
from fabricsim.results.resources import tier
from fabricsim.results.result import LinkRecord, Series
from fabricsim.results.slowdown import edges
from fabricsim.results.use_over_time import TierUse, use_of_wires
from fabricsim.units import human_bytes, human_percent, human_seconds, seconds

VIRIDIS = (
    "#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725",
)  # fmt: skip
MOST_LINKS = 32
"""Rows of the heat map at most."""
BINS = 120
_MOST_NODES = 120
_MOST_CELLS = 48
_MOST_TAPS = 12
_TAP_BINS = 240
_TOP = 20  # middle of the highest nodes
_NAME = 190  # width of names
_HOST = re.compile(r"host[\d*]+(/nic[\d*]+)?")  # or a tier of them


def heat_map(series: Series, iteration: int, held: Sequence[TierUse] = ()) -> Html:
    """Draw the use of the busiest links over time, below that of what `held` calls; empty if nothing was used."""
    _, use = use_of_wires(series, iteration, BINS)
    order = np.argsort(-use.sum(axis=1), kind="stable")[:MOST_LINKS]
    rows = [(f"{tier.kind} {tier.tier}", tier.most) for tier in held if tier.most.any()]
    rows += [(series.names[link], use[link]) for link in order.tolist() if use[link].any()]
    if not rows:
        return Html("")
    span = human_seconds(seconds(iteration))
    return _grid(rows, f"Use over time, from 0 to {span}", f"0 to {span}, left to right; with *: of calls it limits")


def depths(taps: Sequence[Tap]) -> Html:
    """Draw tapped queues over time, the deepest first: a band from the least to the most, each to its own scale."""
    shown = sorted((tap for tap in taps if tap.kind == "queue" and tap.value.any()), key=lambda tap: -tap.value.max())
    if not shown:
        return Html("")
    high, end, parts = 42, max(int(tap.time[-1]) for tap in shown[:_MOST_TAPS]), []
    for place, tap in enumerate(shown[:_MOST_TAPS]):
        slots = np.minimum(tap.time * _TAP_BINS // max(end, 1), _TAP_BINS - 1).astype(np.int64)
        begins = np.flatnonzero(np.diff(slots, prepend=-1))
        most, least = np.maximum.reduceat(tap.value, begins), np.minimum.reduceat(tap.value, begins)
        x = _NAME + 720 * slots[begins] / _TAP_BINS
        foot = (place + 1) * high - 6
        scale = (high - 14) / float(tap.value.max())
        upper = [f"{at:.1f},{foot - value * scale:.1f}" for at, value in zip(x, most, strict=True)]
        lower = [f"{at:.1f},{foot - value * scale:.1f}" for at, value in zip(x[::-1], least[::-1], strict=True)]
        deepest = human_bytes(int(tap.value.max()))
        name = escape(tap.of[:34])
        parts.append(f'<text x="0" y="{foot - 14}">{name}</text><text x="0" y="{foot}">up to {deepest}</text>')
        parts.append(
            f'<polygon points="{" ".join(upper + lower)}" fill="var(--accent)" stroke="var(--accent)">'
            f"<title>{name}: up to {deepest}</title></polygon>"
            f'<line x1="{_NAME}" y1="{foot}" x2="{_NAME + 720}" y2="{foot}" stroke="var(--line)"/>'
        )
    bottom = len(shown[:_MOST_TAPS]) * high
    parts.append(f'<text x="{_NAME}" y="{bottom + 10}">0 to {human_seconds(seconds(end))}, left to right</text>')
    return _svg(
        _NAME + 720, bottom + 16, f"Tapped queues over time, {min(len(shown), _MOST_TAPS)} of {len(shown)}", parts
    )


def matrix(source: NDArray[np.int64], target: NDArray[np.int64], sent: NDArray[np.int64], ranks: int) -> Html:
    """Draw the bytes from each rank to each, relative to the most; a cell has several ranks if there are many."""
    each = -(-ranks // _MOST_CELLS)
    grid = np.zeros((-(-ranks // each),) * 2)
    np.add.at(grid, (source // each, target // each), sent)
    most = float(grid.max()) or 1.0
    rows = [
        (f"from {place * each}" + f" to {(place + 1) * each - 1}" * (each > 1), row / most)
        for place, row in enumerate(grid)
    ]
    return _grid(
        rows, f"Bytes by pair, relative to the most ({human_bytes(int(most))})", "receiving rank, left to right"
    )


def _grid(rows: Sequence[tuple[str, NDArray[np.float64]]], title: str, along: str) -> Html:
    """Draw rows of shares; neighbours of one colour are one rectangle."""
    count, high = len(rows[0][1]), 15
    wide = 720 / count
    parts = []
    for place, (name, shares) in enumerate(rows):
        level = np.minimum((shares * len(VIRIDIS)).astype(int), len(VIRIDIS) - 1)
        parts.append(f'<text x="0" y="{place * high + 11}">{escape(name[:34])}</text>')
        begins = [*np.flatnonzero(np.diff(level, prepend=-1)).tolist(), count]
        for begin, end in pairwise(begins):
            box = f'x="{_NAME + begin * wide:.1f}" y="{place * high}" width="{(end - begin) * wide + 0.1:.1f}"'
            mean = 100 * float(shares[begin:end].mean())
            parts.append(
                f'<rect {box} height="{high - 1}" fill="{VIRIDIS[level[begin]]}">'
                f"<title>{escape(name)}: {mean:.0f} %</title></rect>"
            )
    bottom = len(rows) * high
    parts.append(f'<text x="{_NAME}" y="{bottom + 14}">{escape(along)}</text>{_scale(bottom + 4)}')
    return _svg(_NAME + 720, bottom + 22, title, parts)


def _scale(top: float) -> str:
    boxes = "".join(
        f'<rect x="{620 + 20 * place}" y="{top}" width="20" height="12" fill="{colour}"/>'
        for place, colour in enumerate(VIRIDIS)
    )
    return f'<text x="590" y="{top + 10}">0 %</text>{boxes}<text x="825" y="{top + 10}">100 %</text>'


def histogram(counts: NDArray[np.int64]) -> Html:
    """Draw messages by their slowdown; empty without messages."""
    used = np.flatnonzero(counts)
    if not len(used):
        return Html("")
    first, last = int(used[0]), int(used[-1]) + 1
    wide, most = 880 / max(last - first, 1), int(counts.max())
    parts = []
    for place in used.tolist():
        tall = max(1.0, 120 * int(counts[place]) / most)
        box = f'x="{(place - first) * wide:.1f}" y="{130 - tall:.1f}" width="{max(min(wide, 40) - 0.5, 0.8):.1f}"'
        told = f"up to {edges()[place]:.3g}x: {int(counts[place]):,} messages"
        parts.append(f'<rect {box} height="{tall:.1f}" fill="var(--accent)"><title>{told}</title></rect>')
    ends = f"{edges()[first]:.3g}x", f"{edges()[last - 1]:.3g}x"
    parts.append(f'<text x="0" y="146">{ends[0]}</text><text x="880" y="146" text-anchor="end">{ends[1]}</text>')
    return _svg(890, 150, f"Messages by slowdown; the highest bar has {most:,}", parts)


def fabric(links: Iterable[LinkRecord], time: float) -> Html:
    """Draw nodes in tiers and the cables between them, coloured by the busier direction; large fabrics by tier.

    `time`: over which use is meant, s.
    """
    named = [(link.name.split("->"), link) for link in links if link.kind == "wire"]
    wires = [(ends[0], ends[1], link) for ends, link in named if len(ends) == 2]  # noqa: PLR2004  ends of a wire
    if len({end for wire in wires for end in wire[:2]}) > _MOST_NODES:
        wires = [(tier(one), tier(other), link) for one, other, link in wires]
    uses: dict[tuple[str, str], float] = {}
    for one, other, link in wires:
        use = link.load / (link.capacity * time) if link.capacity > 0 else 0.0
        pair = (min(one, other), max(one, other))
        uses[pair] = max(uses.get(pair, 0.0), use)
    if not uses:
        return Html("")
    spots, height = _spots(uses)
    parts = []
    for (one, other), use in sorted(uses.items(), key=lambda each: each[1]):
        (x, y), (u, v) = spots[one], spots[other]
        colour = VIRIDIS[min(int(use * len(VIRIDIS)), len(VIRIDIS) - 1)]
        line = f'x1="{x:.1f}" y1="{y}" x2="{u:.1f}" y2="{v}"'
        width = 1.5 + 3 * min(use, 1)
        parts.append(f'<line {line} stroke="var(--faint)" stroke-width="{width + 1.5:.1f}"/>')  # seen on any paper
        told = f"<title>{escape(one)} - {escape(other)}: {human_percent(use)}</title>"
        parts.append(f'<line {line} stroke="{colour}" stroke-width="{width:.1f}">{told}</line>')
    few = len(spots) <= 40  # noqa: PLR2004  names would cover one another
    for name, (x, y) in spots.items():
        parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="var(--ink)"><title>{escape(name)}</title></circle>')
        if few:
            parts.append(
                f'<text x="{x:.1f}" y="{y + 18 if y > _TOP else y - 10}" text-anchor="middle">{escape(name)}</text>'
            )
    return _svg(
        910, height + 20, "The fabric; a cable has the colour of its busier direction", [*parts, _scale(height + 4)]
    )


def _spots(uses: Iterable[tuple[str, str]]) -> tuple[dict[str, tuple[float, int]], int]:
    """Put hosts at the bottom and each node above those that it is nearest to."""
    beside: dict[str, set[str]] = {}
    for one, other in uses:
        beside.setdefault(one, set()).add(other)
        beside.setdefault(other, set()).add(one)
    level = {name: 0 for name in sorted(beside, key=_natural) if _HOST.fullmatch(name)} or {min(beside): 0}
    edge = list(level)
    while edge:
        above = {name: level[near] + 1 for near in edge for name in beside[near] if name not in level}
        level |= above
        edge = list(above)
    level |= {name: 0 for name in beside if name not in level}
    top = max(level.values())
    spots: dict[str, tuple[float, int]] = {}
    for height in range(top + 1):
        names = sorted((name for name, at in level.items() if at == height), key=_natural)
        for place, name in enumerate(names):
            spots[name] = ((place + 0.5) * 890 / len(names), _TOP + (top - height) * 110)
    return spots, 50 + top * 110


def _natural(name: str) -> tuple[str, int, str]:
    digits = "".join(filter(str.isdecimal, name))[:18]
    return tier(name), int(digits or 0), name


def _svg(width: float, height: float, title: str, parts: Iterable[str]) -> Html:
    label = escape(title)
    return Html(
        f'<figure class="scroll" style="margin:0" tabindex="0"><figcaption class="faint">{label}</figcaption>'
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg></figure>"
    )
