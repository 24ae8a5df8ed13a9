"""From samples to Pod-Capacity, in the order of the data's way. Numpy only; no I/O, no clock.

smooth.py      spikes out, change in                                10 Hz
batch.py       samples → matrix                                      1 Hz from here on
subspace.py    matrix → direction and strength of the workload
capacity.py    usage and workload → the signal k
kalman.py      the filters; ramp.py, prior.py feed them
resource.py    estimators on the usage of each resource (the default)
signal.py      the report's estimators on k
pod_capacity.py  usage, baseline and cost → how many more pods fit
pronto.py      the reject signal of Pronto, for comparison
pipeline.py    all of it, in this order: start reading there
"""
