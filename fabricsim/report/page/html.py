"""Pieces of HTML; whatever text comes in is escaped here and nowhere else."""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from fabricsim.units import human_percent


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> Html:
    """Give HTML as it is, and anything else escaped."""
    return value if isinstance(value, Html) else Html(escape(str(value)))


def isolated(value: str) -> Html:
    """Keep a name apart from what stands beside it, in whatever direction it is written."""
    return Html(f"<bdi>{escape(value)}</bdi>")


def paragraph(value: object) -> Html:
    """Make a paragraph."""
    return Html(f"<p>{text(value)}</p>")


def items(values: Iterable[object]) -> Html:
    """Make a list."""
    return Html(f"<ul>{''.join(f'<li>{text(value)}</li>' for value in values)}</ul>")


def section(anchor: str, title: str, *parts: Html) -> Html:
    """Make a section under a title."""
    return Html(f'<section id="{escape(anchor)}"><h2>{escape(title)}</h2>{"".join(parts)}</section>')


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]], words: int = 1) -> Html:
    """Make a table that scrolls by itself; its first `words` columns and those of bars are set left."""
    head = "".join(f'<th scope="col"{_side(place < words)}>{text(each)}</th>' for place, each in enumerate(headings))
    body = "".join(
        f"<tr>{''.join(f'<td{_side(place < words)}>{text(cell)}</td>' for place, cell in enumerate(row))}</tr>"
        for row in rows
    )
    label = escape(caption)
    return Html(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table><caption>{label}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _side(left: bool) -> str:  # noqa: FBT001  private
    return ' class="left"' if left else ""


def bar(share: float) -> Html:
    """Draw a share as a bar beside its number."""
    width = 100 * min(max(share, 0.0), 1.0)
    return Html(
        f'<span class="bar" aria-hidden="true"><span style="width:{width:.1f}%"></span></span>'
        f'<span class="of">{human_percent(share)}</span>'
    )


def document(title: str, body: Iterable[Html], data: object) -> str:
    """Make the page; its policy forbids the network, and any script but its own."""
    style, script = (files(__package__).joinpath(f"page.{end}").read_text("utf-8") for end in ("css", "js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    held = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body><main>{''.join(body)}</main>\n"
        f'<script type="application/json" id="data">{held}</script>\n<script>{script}</script></body></html>\n'
    )
