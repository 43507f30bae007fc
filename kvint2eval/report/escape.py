"""Escaping of text, so that it cannot forge a line of a log.

A record is written by anyone. Its strings, and the paths that lead to it, may hold line ends, terminal
sequences, or what a CI system takes for a command. What leaves here is printable and stays on one line.
"""

from __future__ import annotations

import re

__all__ = ["ascii_json", "safe"]

_COMMAND = re.compile(r"##(?=\[|vso\[)")
_BEYOND_ASCII = re.compile("[^\\x00-\\x7e]")


def safe(text: str) -> str:
    r"""Text with every character that is not printable written as an escape.

    Line ends, control characters of both ranges, direction overrides, line separators and lone surrogates
    become `\n`, `\x1b`, `\u202e` and so on. `##[` and `##vso[`, which some CI systems obey anywhere in a
    line, are broken up.
    """
    if text.isprintable() and "##" not in text:
        return text
    escaped = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")
    )
    return _COMMAND.sub(r"#\\x23", escaped)


def ascii_json(line: bytes) -> bytes:
    r"""A JSON text in ASCII without control characters: what lies beyond becomes `\u` escapes.

    Valid for any JSON text, since such characters stand only inside strings.
    """
    if line.isascii() and b"\x7f" not in line:
        return line
    return _BEYOND_ASCII.sub(_escape, line.decode()).encode()


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))
