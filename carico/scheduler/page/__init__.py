"""The web page: nodes, queue, decisions and a node's last minutes, live, at `/` of the scheduler's pages.

    reports ─► columns ─┬─► history          (10 minutes per node)
    ledger, snapshot ───┘       │
                        └─► live ─► readers ─► browser: assets/*.js      server-sent events, twice a second at most
    queue, decisions ─► waiting ┘

Only what people may see anywhere leaves the process: names, numbers, phases and reasons. No environment, no annotation,
no token. Nothing is computed for the page while nobody looks, but the history.
"""
