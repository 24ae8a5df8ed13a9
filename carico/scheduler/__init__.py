"""Placing pods: framework (the contract), ledger, snapshot, queue, cycle (the way of one pod), plugins."""
