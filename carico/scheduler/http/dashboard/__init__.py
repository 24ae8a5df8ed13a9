"""The web page: nodes, queue, decisions and a node's last minutes, live, at `/` of the scheduler's HTTP server.

    reports ─► columns ─┬─► history              (10 minutes per node)
    ledger, snapshot ───┘       │
                        └─► publisher ─► sse_clients ─► browser: assets/*.js  server-sent events, at most twice a second
    queue, decisions ─► queue_rows ┘

columns      the figures of all nodes as one matrix
history      the last ten minutes of every node and of the cluster
publisher    the full message and the changes that are sent to browsers
sse_clients  connected browsers, and what happens to slow ones
site         the page's routes, files and security headers
queue_rows   the queue, decisions, pods and classes as rows of the page

Only public data leaves the process: names, numbers, phases and reasons. No environment, no annotation, no token. While
no reader is connected, only the history is computed.
"""
