"""The API server of the embedded cluster: the part of the Kubernetes HTTP API that Carico and kubectl use, in memory.

    http.py ─► routes.py ─► answers.py ─► verbs.py ─► store.py ─► history.py ─► watching.py
    bytes      what is       as JSON or    create,     objects,    what has      streams of
               meant         a Table       patch, …    versions    changed       changes

Everything from `verbs` to `history` is state without I/O. What is special about a kind of object stands in `rules.py`
and in the files named after the kind; `kinds.py` is the table of all of them. kube-apiserver is the oracle: the
contract test sends both the same requests.
"""
