"""What tests and benchmarks share: real clusters and processes, faulty proxies, simulated API servers, builders.

`tools/install.sh dev` installs this package, editable, beside carico; it is in no wheel. Tests and benchmarks import
it and never each other.

    aggregator/    the state of an aggregator without a network
    cluster/       a real Kubernetes on one machine: `make cluster`
    conformance/   Carico's filters against kube-scheduler's
    dashboard/     a scheduler with its page, and a browser
    embedded/      the embedded cluster as tests use it
    estimate/      synthetic nodes and clusters with known true costs
    install/       Carico's image, and its manifests on a real node
    kube/          API servers that are simulated, recorded or reached through a faulty proxy
    node/          pods on this machine: containerd, cgroups, User-Mode Linux
    scheduler/     schedulers as processes and without a network
    soak/          fifteen minutes of faults on real components
    wire/          certificates, messages, and schedulers that only receive reports
    http_server.py the small HTTP server over real sockets, and requests to it
    monitoring.py  an embedded cluster that a real Prometheus scrapes
    parts.py       features of a machine that tests need: @pytest.mark.needs
    promtool.py    Prometheus' check of a page of metrics
    retries.py     for tests that measure a machine with other load
    running.py     processes of Carico with access to their log and metrics
"""
