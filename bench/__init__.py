"""Benchmarks. `python -m bench` lists them, `python -m bench NAME` runs one.

A benchmark is one file of this folder with a function `run() -> dict` that prints a readable table and returns the
figures. Its name has dashes where the file has underscores, and the first line of its docstring is its line in the
list. The last line of output is one JSON object with the name and the figures.

Benchmarks:

- agent_cost.py: CPU and memory of one agent
- aggregator_load.py: nodes that one aggregator serves
- aggregator_restart.py: recovery of the model after kill -9 of the aggregator
- closed_loop.py: admission by the nodes' reports, against oracles
- cluster_start.py: start of a real cluster
- decision_latency.py: time per scheduling decision
- embedded_api.py: the embedded API server under load
- estimator.py: Pod-Capacity of every estimator against the truth
- event_lead.py: which source reports a pod's start or end first
- federation.py: what a node learns from its peers
- page_scroll.py: the web page with 5,000 nodes in a browser
- pressure_curve.py: utilisation and pressure against busy processes
- real_node.py: the agent's reports against real pods' own measurements
- run_tasks.py: carico run against xargs -P
- scheduler_memory.py: memory of Carico's scheduler and of kube-scheduler
- scheduler_throughput.py: pods bound per second, against kube-scheduler
- signal_recording.py: recreates docs/recordings/pods.rec
- signal_stages.py: draws the pictures of docs/signal.md
- soak.py: fifteen minutes of faults on real components
- standby.py: cost and memory of a standby replica
- waiting.py: lag of events while 10,000 pods wait

What benchmarks share with tests is the package `harness` (tests/harness/). Helper modules, which have no `run`:

- __main__.py: lists and runs benchmarks
- event_watch.py: the listeners of event-lead
- real_pods.py: pods in a real containerd, through CRI
- report_generator.py: agents of many nodes in one process
"""
