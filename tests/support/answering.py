"""A small HTTP server that answers as it is told, and keeps what it was asked."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def answering(answers):
    """The address of a server, and what it was asked so far: method, path, headers (in small letters) and body of each request.

    Args:
        answers: status, headers and body; by path (404 elsewhere), or of a path and the request's headers.
    """
    asked = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked.append((self.command, self.path, headers, body))
            of_path = (
                answers.get(self.path, (404, {}, b"Not Found")) if isinstance(answers, dict) else answers(self.path, headers)
            )
            status, own, content = of_path
            self.send_response(status)
            for name, value in {**own, "Content-Length": len(content)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else content)

        do_GET = do_POST = do_HEAD = answer

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
