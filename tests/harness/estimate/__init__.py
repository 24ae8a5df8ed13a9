"""Estimation against a known truth: what its tests and benchmarks share.

closed_loop_cases   pods and nodes of the closed loop
estimator           every estimator against the truth of a synthetic node
federation          what a node learns from its peers
federation_cluster  the simulated cluster of federation
measured_pods       pods that are measured every second on a node of 8 cores
synthetic           a synthetic node with known true costs
synthetic_classes   classes of pods on a synthetic node
"""
