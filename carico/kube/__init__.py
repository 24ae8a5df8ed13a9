"""The only access to the Kubernetes API.

Connections and requests
    client         requests, streams, the rate limit, errors of the API server
    pool           idle connections for reuse
    network        the connections that the client uses: over sockets, or a test's
    http           one HTTP/1.1 connection
    chunked        decoder of the chunked transfer coding
    socket         non-blocking TCP and TLS sockets
    tunnel         a connection, through a proxy if there is one
    proxy          which proxy to use
    tls            trusted CAs and the client certificate
    url            URLs of the API server and of a proxy
    paths          names as segments of a path
    metrics        client-go's request metrics; evictions

Credentials
    credentials    finds them: a kubeconfig or the pod's service account
    kubeconfig     reads and merges kubeconfig files
    identity       the current headers and TLS context, renewed before they expire
    sources        fixed credentials and token files
    exec_plugin    credential plugins
    auth_provider  `auth-provider: oidc`, a separate program
    impersonation  `as` in a kubeconfig
    flags          --kubeconfig, --context, -n, `pod/web`

Objects
    meta           metadata and the base of all structs
    objects        pods, nodes and related objects
    storage        claims, volumes and their drivers
    quantity       quantities such as `100m`
    selectors      label selectors
    decode         JSON to objects, with Go's nulls accepted
    protobuf       Bindings and Events in protobuf
    messages/      their generated code

Requests
    calls          the list of all requests: verb, resource, who needs it, why; builds their paths
    rights         the rights that they need, for `carico doctor`
    roles          the scheduler's ClusterRole and Role
    pods           read, create, bind, delete, evict, status
    nodes          read, create, status, annotations
    node_capacities  the status of NodeCapacity objects, and their creation
    volumes        the choice of volumes
    leases         read, create, update
    own_objects    Secrets and ConfigMaps of Carico's own
    reviews        TokenReview, SubjectAccessReview, SelfSubjectAccessReview
    token_reviews  verifies ServiceAccount tokens, with a cache
    review_budget  how many tokens may be sent for review
    server_info    the API server's version and clock

Reading
    watch          the reflector: list and watch of one kind
    mirror         the reflector's cache
    delivery       changes to the handlers, retried if they raise
    leader         finds the pod that holds a Lease
    dry_run        what the API server would store of a new pod

Writing
    lease          leader election
    binding        the binding of a pod, until its outcome is known
    writer         sends evictions, conditions, annotations and Events, with back-off
    writes         a write and the state of its attempts
    lanes          how many writes may be in flight, by urgency
    eviction       the Eviction API: within the PodDisruptionBudget, or a dry run
    pod_writes     conditions, nominations and evictions
    events         Events and their series
"""
