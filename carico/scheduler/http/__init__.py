"""What the scheduler serves over HTTP, and the client of it for Carico's commands.

Server
    servers        the HTTP servers and their TLS
    access_review  TokenReview and SubjectAccessReview of the private pages
    routes         health, metrics, ledger, queue, decisions, explain
    explain        the verdict of every plugin about every node
    explanation    that answer, as a structure and as a table
    class_view     classes of pods, their use and suggested requests
    manifest       reads a pod manifest and applies defaults
    bounded_yaml   a YAML loader that limits the expansion of aliases
    dashboard/     the web page

Client
    remote         finds the server of a running scheduler
    client         sends requests to it
"""
