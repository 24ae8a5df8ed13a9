"""Helpers for the tests of Carico, and for tests of plugins. Not in the wheel of container images.

builders        nodes, pods, reports and class costs with only the fields that a test needs
manual_clock    a clock that only tests advance
api_server      the embedded API server inside one process
plugin_checks   the contract of plugins, checked over random clusters
filter_checks   those of them that concern filters
plugin_trial    the cluster and the pods that one round of these checks runs over
estimator_checks  the contract of estimators, checked over the seconds of a node
random_cluster/ random clusters and pods
"""

from carico.testing.api_server import embedded_api_server
from carico.testing.builders import make_cost, make_estimate, make_node, make_pod, make_report
from carico.testing.estimator_checks import check_estimator
from carico.testing.manual_clock import ManualClock
from carico.testing.plugin_checks import check_plugin

__all__ = [
    "ManualClock",
    "check_estimator",
    "check_plugin",
    "embedded_api_server",
    "make_cost",
    "make_estimate",
    "make_node",
    "make_pod",
    "make_report",
]
