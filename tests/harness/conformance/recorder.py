"""A scheduler extender that writes down the nodes it is given and accepts none of them.

kube-scheduler calls extenders after all of its own filters: what it sends is the whole feasible set. Rejecting it keeps
the cluster as it is.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Recorder:
    """`seen` has the latest feasible set of every pod, by UID."""

    def __init__(self) -> None:
        self.seen: dict[str, frozenset[str]] = {}
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                recorder.seen[asked["Pod"]["metadata"]["uid"]] = frozenset(asked["NodeNames"] or ())
                answer = json.dumps({"NodeNames": [], "FailedNodes": {}}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Not logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
