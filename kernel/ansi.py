"""Text as a terminal shows it: colours as spans; lines that a carriage return overwrites, as last drawn.

A style is one number, so that it can be stored beside a position in a log: flags, then the foreground and the
background. Other escape sequences are removed. Control characters, and those that change the direction of text, are
shown as visible symbols. One pass over each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

FLAGS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike"}
ENDS = {22: (1, 2), 23: (3,), 24: (4,), 27: (7,), 29: (9,)}
BITS = {code: 1 << at for at, code in enumerate(FLAGS)}
FORE, BACK = 8, 34  # where a colour begins: 24 bits of value, 2 bits of kind
INDEX, RGB = 1 << 24, 2 << 24
COLOUR = (1 << 26) - 1
CUBE = (0, 95, 135, 175, 215, 255)
MAX_CODES = 64  # of one sequence

SEQUENCE = re.compile(
    r"\x1b(?:\[([0-?]*)[ -/]*([@-~])|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-Z\\^-~])"
    r"|(\r(?=[^\r]))|([^\x1b\x08])\x08|\x08"
)
PLAIN = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-Z\\^-~])")
OVERDRAWN = re.compile(rb"^[^\n]*\r(?=[^\r\n])", re.MULTILINE)
STYLING = re.compile(rb"\x1b\[([0-9;:]*)m")
SIGNS = {code: chr(0x2400 + code) for code in range(32) if code not in (9, 10)} | {127: "\u2421"}
SIGNS |= dict.fromkeys(range(0x80, 0xA0), "\ufffd") | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
SIGNS |= {
    code: f"[U+{code:04X}]" for code in (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
}
SIXTEEN = [(205 * (n & 1), 205 * (n >> 1 & 1), 205 * (n >> 2)) for n in range(7)] + [(229, 229, 229), (127, 127, 127)]
SIXTEEN += [(255 * (n & 1), 255 * (n >> 1 & 1), 255 * (n >> 2)) for n in range(1, 8)]
RGB_NAME = re.compile("#([0-9a-f]{6})")
Span = tuple[int, int, str]  # from and to, in characters of the shown text; the names of the style


def restyle(style: int, codes: str) -> int:
    """Return the style after the codes of a "select graphic rendition" sequence."""
    numbers = [int(code) if code.isdigit() and len(code) < 5 else 0 for code in re.split("[;:]", codes)[:MAX_CODES]]
    at = 0
    while at < len(numbers):
        code = numbers[at]
        at += 1
        if code == 0:
            style = 0
        elif code in BITS:
            style |= BITS[code]
        elif code in ENDS:
            style &= ~sum(BITS[ended] for ended in ENDS[code])
        elif code in (38, 48):
            colour, at = _given(numbers, at)
            style = _put(style, FORE if code == 38 else BACK, colour)
        elif code in (39, 49):
            style = _put(style, FORE if code == 39 else BACK, 0)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style = _put(style, FORE, INDEX | (code - 30 if code < 90 else code - 82))
        elif 40 <= code <= 47 or 100 <= code <= 107:
            style = _put(style, BACK, INDEX | (code - 40 if code < 100 else code - 92))
    return style


def _given(numbers: list[int], at: int) -> tuple[int, int]:
    """Return the colour at this position, such as `5;208` or `2;255;128;0`, and the position after it."""
    kind = numbers[at] if at < len(numbers) else 0
    if kind == 5:
        number = numbers[at + 1] & 255 if at + 1 < len(numbers) else 0
        return (INDEX | number if number < 16 else RGB | _of_table(number)), at + 2
    if kind == 2:
        red, green, blue = (*(number & 255 for number in numbers[at + 1 : at + 4]), 0, 0, 0)[:3]
        return RGB | red << 16 | green << 8 | blue, at + 4
    return 0, at


def _of_table(number: int) -> int:
    """Return a colour of the 256-colour table: a cube of colours, then a ramp of greys."""
    if number >= 232:
        return (8 + 10 * (number - 232)) * 0x10101
    red, green, blue = (number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6
    return CUBE[red] << 16 | CUBE[green] << 8 | CUBE[blue]


def _put(style: int, place: int, colour: int) -> int:
    return style & ~(COLOUR << place) | colour << place


def names(style: int) -> str:
    """Return the names of a style: flags, `f1` for a foreground of the theme, `b#ff8000` for another background."""
    flags = [name for code, name in FLAGS.items() if style & BITS[code]]
    for letter, place in (("f", FORE), ("b", BACK)):
        colour = style >> place & COLOUR
        if colour & RGB:
            flags.append(f"{letter}#{colour & 0xFFFFFF:06x}")
        elif colour:
            flags.append(f"{letter}{colour & 0xFF}")
    return " ".join(flags)


def after(data: bytes, style: int) -> int:
    """Return the style after these bytes: that of the last reset and what follows it."""
    if b"\x1b[" not in data:
        return style
    reset = max(data.rfind(b"\x1b[0m"), data.rfind(b"\x1b[m"))
    for match in STYLING.finditer(data, max(0, reset)):
        style = restyle(style, match[1].decode())
    return style


def draw(line: str, style: int = 0) -> tuple[str, list[Span], int]:
    """Return (the line as shown, its styled spans, the style after it)."""
    if line.isascii() and line.isprintable():
        return line, [(0, len(line), names(style))] if style and line else [], style
    parts: list[str] = []
    spans: list[Span] = []
    length = at = 0

    def add(text: str) -> None:
        nonlocal length
        if not text:
            return
        text = text.translate(SIGNS)
        parts.append(text)
        if style:
            _extend(spans, length, length + len(text), names(style))
        length += len(text)

    line = line.rstrip("\r\n")
    for match in SEQUENCE.finditer(line):
        add(line[at : match.start()])
        at = match.end()
        if match[2] == "m" and not match[1].startswith(("<", "=", ">", "?")):
            style = restyle(style, match[1])
        elif match[3] or (match[2] == "G" and match[1] in ("", "0", "1")):
            parts, spans, length = [], [], 0
    add(line[at:])
    return "".join(parts), spans, style


def _extend(spans: list[Span], start: int, end: int, style: str) -> None:
    if spans and spans[-1][1:] == (start, style):
        start = spans.pop()[0]
    spans.append((start, end, style))


def plain(data: bytes) -> bytes:
    """Return the bytes of whole lines without sequences, each line as last drawn. The number of lines is kept."""
    if b"\x1b" in data:
        data = PLAIN.sub(b"", data)
    if b"\r" in data:
        data = OVERDRAWN.sub(b"", data).replace(b"\r", b"")
    return data


def cut(text: str, spans: list[Span], most: int) -> tuple[str, list[Span]]:
    """Return the beginning of a drawn line, with `…` if it was shortened."""
    if len(text) <= most:
        return text, spans
    return text[: most - 1] + "…", [
        (start, min(end, most - 1), style) for start, end, style in spans if start < most - 1
    ]


def html(text: str, most: int = 0) -> SafeString:
    """Return lines as HTML: one <span> for each style, of the theme's sixteen colours. `most`: characters of each
    line.
    """
    shown, style = [], 0
    for line in text.split("\n"):
        drawn, spans, style = draw(line, style)
        if most:
            drawn, spans = cut(drawn, spans, most)
        shown.append(markup(drawn, spans))
    return mark_safe("\n".join(shown))


def markup(text: str, spans: Iterable[Span]) -> SafeString:
    """Return a drawn line as HTML."""
    at, parts = 0, []
    for start, end, name in spans:
        classes = " ".join(f"t-{RGB_NAME.sub(_nearest, word)}" for word in name.split())
        parts += [escape(text[at:start]), f'<span class="{classes}">{escape(text[start:end])}</span>']
        at = end
    return mark_safe("".join([*parts, escape(text[at:])]))


def _nearest(match: re.Match) -> str:
    """Return the most similar colour of the theme, which is readable on light and on dark backgrounds."""
    value = int(match[1], 16)
    parts = (value >> 16, value >> 8 & 255, value & 255)

    def distance(number: int) -> int:
        return sum((mine - its) ** 2 for mine, its in zip(parts, SIXTEEN[number], strict=True))

    return str(min(range(16), key=distance))
