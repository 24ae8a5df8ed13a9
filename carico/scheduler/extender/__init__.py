"""The extender: Pod-Capacity for a stock kube-scheduler, over its extender API v1.

extender      filter, prioritize and bind
messages      the JSON of the extender API v1
reservations  expiring reservations for pods in flight in kube-scheduler
wakeup        annotates nodes so that kube-scheduler retries rejected pods
"""
