"""Malformed requests: request number i of a seed is always the same bytes."""

import copy, json, random
from dataclasses import dataclass
from odd import EXTRA, GET, GOOD, GRAMMARS, ODD, RAW, SCHEMAS, TURN


@dataclass
class Case:
    """Bytes to send, in pieces, and what may come back."""

    number: int
    kind: str
    path: str
    pieces: list
    # the head is as HTTP wants it: an error must have the API's shape; else an empty one or a closed connection will do
    http: bool = True
    # the client goes away after sending, by "reset" or "close"; "stall" keeps still and waits to be thrown out
    leave: str = ""
    # bytes are sent a few at a time
    slow: bool = False


def one(seed, number):
    """Request `number` of `seed`."""
    r = random.Random(f"{seed}/{number}")
    kind = r.choices(list(KINDS), [w for w, _ in KINDS.values()])[0]
    case = KINDS[kind][1](r)
    case.number, case.kind = number, kind
    return case


def route(r, extra=True):
    if extra and r.random() < 0.2:
        method, path, body = r.choice(EXTRA)
    else:
        (method, path), body = r.choice(list(GOOD.items()))
    return method, path, copy.deepcopy(body)


def nodes(value, at=()):
    """Places of all values within a value."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for k, v in list(items):
        yield from nodes(v, (*at, k))


def put(value, at, new):
    if not at:
        return new
    inner = value
    for k in at[:-1]:
        inner = inner[k]
    inner[at[-1]] = new
    return value


def field_of(body, at):
    for k in at:
        body = body[k]
    return body


def whole(method, path, data, fields=("content-type: application/json",), host="127.0.0.1", length=None):
    head = [f"{method} {path} HTTP/1.1", f"host: {host}", *fields, f"content-length: {len(data) if length is None else length}", "", ""]
    return "\r\n".join(head).encode("utf-8", "surrogateescape") + data


def text(body):
    return json.dumps(body).encode()


def wrong_values(r):
    """One to three values of a good request are others, or gone."""
    method, path, body = route(r)
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        at = r.choice(list(nodes(body)))
        holder = field_of(body, at[:-1]) if at else None
        if isinstance(holder, dict) and r.random() < 0.15:
            del holder[at[-1]]
        elif isinstance(holder, list) and r.random() < 0.1:
            holder *= r.choice([0, 2, 30])
        else:
            body = put(body, at, copy.deepcopy(r.choice(ODD)))
        if not isinstance(body, (dict, list)):
            break
    return Case(0, "", path, [whole(method, path, text(body))])


def raw_values(r):
    """A value is JSON text that is none, or hardly."""
    method, path, body = route(r)
    at = r.choice([a for a in nodes(body) if a] or [()])
    data = text(put(body, at, "@@here@@")).replace(b'"@@here@@"', r.choice(RAW).encode())
    return Case(0, "", path, [whole(method, path, data)])


def bytes_changed(r):
    """Bytes of a body are changed, cut, doubled or no UTF-8."""
    method, path, body = route(r)
    data = bytearray(text(body))
    for _ in range(r.choice([1, 1, 2, 5])):
        i = r.randrange(len(data)) if data else 0
        way = r.randrange(5)
        if way == 0 and data:
            data[i] ^= 1 << r.randrange(8)
        elif way == 1:
            del data[i:]
        elif way == 2:
            data[i:i] = data[i : i + r.randrange(40)]
        elif way == 3:
            data[i:i] = r.choice([b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\0", b"\xef\xbb\xbf"])
        else:
            data[i:i] = bytes(r.randrange(256) for _ in range(r.randrange(20)))
    return Case(0, "", path, [whole(method, path, bytes(data))])


def grammars(r):
    """Schemas, patterns and grammars that are hostile or wrong."""
    body = {"messages": [TURN], "max_tokens": 3, "stream": r.random() < 0.5}
    if r.random() < 0.3:
        body["grammar"] = r.choice(GRAMMARS)
    elif r.random() < 0.3:
        body |= {"tools": [{"type": "function", "function": {"name": "f", "parameters": r.choice(SCHEMAS)}}], "tool_choice": "required"}
    else:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "s", "schema": r.choice(SCHEMAS)}}
    return Case(0, "", "/v1/chat/completions", [whole("POST", "/v1/chat/completions", text(body))])


def deep(r):
    """Nesting, long lists, long names."""
    method, path, body = route(r)
    n = r.choice([100, 127, 128, 129, 1000, 50_000])
    inner = r.choice(
        [b"[" * n + b"]" * n, b'{"a":' * n + b"1" + b"}" * n, b"[" + b"1," * n + b"1]", b'"' + b"y" * n + b'"', b'{"' + b"k" * n + b'":1}']
    )
    body["zz"] = "@@here@@"
    if r.random() < 0.5:
        body[r.choice(list(body))] = "@@here@@"
    return Case(0, "", path, [whole(method, path, text(body).replace(b'"@@here@@"', inner))])


def too_long(r):
    """Bodies over the limit: those that say so, and those that only are."""
    method, path, _ = route(r)
    if r.random() < 0.8:
        return Case(0, "", path, [whole(method, path, b'{"a":"', length=r.choice([(16 << 20) + 1, 1 << 31, 1 << 40, (1 << 63) - 1]))])
    n = (16 << 20) + r.choice([1, 100])
    return Case(0, "", path, [whole(method, path, b'{"a":"', length=n)] + [b"z" * (1 << 18)] * (n >> 18))


def long_prompts(r):
    """More text than the context can hold."""
    n = r.choice([3_000, 30_000, 300_000])
    path, body = r.choice(
        [
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * n}], "max_tokens": 1}),
            ("/v1/completions", {"prompt": "word " * n, "max_tokens": 1}),
            ("/v1/embeddings", {"input": "word " * n}),
            ("/v1/messages", {"messages": [{"role": "user", "content": "word " * n}], "max_tokens": 1}),
            ("/v1/completions", {"prompt": [7] * n, "max_tokens": 1}),
            ("/v1/embeddings", {"input": ["a"] * n}),
            ("/detokenize", {"tokens": [2**31] * n}),
        ]
    )
    return Case(0, "", path, [whole("POST", path, text(body))])


def wrong_routes(r):
    """Methods and paths that are not there, or oddly written."""
    method = r.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"])
    path = r.choice(
        GET
        + [p for _, p in GOOD]
        + [
            "/v1",
            "/v1/",
            "/none",
            "/v1//models",
            "/%00",
            "/%ff%fe",
            "/../etc/passwd",
            "/v1/models/..%2f..",
            "/" + "a" * 3000,
            "/v1/models/" + "%41" * 500,
            "/?" + "q=1&" * 500,
            "/slots/99999999999999999999?action=save",
            "/slots/-1?action=erase",
            "/slots/0?action=none",
            "/slots/0",
            "/v1/responses/" + "r" * 500,
            "/v1/responses/%F0%9F%92%A5",
            "/v1/responses/%ff%fe",
            "/v1/models/%ff",
        ]
    )
    return Case(0, "", path, [whole(method, path, r.choice([b"", b"", b"{}", b"[]", b"x"]))])


def wrong_fields(r):
    """Fields of the head that are wrong, but are fields."""
    method, path, body = route(r)
    odd = r.choice(
        [
            ("content-type: text/plain",),
            ("content-type: application/json; charset=utf-16",),
            ("content-type: \xff",),
            ("content-encoding: gzip", "content-type: application/json"),
            ("authorization: Bearer",),
            ("authorization: Basic " + "A" * 400,),
            ("authorization: Bearer \xff\xfe",),
            ("x-api-key: " + "k" * 1000,),
            ("anthropic-version: none",),
            ("accept: text/html",),
            ("origin: http://evil.example",),
            ("origin: null",),
            ("cookie: " + "a=b; " * 200,),
            ("expect: 100-continue", "content-type: application/json"),
            ("connection: close", "content-type: application/json"),
            ("x-forwarded-host: evil.example", "content-type: application/json"),
            ("range: bytes=0-1",),
            ("upgrade: websocket", "connection: upgrade"),
            ("upgrade: h2c", "connection: upgrade, http2-settings", "http2-settings: AAMAAABkAARAAAAAAAIAAAAA"),
            tuple(f"x-{i}: {i}" for i in range(60)),
        ]
    )
    host = r.choice(
        ["127.0.0.1"] * 6 + ["localhost", "evil.example", "127.0.0.1.evil.example", "[::1]", "", "a b", "127.0.0.1:99999", "x" * 300]
    )
    data = whole(method, path, text(body), odd, host)
    return Case(0, "", path, [data], http=host not in ("", "a b"))


def wrong_heads(r):
    """Heads that are no HTTP, or not of a kind that a server should take."""
    _, path, body = route(r)
    data = text(body)
    line = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n".encode()
    n = str(len(data)).encode()
    raw = r.choice(
        [
            b"\r\n\r\n",
            b"\0\0\0\0\r\n\r\n",
            b"GET /\r\n\r\n",
            b"GET / HTTP/0.9\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(r.randrange(256) for _ in range(200)),
            b"get / http/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET http://127.0.0.1/health HTTP/1.1\r\nhost: evil.example\r\n\r\n",
            b"GET * HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
            b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nhost: evil.example\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost 127.0.0.1\r\n\r\n",
            b"GET / HTTP/1.1\r\n host: 127.0.0.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: a\0b\r\n\r\n",
            b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"v" * 70_000 + b"\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"".join(b"x%d: 1\r\n" % i for i in range(1000)) + b"\r\n",
            b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"v" * 70_000,
            line + b"content-length: -1\r\n\r\n" + data,
            line + b"content-length: 1e3\r\n\r\n" + data,
            line + b"content-length: 99999999999999999999999\r\n\r\n" + data,
            line + b"content-length: " + n + b"\r\ncontent-length: 1\r\n\r\n" + data,
            line + b"content-length: " + n + b"\r\ntransfer-encoding: chunked\r\n\r\n" + data,
            line + b"transfer-encoding: gzip\r\n\r\n" + data,
            line + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
            line + b"content-length: +" + n + b"\r\n\r\n" + data,
            bytes(r.randrange(256) for _ in range(r.randrange(1, 600))),
        ]
    )
    return Case(0, "", path if raw.startswith(line) else "/", [raw], http=False)


def chunks(r):
    """Chunked bodies: whole ones, and nonsense."""
    method, path, body = route(r)
    data = text(body)
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    if r.random() < 0.4:
        pieces, i = [head], 0
        while i < len(data):
            n = r.randrange(1, 60)
            pieces.append(b"%x;ext=1\r\n" % len(data[i : i + n]) + data[i : i + n] + b"\r\n")
            i += n
        return Case(0, "", path, pieces + [b"0\r\nx-trailer: 1\r\n\r\n"])
    raw = r.choice(
        [
            b"zz\r\n" + data,
            b"-1\r\n" + data,
            b"FFFFFFFFFFFFFFFF\r\n" + data,
            b"FFFFFFFFFFFFFFFFF\r\n" + data,
            b"5\r\nabcdefgh\r\n0\r\n\r\n",
            b"5" * 5000 + b"\r\n",
            b"5;" + b"e" * 70_000 + b"\r\n",
            b"\r\n\r\n",
            b"0\r\n" + b"t: 1\r\n" * 5000 + b"\r\n",
            b"0x5\r\nabcde\r\n0\r\n\r\n",
            bytes(r.randrange(256) for _ in range(200)),
        ]
    )
    return Case(0, "", path, [head, raw], http=False)


def goes_away(r):
    """A good request, streamed or not, whose client leaves at some point."""
    method, path, body = route(r)
    if path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"):
        body |= {"stream": r.random() < 0.7, "max_output_tokens" if path.endswith("responses") else "max_tokens": r.choice([2, 50, 400])}
        for k in ("stop", "stop_sequences", "echo"):
            body.pop(k, None)
    data = whole(method, path, text(body))
    way = r.randrange(3)
    if way == 0:  # within the request
        data = data[: r.randrange(1, len(data))]
    return Case(0, "", path, [data], leave=r.choice(["reset", "close"]))


def stalls(r):
    """A client that says a part and then nothing."""
    method, path, body = route(r)
    data = whole(method, path, text(body))
    return Case(0, "", path, [data[: r.randrange(len(data))]], http=False, leave="stall")


def drips(r):
    """A good request a few bytes at a time."""
    method, path, body = route(r)
    data, pieces = whole(method, path, text(body)), []
    while data:
        n = r.randrange(1, 80)
        pieces.append(data[:n])
        data = data[n:]
    return Case(0, "", path, pieces, slow=True)


def pipelined(r):
    """Two requests at once on a connection: the first is answered, whatever becomes of the second."""
    method, path, body = route(r, extra=False)
    return Case(
        0,
        "",
        path,
        [whole(method, path, text(body)) + r.choice([b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", b"\xff\xff\r\n\r\n", b"GET"])],
    )


# weight and maker of each kind
KINDS = {
    "wrong values": (30, wrong_values),
    "raw values": (10, raw_values),
    "changed bytes": (12, bytes_changed),
    "grammars": (4, grammars),
    "nesting": (4, deep),
    "oversize": (1, too_long),
    "long prompts": (1, long_prompts),
    "routes": (8, wrong_routes),
    "fields": (6, wrong_fields),
    "heads": (8, wrong_heads),
    "chunks": (4, chunks),
    "goes away": (8, goes_away),
    "stalls": (0.3, stalls),
    "drips": (1, drips),
    "pipelined": (2, pipelined),
}
