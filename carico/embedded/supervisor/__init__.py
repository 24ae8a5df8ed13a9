"""The job supervisor: a process that starts others for its owner, and ends them when the owner has died.

    owner ── socket ── job supervisor ─┬─ job 1 ── its process tree
                                       └─ job 2

The owner may be killed at any moment, without a chance to clean up. The job supervisor then reads end-of-file from its
socket and kills its whole process tree. It is a *subreaper* (prctl(2), PR_SET_CHILD_SUBREAPER): a grandchild that
started its own session and whose parents have ended becomes a child of the job supervisor, so it is still found. When
the job supervisor itself is killed, the kernel kills its children (PR_SET_PDEATHSIG), and the owner or the next start
kills what else is in its control group. Where control groups cannot be written, grandchildren survive that.

    guard.py         the owner's side: starts the job supervisor, and jobs in it
    __main__.py      the event loop and its protocol
    jobs.py          the running jobs
    launch.py        what happens between fork and exec
    process_tree.py  process trees from /proc; killing a whole tree
    cgroups.py       control groups: limits, membership, OOM kills

The package is imported without the rest of Carico: it must start in a few milliseconds and fork cheaply.
"""
