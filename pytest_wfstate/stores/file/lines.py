"""The lines of a journal: a checksum, a length, and JSON; and whether a crash can have left a line as it is.

A line that was written once and fsynced is never written again, so a power cut takes whole sectors of it, or its end.
A lost sector reads as zeros, and JSON text holds none. So a last line that a crash tore is short, or holds zeros up to
the borders of sectors. Any other bad line was good once, and acknowledged: it is damage.
"""

from __future__ import annotations

import itertools
import re
import zlib

SECTOR = 512  # bytes, the least that any disk writes at a time
LINE_HEAD = len(b"00000000 00000000 ")
_HEAD = re.compile(rb"[0-9a-f]{8} ([0-9a-f]{8}) ")
_CUT_HEAD = re.compile(rb"[0-9a-f]{1,8}|[0-9a-f]{8} [0-9a-f]{0,8}")


def line_of(body: bytes) -> bytes:
    """Return the line of a journal that holds this JSON: checksum and length in hexadecimal, JSON, line break."""
    return b"%08x %08x %s\n" % (zlib.crc32(body), len(body), body)


def body_of(line: bytes) -> bytes | None:
    """Return the JSON of a line, or None if the line is bad."""
    body = line[LINE_HEAD:-1]
    return body if line_of(body) == line else None


def is_line_head(data: bytes) -> bool:
    """Whether a file starts as a journal does, though its first line may be bad."""
    return _HEAD.match(data) is not None


def is_torn(tail: bytes, offset: int) -> bool:
    """Whether a crash can have left a journal that ends in `tail`: a bad line at `offset` and all that follows it."""
    head = _HEAD.match(tail)
    missing = LINE_HEAD + int(head[1], 16) + 1 - len(tail) if head else 0
    if missing < 0 or b"\n" in (tail if missing else tail[:-1]):
        return False  # more follows it, and was written when this line was durable
    if head is None and b"\0" not in tail[:LINE_HEAD]:
        return _CUT_HEAD.fullmatch(tail) is not None
    return (missing > 0 and b"\0" not in tail) or _has_lost_whole_sectors(tail, offset)


def _has_lost_whole_sectors(tail: bytes, offset: int) -> bool:
    """Whether sectors of the file were lost, and nothing but whole sectors, as far as they are in `tail`."""
    borders = sorted({0, *range(-offset % SECTOR, len(tail), SECTOR), len(tail)})
    sectors = [tail[start:end] for start, end in itertools.pairwise(borders)]
    return b"\0" in tail and all(b"\0" not in sector or not sector.strip(b"\0") for sector in sectors)
