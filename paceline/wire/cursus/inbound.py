"""What a frame from a client is: a batch, or a command's text (DESIGN 1.2)::

    nothing                     to be ignored
    compressed                  a batch, once decompressed; text is never compressed
    ba 7c                       a batch
    00 xx | topic | text        an envelope: u16 length of a topic that means nothing, then text
    anything else               text

Topic names have at most 249 bytes, so an envelope begins with 00; text begins with a letter.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.types import Compression
from paceline.values import dataclass
from paceline.wire.cursus.batch import MAGIC, CursusBatch, parse_batch
from paceline.wire.cursus.compression import (
    CursusCompressor,
    codec_of,
    decompressed_batch,
    try_registered,
)
from paceline.wire.cursus.errors import CursusError, undecodable

BLANKS = "\x00 \t\r\n"
_ENVELOPE_HEAD = 2


@dataclass(frozen=True, slots=True)
class CommandText:
    """A command, its word apart in upper case. ``rest`` keeps its end: a message may end in
    blanks."""

    word: str
    rest: str


def read_frame(
    body: bytes,
    words: frozenset[str],
    compressors: Sequence[CursusCompressor] = (),
) -> CursusBatch | CommandText:
    """What the body of one frame, which is not empty, says. ``words`` are the known commands.

    Raises CursusError. ``compressors`` are tried, in order, on what is otherwise nothing.
    """
    try:
        return _read(body, words)
    except CursusError as refusal:
        for compressor in compressors:
            plain = try_registered(compressor, body)
            if plain is not None:
                return parse_batch(plain)
        raise refusal from None


def _read(body: bytes, words: frozenset[str]) -> CursusBatch | CommandText:
    codec = codec_of(body)
    if codec is not Compression.NONE:
        # Clients compress batches only: nothing else is worth unpacking.
        return parse_batch(decompressed_batch(codec, body))
    if body.startswith(MAGIC):
        return parse_batch(body)
    return _command(_unwrapped(body), words)


def _unwrapped(body: bytes) -> str:
    start = 0
    if body.startswith(b"\x00"):
        start = _ENVELOPE_HEAD + int.from_bytes(body[:_ENVELOPE_HEAD], "big")
        if len(body) < max(start, _ENVELOPE_HEAD):
            raise undecodable("invalid topic length")
    try:
        return body[start:].decode()
    except UnicodeDecodeError:
        raise undecodable("invalid utf-8") from None


def _command(text: str, words: frozenset[str]) -> CommandText:
    trimmed = text.lstrip(BLANKS)
    words_found = trimmed.split(maxsplit=1)
    word = words_found[0].upper() if words_found else ""
    if word not in words:
        # What it was is said back, but not at length: it may be anything.
        raise CursusError("unknown_command", f'command="{_shown(word)}"')
    return CommandText(word, trimmed[len(words_found[0]) :])


def _shown(word: str) -> str:
    return "".join(c for c in word[:64] if c.isprintable() and c != '"')
