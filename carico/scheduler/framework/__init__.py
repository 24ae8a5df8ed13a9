"""The plugin framework: the contract, and what runs plugins. It knows the cache, and no plugin.

contract        extension points, Status, Verdict, Cycle: what a plugin implements
cluster_events  cluster events, the events that plugins register for, queueing hints
needs           what pods lack as amounts, to wake up as many waiting pods as a row can hold
filtering       PreFilter and Filter, with verdicts cached per template
scoring         PreScore and Score: the weighted sum
registrations   kinds to watch, indexes, background tasks and wake-ups that plugins register
in_flight       pods in flight, and what they wait for
plugin_times    sampled duration of each plugin at each extension point
durations       histograms that cost little to observe
amounts         amounts as text, for reasons
"""
