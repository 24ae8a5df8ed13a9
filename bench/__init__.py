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

Helper modules, which have no `run`:

- __main__.py: lists and runs benchmarks
- closed_loop_cases.py: the cases of closed-loop
- event_watch.py: the listeners of event-lead
- federation_cluster.py: the simulated cluster of federation
- real_node_load.py: the program in the pods of real-node
- real_pods.py: pods in a real containerd, through CRI
- report_generator.py: agents of many nodes in one process
- soak_agents.py: the agents of the soak's nodes
- soak_checks.py: the figures of a soak, from its history
- soak_cluster.py: the nodes, priorities and accounts of a soak
- soak_faults.py: the faults of a soak
- soak_history.py: the events of a soak, and the cluster state derived from them
- soak_looks.py: searches for pods that wait although they fit
- soak_objects.py: the API objects of faults
- soak_observer.py: watches of the API server, independent of Carico
- soak_proxy.py: the faulty proxy between a replica and the API server
- soak_recorder.py: the history while it is written
- soak_replicas.py: the scheduler processes of a soak
- soak_report.py: the figures of a soak as a table
- soak_workload.py: the pods of a soak
- synthetic.py: a synthetic node with known true costs
- synthetic_classes.py: classes of pods on a synthetic node
"""
