"""A Markdown page: its blocks, its tables, and the texts that a reader sees there, with their lines.

The block structure is parsed whole (CommonMark with tables, by markdown-it-py); what stands inside a block is
rendered only when somebody looks for it, which is what keeps a thousand pages below a second.
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

    from kvint2eval.gate.tables import Anchor

__all__ = ["DIGEST", "Located", "Page"]

DIGEST = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{64}(?![0-9A-Fa-f])")
"""A 64-hex string. Upper case is found too, so that it cannot slip through; no file has such a digest."""

# Markup that can stand inside a run of characters without being seen.
_MARKUP = re.compile(r"<[^<>]*>|\]\([^()]*\)|[*_~`\\\[\]]")
_UNSEEN = re.compile(r"<!--.*?-->|<[^<>]*>", re.DOTALL)
# What the inline parser looks at; a text without any of it is shown as it is, and most table cells are.
_INLINE = re.compile(r"[\n!&*<>\[\\\]_`]")
_SHOWN_CHARACTERS = 60
_SPACE = re.compile(r"\s+")
# Variation selectors and joiners of no width that are no format characters by their class.
_UNSEEN_MARKS = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, *range(0xFE00, 0xFE10)))
)
# Full-width digits and letters, which look like those of a digest.
_ASCII_OF = {chr(code + 0xFEE0): chr(code) for code in range(0x21, 0x7F)}
# A figure ends where nothing carries on: no digit, letter or percent sign, no factor, no range, no further thousands.
_MORE = (
    r"[\w%\u2030/^:]|[.,'\u2019(][0-9]|[-\u2010-\u2015\u2212~][0-9]"  # 1.5-9.9, 1.5/2, 1.5(3)
    r"|\s*[%\u2030]|\s*[x*\u00d7\u00b7\u22c5\u2217]\s*[0-9]|\s[eE][-+\u2212]?[0-9]"  # 1.5 %, 1.5 x 10^3, 1.5 e3
    r"|\s[0-9]{3}(?![0-9])|\s(?:per\s?cent|hundred|thousand|million|billion|trillion)\b"  # 1 000
)
_END = rf"(?!{_MORE})"
_CARRIES_ON = re.compile(_MORE)
_BEGIN = r"(?<![\w.,+\u2010-\u2015\u2212~/^:-])(?<![0-9]\s)"


class Located(NamedTuple):
    """A place on a page, and what stands there."""

    first: int
    """First line of its block, from 1."""
    last: int
    """Last line of its block."""
    line: int
    """Line of the place itself."""
    found: str
    """What stands there, white space as single spaces."""
    text: str
    """What a reader sees of its block, or of its table row."""
    start: int
    """Where in that text it begins."""
    is_exact: bool
    """Whether `found` is what the binding speaks of, and not just what happens to stand there."""


class _Block(NamedTuple):
    """A run of text: a paragraph, a heading, a cell, a code block, or raw HTML."""

    token: Token
    first: int
    last: int
    section: tuple[str, ...]
    cells: int
    """Number of its table, from 1; 0 outside tables."""
    row: int
    """Row of its table, 0 for the head."""
    column: int


def seen(text: str) -> str:
    """Text without unseen characters, which could split a digest, full-width letters as ASCII."""
    if text.isascii():
        return text
    kept = (one for one in text if unicodedata.category(one) != "Cf" and one not in _UNSEEN_MARKS)
    return "".join(_ASCII_OF.get(one, one) for one in kept)


def normal(text: str) -> str:
    """Text with every run of white space as one space."""
    return _SPACE.sub(" ", text).strip()


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


class Page:
    """One page.

    Parameters
    ----------
    text
        The page's text; its line ends may be LF or CR LF.
    """

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        self._rendered: dict[int, str] = {}
        self._environment: dict[str, object] = {}

    @cached_property
    def _blocks(self) -> tuple[_Block, ...]:
        return tuple(self._walk())

    def _walk(self) -> Iterator[_Block]:
        section: list[tuple[int, str]] = []
        table = row = column = level = 0
        is_in_table = False
        for token in _parser().parse(self.text, self._environment):
            if token.type == "table_open":
                table, row, is_in_table = table + 1, -1, True
            elif token.type == "table_close":
                is_in_table = False
            elif token.type == "tr_open":
                row, column = row + 1, -1
            elif token.type == "heading_open":
                level = int(token.tag[1:])
                section = [one for one in section if one[0] < level]
            elif token.type == "inline" or token.type in ("fence", "code_block", "html_block"):
                first, last = token.map or [0, 0]
                column += 1
                place = (table, row, column) if is_in_table else (0, 0, 0)
                if level and token.type == "inline":
                    section.append((level, ""))
                block = _Block(token, first + 1, last, tuple(text for _, text in section), *place)
                if level and token.type == "inline":
                    section[-1] = (level, normal(self._text(block)))
                    level = 0
                yield block

    def _text(self, block: _Block) -> str:
        """What a reader sees of a block, a line end where the source has one."""
        known = self._rendered.get(id(block.token))
        if known is None:
            known = self._rendered[id(block.token)] = seen(self._render(block.token))
        return known

    def _render(self, token: Token) -> str:
        if token.type == "fence":
            return "\n" + token.content  # the opening line is part of the block
        if token.type == "html_block":
            return _UNSEEN.sub(lambda match: "\n" * match[0].count("\n"), token.content)
        if token.type != "inline":
            return token.content
        if not _INLINE.search(token.content):
            return token.content
        parser = _parser()
        children: list[Token] = []
        parser.inline.parse(token.content, parser, self._environment, children)
        return "".join(_visible(children))

    def digests(self) -> list[tuple[str, int]]:
        """The 64-hex strings of the page, each with its line: in the source, or put together by markup."""
        found = [
            (match[0], self.text.count("\n", 0, match.start()) + 1) for match in DIGEST.finditer(self.text)
        ]
        squeezed = _MARKUP.sub("", seen(html.unescape(self.text)))
        if len(DIGEST.findall(squeezed)) != len(found):
            known = {digest for digest, _ in found}
            for block in self._blocks:
                text = _MARKUP.sub("", self._text(block))
                found += [
                    (match[0], block.first + text.count("\n", 0, match.start()))
                    for match in DIGEST.finditer(text)
                    if match[0] not in known
                ]
        return found

    def shows(self, digest: str) -> int | None:
        """Line at which a reader sees a digest; None where no block shows it."""
        for block in self._blocks:
            if digest in seen(block.token.content):
                text = self._text(block)
                if digest in text:
                    return block.first + text.count("\n", 0, text.index(digest))
        return None

    def locate(self, anchor: Anchor, pattern: str, expected: str) -> list[Located]:
        """Places that an anchor names.

        Parameters
        ----------
        anchor
            Which place.
        pattern
            Regular expression of what may stand there.
        expected
            What should stand there.

        Returns
        -------
        list of Located
            One, if the anchor is good.
        """
        blocks = [one for one in self._blocks if not anchor.under or normal(anchor.under) in one.section]
        if anchor.row:
            return list(self._cells(blocks, anchor))
        return [
            located
            for block in blocks
            if not block.cells and self._may_hold(block, anchor)
            for located in self._in_text(block, anchor, pattern, expected)
        ]

    def _may_hold(self, block: _Block, anchor: Anchor) -> bool:
        """Whether a block's source holds the anchor's longest word, which saves rendering it."""
        words = [word for word in re.findall(r"[A-Za-z0-9]+", anchor.before or anchor.after) if word]
        return not words or max(words, key=len) in block.token.content or "&" in block.token.content

    def _cells(self, blocks: list[_Block], anchor: Anchor) -> Iterator[Located]:
        row_key = [normal(text) for text in anchor.row]
        column_key = normal(anchor.column)
        grid = {(one.cells, one.row, one.column): one for one in blocks if one.cells}
        for (table, row, column), block in grid.items():
            if row or normal(self._text(block)) != column_key:
                continue
            body = 1
            while (table, body, 0) in grid:
                cells = [
                    grid[place]
                    for place in ((table, body, one) for one in range(len(row_key)))
                    if place in grid
                ]
                if [normal(self._text(cell)) for cell in cells] == row_key:
                    yield self._cell(grid, (table, body, column))
                body += 1

    def _cell(self, grid: dict[tuple[int, int, int], _Block], at: tuple[int, int, int]) -> Located:
        table, row, column = at
        block = grid[at]
        found = normal(self._text(block))
        texts: list[str] = []
        while (cell := grid.get((table, row, len(texts)))) is not None:
            texts.append(normal(self._text(cell)))
        start = sum(len(text) + 1 for text in texts[:column])
        return Located(
            block.first, block.last, block.first, found, "\n".join(texts), start, is_exact=bool(found)
        )

    def _in_text(self, block: _Block, anchor: Anchor, pattern: str, expected: str) -> Iterator[Located]:
        text = self._text(block)
        for start, end, is_exact in _spans(text, anchor, pattern, expected):
            found = normal(text[start:end])
            line = block.first + text.count("\n", 0, start)
            yield Located(block.first, block.last, line, found, text, start, is_exact)


def flex(text: str) -> str:
    """Pattern of a text in which any white space may stand for any other."""
    return r"\s+".join(map(re.escape, normal(text).split(" ")))


def _visible(children: list[Token]) -> Iterator[str]:
    for child in children:
        if child.type in ("text", "code_inline", "text_special"):
            yield child.content
        elif child.type in ("softbreak", "hardbreak"):
            yield "\n"
        elif child.children:
            yield from _visible(child.children)


def _spans(text: str, anchor: Anchor, pattern: str, expected: str) -> Iterator[tuple[int, int, bool]]:
    """Start and end of what stands at a text anchor, and whether it has the form of what should stand there."""
    if not anchor.before:
        for match in re.finditer(flex(anchor.after), text):
            head = text[: match.start()].rstrip()
            for one, is_exact in (
                (_BEGIN + flex(expected), True),
                (_BEGIN + pattern, True),
                (r"\S{1,40}", False),
            ):
                found = re.search(rf"(?:{one})\Z", head)
                if found:
                    yield found.start(), found.end(), is_exact
                    break
            else:
                yield len(head), len(head), False
        return
    for match in re.finditer(flex(anchor.before), text):
        start = match.end() + len(text[match.end() :]) - len(text[match.end() :].lstrip())
        if anchor.after:
            end = re.search(rf"\s*{flex(anchor.after)}", text[start:])
            if end is not None:
                stop = start + end.start()
                yield start, stop, re.fullmatch(pattern, text[start:stop]) is not None
            continue
        held = _end_of(expected, text, start)
        found = None if held is not None else re.compile(pattern + _END).match(text, start)
        if held is not None:
            yield start, held, True
        elif found:
            yield start, found.end(), True
        else:
            yield start, start + len(text[start : start + _SHOWN_CHARACTERS].rstrip()), False


def _end_of(expected: str, text: str, start: int) -> int | None:
    """End of an expected text that begins at an offset, whatever its white space is; None where it does not."""
    at = start
    for word in expected.split():
        space = _SPACE.match(text, at) if at > start else None
        at = space.end() if space else at
        if not text.startswith(word, at) or (at > start and space is None):
            return None
        at += len(word)
    return None if _CARRIES_ON.match(text, at) else at
