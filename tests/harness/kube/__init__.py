"""API servers for tests: simulated, recorded, or real ones behind a faulty proxy.

api_contract   the same requests to two API servers, compared
clients        clients with the credentials of a kubeconfig
connect_proxy  a proxy that opens CONNECT tunnels and records the requests
exec_plugins   credential plugins that are real programs
faulty         a proxy that injects faults
made_tokens    ServiceAccount tokens as in a projected volume
network        the API client's network without sockets
place          a namespace of a cluster behind the proxy that injects faults
played         lists and streams of events replayed for a Reflector
recorded       objects of a real kube-apiserver
recording      an HTTPS server that records requests, and kubeconfigs for it
request_log    requests as kube-apiserver names them for RBAC
scripted       responses that a test sets, and a writer that sends to them
vanishing      a peer that disappears without closing its connection
"""
