"""A server in front of the server whose page is broken in one place: for controls, tests that have to fail."""

import http.client
import http.server
import threading

DROPPED = {"transfer-encoding", "connection", "content-length"}


class Proxy:
    """Forwards to `port`. In what the page is made of, headers included, `old` becomes `new`."""

    def __init__(self, port, old, new):
        self.changed = 0
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def forward(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "origin", "referer", "accept-encoding")}
                upstream = http.client.HTTPConnection("127.0.0.1", port)
                upstream.request(self.command, self.path, body or None, headers)
                response = upstream.getresponse()
                page = self.path == "/" or self.path.startswith("/page/")
                self.send_response(response.status)
                for name, value in response.getheaders():
                    if name.lower() not in DROPPED:
                        self.send_header(name, proxy.broken(value, old, new) if page else value)
                self.send_header("Connection", "close")
                self.end_headers()
                try:
                    if page:
                        self.wfile.write(proxy.broken(response.read().decode(), old, new).encode())
                    while part := response.read1(65536):
                        self.wfile.write(part)
                except OSError:
                    pass  # the browser has gone: so does the connection to the server
                finally:
                    upstream.close()

            do_GET = do_POST = forward

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def broken(self, text, old, new):
        self.changed += text.count(old)
        return text.replace(old, new)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
