"""The HTTP/1.1 server of agent, aggregator and scheduler: small, strict, and of little cost to its process.

address   host:port
message   what is asked and what is answered
head      the parser of request line and headers
foreign   requests that a web page of somebody else made
routes    which path takes which methods; probes and /metrics
refusals  requests that were refused, in the log
server    connections, their limits and time-outs
"""
