"""Bodies that come packed: gzip, br and zstd, never unpacked to more than the limit."""

import zlib


class TooLarge(Exception):
    """The body, or what it unpacks to, is over the limit."""


def unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    """The body as its content encodings left it.

    Args:
        body: as it came.
        encoding: the header's value, several names separated by commas, the last one applied last.
        limit: bytes of the result.

    Raises: `TooLarge` over the limit; `ValueError` for an encoding that is not known or damaged.
    """
    names = [name.strip().lower() for name in encoding.split(",") if name.strip()]
    if len(names) > 2:
        raise ValueError("more than two content encodings")
    for name in reversed(names):
        if name in ("gzip", "x-gzip", "deflate"):
            body = _inflated(body, 47 if name != "deflate" else 15, limit)
        elif name == "zstd":
            body = _zstd(body, limit)
        elif name == "br":
            body = _brotli(body, limit)
        elif name != "identity":
            raise ValueError(f"content encoding {name[:20]!r} is not known")
    return body


def _inflated(body: bytes, window: int, limit: int) -> bytes:
    reader = zlib.decompressobj(wbits=window)
    try:
        out = reader.decompress(body, limit + 1)
    except zlib.error:
        raise ValueError("the body is no valid gzip or deflate") from None
    if len(out) > limit:
        raise TooLarge
    if not reader.eof or reader.unused_data:
        raise ValueError("the packed body is cut, or something follows it")
    return out


def _zstd(body: bytes, limit: int) -> bytes:
    import zstandard

    try:
        reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(body, read_across_frames=True)
        out = bytes(reader.read(limit + 1))
    except zstandard.ZstdError:
        raise ValueError("the body is no valid zstd") from None
    if len(out) > limit:
        raise TooLarge
    return out


def _brotli(body: bytes, limit: int) -> bytes:
    import brotli

    reader = brotli.Decompressor()
    try:
        out = bytearray(reader.process(body, output_buffer_limit=limit + 1))
        while len(out) <= limit and not reader.can_accept_more_data():
            out += reader.process(b"", output_buffer_limit=limit + 1 - len(out))
    except brotli.error:
        raise ValueError("the body is no valid brotli") from None
    if len(out) > limit:
        raise TooLarge
    if not reader.is_finished():
        raise ValueError("the packed body is cut")
    return bytes(out)
