"""Tables of text, and numbers in short."""

from __future__ import annotations

from collections.abc import Collection, Sequence

WIDTH = 36  # of columns of ops and of lines; what is longer is cut


def table(rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """Lines with aligned columns; those whose numbers are in `left` begin at their left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def cut(text: str, width: int = WIDTH) -> str:
    """A text that is not wider than a column."""
    return text if len(text) <= width else text[: width - 1] + "…"


def micro(seconds: float) -> str:
    """Microseconds."""
    return f"{seconds * 1e6:.2f}"


def size(nbytes: float) -> str:
    """Bytes in the unit that gives few digits: `12.3 kB`.

    >>> size(999), size(12_345), size(7_500_000)
    ('999 B', '12.3 kB', '7.5 MB')
    """
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} GB"
