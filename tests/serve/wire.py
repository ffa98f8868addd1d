"""HTTP/1.1 on raw sockets: for clients that must be slow, stop anywhere, or send what no library would."""

import asyncio, json, socket, struct


class Broken(Exception):
    """What came is no HTTP, or ended too early."""


def encode(method, path, body=None, fields=(), host="127.0.0.1"):
    """Bytes of a well-formed request."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"host: {host}", *fields]
    if body is not None:
        lines += ["content-type: application/json", f"content-length: {len(data)}"]
    return "\r\n".join([*lines, "", ""]).encode() + data


async def connect(port, receive=None, limit=1 << 16):
    """Reader and writer of a connection whose receive buffer holds about `receive` bytes."""
    s = socket.socket()
    s.setblocking(False)
    if receive:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    try:
        await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", port))
        return await asyncio.open_connection(sock=s, limit=limit)
    except BaseException:
        s.close()
        raise


def reset(writer):
    """Ends a connection as a crash does: no goodbye, what is on its way is thrown away."""
    s = writer.get_extra_info("socket")
    if s is not None and s.fileno() >= 0:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def leftover(sock):
    """What had come before a connection broke: a writer that fails takes the reader with it, the system still has the bytes."""
    reader = asyncio.StreamReader()
    try:
        while piece := sock.recv(1 << 16):
            reader.feed_data(piece)
    except OSError:
        pass
    reader.feed_eof()
    return reader


async def head(reader):
    """Status and fields, names in lower case, of the first head that is not an interim one."""
    while True:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as e:
            raise Broken(f"no head: {e}") from None
        parts = lines[0].split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
            raise Broken(f"no status line: {lines[0][:80]!r}")
        if int(parts[1]) >= 200:
            return int(parts[1]), dict((n.strip().lower(), v.strip()) for n, _, v in (line.partition(":") for line in lines[1:] if line))


async def body_parts(reader, fields):
    """Pieces of a body as they come."""
    try:
        if "chunked" in fields.get("transfer-encoding", ""):
            while size := int(await reader.readuntil(b"\r\n"), 16):
                yield await reader.readexactly(size)
                if await reader.readexactly(2) != b"\r\n":
                    raise Broken("a chunk without an end")
            await reader.readuntil(b"\r\n")
        elif "content-length" in fields:
            left = int(fields["content-length"])
            while left:
                if not (piece := await reader.read(min(left, 1 << 16))):
                    raise Broken(f"{left} bytes of the body are missing")
                left -= len(piece)
                yield piece
        else:
            while piece := await reader.read(1 << 16):
                yield piece
    except (asyncio.IncompleteReadError, ValueError) as e:
        raise Broken(f"the body broke off: {e}") from None


async def body(reader, fields):
    return b"".join([p async for p in body_parts(reader, fields)])


async def events(reader, fields):
    """Data of the events of a stream: JSON values, and the text `[DONE]`. Comments are left out."""
    rest = b""
    async for piece in body_parts(reader, fields):
        *whole, rest = (rest + piece).split(b"\n\n")
        for event in whole:
            data = b"\n".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
            if data:
                yield "[DONE]" if data == b"[DONE]" else json.loads(data)
    if rest.strip():
        raise Broken(f"the stream ended within an event: {rest[:80]!r}")
