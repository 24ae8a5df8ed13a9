"""The scheduler: chooses nodes for pods by filters, scores and the Pod-Capacity that nodes report.

Framework
    framework        the contract between scheduler and plugins: extension points, Status, Verdict, Cycle
    profiles         a profile: the plugins and weights for one schedulerName
    feasible         PreFilter and Filter, with verdicts cached per template
    scoring          PreScore and Score: the weighted sum
    changes          cluster events, the events that plugins register for, queueing hints
    supply           what pods lack as amounts, to wake up as many waiting pods as a row can hold
    plugin_times     sampled duration of each plugin at each extension point
    plugins/         the built-in plugins, and their registry

Cache
    cluster          applies watch events, reports and assumed pods to snapshot, ledger and queue
    snapshot         nodes and their pods, one row per node, in arrays
    rows             the assignment of nodes to rows, and the journal of changed rows
    columns          node labels as columns of integers
    groups           rows grouped by a common property, such as taints
    ports            host ports in use
    store            the other objects: namespaces, services, volumes and so on
    template         pods with equal requirements share one Template; PodInfo
    terms            compiled inter-pod affinity terms
    audiences        index of the selectors that a pod may match
    tally            number of matching pods on each node, per selector
    requests         resource requests of a pod, as kube-scheduler computes them
    ledger           what nodes have left: the reported room minus reservations
    accounts         what the ledger stores per node and per pod
    room             the ledger's columns: room, reserved and left
    freshness        until when each node's report is fresh
    fits             how many pods of one charge fit on each node
    charge           what a pod takes of its node: Claim, Charge and Sum
    units            the units annotation; which pods the ledger counts
    class_costs      the measured or guessed cost of each class of pods
    class_merge      merges the costs that several nodes measured
    probes           number of pods of unmeasured classes, by row

Queue and cycle
    queue            the scheduling queue: active, backoff, waiting, gated, held, in flight
    unschedulable    groups of unschedulable pods, and what could help them
    cycle            the scheduling cycle of one pod
    binder           Permit and the binding cycle
    waiting          pods in flight, and what they wait for
    slots            limits concurrent binding requests
    unknown_outcome  finds the outcome of a binding whose answer was lost
    concluder        ends a binding cycle: reservation, requeue, Event, metrics
    failures         unschedulable pods: preemption, condition, Event, requeue
    evictions        evicts the victims of nominated pods
    decisions        the ring of decisions, and their replay

Informers and reports
    watches          the reflectors of all kinds of objects
    rejections       counts pods that a kubelet rejected after binding
    reports          applies the agents' reports, and sends allocatable and classes to the agents

Extender
    extender         filter, prioritize and bind for a stock kube-scheduler
    extender_messages  the JSON of its extender API v1
    charges          expiring reservations for pods in flight in kube-scheduler
    nudge            annotates nodes so that kube-scheduler retries rejected pods

HTTP
    listeners        the HTTP servers and their TLS
    access           TokenReview and SubjectAccessReview of the private pages
    pages            the routes: health, metrics, ledger, queue, decisions, explain
    metrics          the metrics of the process
    explain          the verdict of every plugin about every node
    explanation      that answer, as a structure and as a table
    class_view       classes of pods, their use and suggested requests
    words            amounts as text
    page/            the web page

Process
    assembly         builds the parts of a scheduler from its settings
    run              the process: watches, reports, Lease, scheduling loop, shutdown
    needs            which parts the settings switch on, for the rights in the API server
    command          `carico scheduler`: settings, signals, exit code
    garbage          runs the garbage collector outside the scheduling cycles

Commands
    ask              `carico explain` and `carico simulate-placement`
    class_list       `carico classes`
    review           `carico decisions`
    manifest         reads a pod manifest and applies defaults
    bounded_yaml     a YAML loader that limits the expansion of aliases
    remote           finds the pages of a running scheduler
    page_client      a client of these pages
"""
