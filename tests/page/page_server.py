"""Server of the page's assets and a test's documents, with the headers and streams of the operator's server."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

ASSETS = Path(__file__).resolve().parents[2] / "operator" / "bayplan" / "page" / "assets"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_TYPES = {".mjs": "text/javascript", ".css": "text/css", ".html": "text/html; charset=utf-8", ".svg": "image/svg+xml"}
_KEEP_ALIVE_SECONDS = 0.5
Document = dict[str, Any]


class PageServer:
    """HTTP server in its own threads, on a free port of loopback.

    Args:
        documents: Document by panel, and by path with query for ``work`` and ``room``.

    Attributes:
        refusal: Status and body of the response to all requests for data; None to serve documents.
        token: Bearer token that requests for data need; "" for none.
        requests: Paths with queries of all requests.
        bodies: Bodies of all requests that have one.
    """

    def __init__(self, documents: Mapping[str, Document], policy: str = POLICY) -> None:
        self.documents = dict(documents)
        self.refusal: tuple[int, Document] | None = None
        self.token = ""
        self.requests: list[str] = []
        self.bodies: list[str] = []
        self.policy = policy
        self._streams: set[queue.SimpleQueue[bytes | None]] = set()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._port: int = self._server.server_address[1]
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://127.0.0.1:{self._port}/page/"

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return len(self._streams)

    def start(self) -> None:
        """Serve, again after :meth:`stop`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
            self._thread.start()

    def push(self, event: str, data: Document) -> None:
        """Send an event to all streams, and store it for later ones."""
        if event in self.documents:
            self.documents[event] = data
        with self._lock:
            for stream in self._streams:
                stream.put(encoded(event, data))

    def drop(self) -> None:
        """End all streams."""
        with self._lock:
            for stream in self._streams:
                stream.put(None)

    def close(self) -> None:
        """End all streams, and the server."""
        self.drop()
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    @contextmanager
    def stream(self) -> Iterator[queue.SimpleQueue[bytes | None]]:
        """Register a stream while it is open."""
        events: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        with self._lock:
            self._streams.add(events)
        try:
            yield events
        finally:
            with self._lock:
                self._streams.discard(events)

    def _handler(self) -> type[_Handler]:
        return type("Handler", (_Handler,), {"page": self})


class _Handler(BaseHTTPRequestHandler):
    """Responses to one connection."""

    page: PageServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Serve the index, an asset, a document or the stream."""
        self.page.requests.append(self.path)
        path = urlsplit(self.path).path
        if path == "/page/":
            self._asset("index.html")
        elif path.startswith("/page/assets/"):
            self._asset(path.removeprefix("/page/assets/"))
        elif path == "/page/events" or path.startswith("/page/data/"):
            self._data(path)
        else:
            self._respond(404, b"", "text/plain")

    def do_POST(self) -> None:
        """Serve the document for a manifest."""
        self.page.bodies.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - name of the overridden method
        """Log nothing."""

    def _asset(self, name: str) -> None:
        file = ASSETS / name
        if not file.is_file():
            self._respond(404, b"", "text/plain")
            return
        self._respond(200, file.read_bytes(), _TYPES.get(file.suffix, "text/plain"))

    def _data(self, path: str) -> None:
        page = self.page
        tokens = {
            self.headers.get("X-Bayplan-Token"),
            (self.headers.get("Authorization") or "").removeprefix("Bearer "),
        }
        if page.token and tokens != {page.token}:
            self._json(401, {"error": "a bearer token of the cluster is needed"})
        elif page.refusal is not None:
            self._json(*page.refusal)
        elif path == "/page/events":
            self._stream()
        else:
            wanted = self.path.removeprefix("/page/data/")
            found = page.documents.get(wanted)
            self._json(*((404, {"error": f"{wanted} does not exist"}) if found is None else (200, found)))

    def _stream(self) -> None:
        panels = parse_qs(urlsplit(self.path).query)["panels"][0].split(",")
        self.send_response(200)
        self._headers("text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        with self.page.stream() as events:
            try:
                for panel in panels:
                    self.wfile.write(encoded(panel, self.page.documents[panel]))
                while True:
                    try:
                        event = events.get(timeout=_KEEP_ALIVE_SECONDS)
                    except queue.Empty:
                        event = b": keep-alive\n\n"
                    if event is None:
                        break
                    self.wfile.write(event)
            except (BrokenPipeError, ConnectionResetError):
                pass
        self.close_connection = True

    def _json(self, status: int, document: Document) -> None:
        self._respond(status, json.dumps(document).encode(), "application/json")

    def _respond(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self._headers(kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _headers(self, kind: str) -> None:
        for name, value in {**HEADERS, "Content-Security-Policy": self.page.policy}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")


def encoded(event: str, data: Document) -> bytes:
    """Return a server-sent event."""
    return f"event: {event}\nid: 1\ndata: {json.dumps(data)}\n\n".encode()
