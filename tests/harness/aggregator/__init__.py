"""The aggregator's state without a network.

class_tables  class costs as nodes report them, and what the table publishes
models        models of nodes, and the state that takes them
"""
