"""The HTTP/1.1 server of agent, aggregator and scheduler: small, strict, and cheap for its process.

The embedded API server uses address, listener, message and head, and has connections of its own (docs/decisions/0012).

address   host:port
listener  a listening socket, with or without TLS, and its handshakes
tls       the server's TLS context; its certificate files may be replaced while it runs
message   requests, responses and rejections
head      the parser of request line and headers
foreign   detects requests that a browser sends for another site's page
routes    the methods, body limit and access of each path; probes and /metrics
refusals  rejected requests, in the log
server    connections, their limits and timeouts
"""
