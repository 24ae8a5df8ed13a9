"""The only door to the Kubernetes API: client, watch, objects, quantity, binding, events, lease."""
