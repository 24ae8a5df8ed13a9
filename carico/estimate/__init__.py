"""From samples to Pod-Capacity. Numpy only; no I/O, no clock. pipeline.py calls the stages in order: start there.

Stages, in the order of the data flow
    pipeline.py      samples and pod counts → one Estimate per batch
    smooth.py        smoothing: removes spikes, follows changes (10 Hz)
    estimators.py    creates the smoother and the estimator that the settings name
    stage.py         the protocol of all stages: saved and restored
    pod_capacity.py  usage, baseline and cost → how many more pods fit
    paper/           the subspace, the signal k and the report's estimators on k, for comparison and export

Estimators
    estimator.py     the protocol of all estimators, their input and output
    by_class.py      `class`, the default: measured demand per pod, cost per class
    resource.py      `resource-joint` and `resource`: usage per resource as a line in the pod count
    joint.py         fit of resource-joint: one two-state filter per ramp hypothesis
    dual.py          fit of resource: two scalar filters
    kalman.py        the Kalman filters
    ramp.py          how much load of recently started pods is not in the usage yet
    prior.py         the cluster's cost as a prior
    scale.py         shares of the node in absolute amounts

Classes of pods
    classes.py       all classes of a node
    class_stats.py   statistics of one class
    class_cost.py    what to reserve for one more pod of a class
    class_saved.py   classes in the saved state
    track.py         the level of one pod
    profile.py       demand of a class by pod age
    quantile.py      quantiles from a decayed histogram
    pooling.py       margin for pods whose demand swings
    baseline.py      usage of a node that belongs to no pod

Saved state
    saved.py         checks for reading it
"""
