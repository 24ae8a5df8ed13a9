"""The embedded cluster: an API server in memory, a node that is this machine, simulated nodes beside it.

api/           the API server
node/          a node that is this machine: pods are processes
run/           `carico run`: a command over a list of inputs
processes.py   start processes that cannot outlive their starter
keeper/        the small process that holds them
"""
