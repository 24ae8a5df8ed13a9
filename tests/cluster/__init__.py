"""A real Kubernetes on one small machine, for tests and for people: `make cluster`, `make cluster-down`, pytest
fixtures.

The way of a start, one file per step:

    __main__  the command line                        fixtures   the same for pytest
    cluster   a whole cluster, as its user sees it    down       the end of all of them
    builder   binaries from Go modules, cached        binaries   the table of them
    gotool    the Go tool that builds them            progress   what one sees meanwhile
    handle    starts it and waits                     runs       its folder, its name, and how nothing of it is left
    keeper    outer process: watches its owner, sweeps at the end
    inner     inner process: starts the parts in order, waits for each
      sealed        own network, mounts and processes (node mode and bare containerd)
      pki           certificates and kubeconfigs      api        a small client for the API server
      controlplane  etcd, kube-apiserver, kube-controller-manager, kube-scheduler
      kwok          nodes without kubelets            ports      free ones
      containerd    the container runtime             images     pause and work image, made by hand
      node          kubelet, kube-proxy, CoreDNS      forward    the API port on the host's loopback

Everything of one cluster lies below one folder, and every process of it carries that folder's name in its
environment: that is how it is found again after any accident.
"""
