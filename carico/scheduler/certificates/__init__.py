"""The authority and the serving certificates that the scheduler's leader makes and renews (`issue_certificates`).

    maker.py      what a scheduler runs for it: the issuer, and its own certificate
    rotation.py   which write comes next, from what is stored and the time: state without I/O
    issuer.py     the leader: reads what is stored, and does that write
    own.py        every replica: its own serving certificate and the authorities, read over the API

What is stored: the Secret `carico-ca` (authorities with their keys), the ConfigMap `carico-ca` (their certificates, for
everybody), and one Secret per server. Agents and aggregator mount theirs. A scheduler reads its own over the API: its
pod could not start if it had to mount what it makes itself.
"""
