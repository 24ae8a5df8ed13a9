"""The web page: nodes, queue, decisions and a node's last minutes, live, at `/` of the scheduler's HTTP server.

    reports ─► columns ─┬─► history          (10 minutes per node)
    ledger, snapshot ───┘       │
                        └─► live ─► readers ─► browser: assets/*.js      server-sent events, at most twice a second
    queue, decisions ─► waiting ┘

- columns.py: the figures of all nodes as one matrix
- history.py: the last ten minutes of every node and of the cluster
- live.py: the full message and the changes that are sent to browsers
- readers.py: connected browsers, and what happens to slow ones
- site.py: the page's routes, files and security headers
- waiting.py: the queue, decisions, pods and classes as rows of the page

Only public data leaves the process: names, numbers, phases and reasons. No environment, no annotation, no token. While
no reader is connected, only the history is computed.
"""
