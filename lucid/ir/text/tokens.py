"""Tokens of IR text, and errors that point at one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lucid.ir.errors import ParseError

_PATTERN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<value>%[\w.]+)
    |(?P<line>@\d+)
    |(?P<index>\#\d+)
    |(?P<file>(?!nan:0x)[\w.<>+-]+:\d+)
    |(?P<number>nan:0x[0-9a-f]+|[+-]?(?:inf|nan)(?![\w.])
        |[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<word>[^\W\d][\w.]*)
    |(?P<mark>[][(){},:=])""",
    re.VERBOSE,
)

_SHOWN = 500  # characters that messages have of a line before a place, and from it on


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text.

    Attributes:
        kind: "string", "value" (`%x`), "line" (`@1`), "index" (`#1`), "file", "number", "word",
            "mark" or "end".
        start: offset in the text.
    """

    kind: str
    text: str
    start: int


class Tokens:
    """The tokens of a text, and the place in them where the parser is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tokens = self._scan()
        self.current = self._tokens[0]

    def _scan(self) -> list[Token]:
        tokens = []
        start = 0
        while start < len(self._text):
            match = _PATTERN.match(self._text, start)
            if match is None:
                raise self.error(Token("mark", self._text[start], start), "unexpected character")
            kind = str(match.lastgroup)
            if kind != "space":
                tokens.append(Token(kind, match.group(), start))
            start = match.end()
        tokens.append(Token("end", "", start))
        return tokens

    def error(self, token: Token, message: str) -> ParseError:
        """An error that shows the token's line, or a part of it, with a caret below the token."""
        start = token.start
        before = self._text[max(start - _SHOWN, 0) : start].rpartition("\n")[2]
        line = before + self._text[start : start + _SHOWN].partition("\n")[0]
        row = self._text.count("\n", 0, start) + 1
        return ParseError(f"line {row}: {message:.{_SHOWN}}\n{line}\n{' ' * len(before)}^")

    def _next(self) -> Token:
        token = self.current
        if token.kind != "end":
            self._at += 1
            self.current = self._tokens[self._at]
        return token

    def accept(self, text: str) -> bool:
        """Pass over the token if it is this word or mark; tell whether it was."""
        if self.current.text != text or self.current.kind not in ("word", "mark"):
            return False
        self._next()
        return True

    def accept_kind(self, kind: str) -> Token | None:
        """Take the token if it is of this kind."""
        return self._next() if self.current.kind == kind else None

    def expect(self, text: str) -> None:
        """Pass over this word or mark. Raises `ParseError` if something else stands here."""
        if not self.accept(text):
            raise self.error(self.current, f"expected `{text}`, found {self._found()}")

    def take(self, *kinds: str) -> Token:
        """Take a token of one of the kinds. Raises `ParseError` if it is of another."""
        if self.current.kind not in kinds:
            names = " or ".join(_NAMES[kind] for kind in kinds)
            raise self.error(self.current, f"expected {names}, found {self._found()}")
        return self._next()

    def take_int(self) -> int:
        """Take a whole number."""
        token = self.take("number")
        return self.int_of(token, token.text)

    def int_of(self, token: Token, text: str) -> int:
        """The whole number that a part of a token spells."""
        try:
            return int(text)
        except ValueError:  # not whole, or of more digits than Python reads
            raise self.error(token, f"{text:.40} isn't a whole number") from None

    def expect_end(self) -> None:
        """Raise `ParseError` if anything is left."""
        if self.current.kind != "end":
            raise self.error(self.current, f"expected the end, found {self._found()}")

    def _found(self) -> str:
        return "the end" if self.current.kind == "end" else f"`{self.current.text}`"


_NAMES = {
    "string": "a string",
    "value": "a value such as `%x`",
    "line": "a location such as `@1`",
    "index": "a region such as `#1`",
    "file": "a file and line such as `digits.py:22`",
    "number": "a number",
    "word": "a name",
}
