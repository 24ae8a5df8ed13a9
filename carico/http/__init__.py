"""The HTTP/1.1 server of agent, aggregator and scheduler: small, strict, and of little cost to its process.

The embedded API server, which answers some thousand requests a second, takes from it all but the connection itself.

address   host:port
listener  a listening socket, with or without TLS
message   what is asked and what is answered
head      the parser of request line and headers
foreign   requests that a web page of somebody else made
routes    which path takes which methods; probes and /metrics
refusals  requests that were refused, in the log
server    connections, their limits and time-outs
"""
