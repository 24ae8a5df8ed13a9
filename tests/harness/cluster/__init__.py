"""A real Kubernetes cluster on one small machine, for tests and for developers: `make cluster`, `make cluster-down`,
pytest fixtures.

    __main__      the command line
    fixtures      the same for pytest
    cluster       a whole cluster, as its user sees it
    down          ends all of them
    builder       binaries from Go modules, cached
    binaries      the table of them
    gotool        the Go tool that builds them
    progress      progress of a build
    handle        starts a run and waits
    runs          its folder, its name, and its complete removal
    supervisor    outer supervisor: watches its owner, removes everything at the end
    inner         inner process: starts the components in order, waits for each
    daemons       starts components, restarts them, reports their end
    sealed        own network, mounts and processes (node mode and bare containerd)
    pki           certificates and kubeconfigs
    api           a small client for the API server
    controlplane  etcd, kube-apiserver, kube-controller-manager, kube-scheduler
    kwok          nodes without kubelets
    ports         free ports
    containerd    the container runtime
    images        pause and work image
    node          kubelet, kube-proxy, CoreDNS
    forward       the API port on the host's loopback
    played        kwok nodes of any size for tests
    remains       what a run can leave on a machine
    errors        the exception of the harness

All files of one cluster are below one folder, and every process of it has that folder's name in its environment: so it
can be found again after any failure.
"""
