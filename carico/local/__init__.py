"""The embedded cluster: an API server in memory, a node that is this machine, simulated nodes beside it."""
