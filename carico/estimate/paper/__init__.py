"""The algorithm of the report and of Pronto: the subspace, the signal k and the estimators on k.

It is computed for export and comparison. Placement by the default estimator does not use it, and no module of the
default path imports it; pipeline.py and estimators.py connect the two.

batch              samples → matrix (1 Hz)
subspace           matrix → direction and strength of the workload (SVD)
capacity_signal    usage and workload → the signal k
signal_estimators  `signal…`: the report's estimators on k
pronto             the reject signal of Pronto, for comparison
"""
