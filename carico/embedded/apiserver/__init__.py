"""The API server of the embedded cluster: the part of the Kubernetes HTTP API that Carico and kubectl use, in memory.

    http.py ─► routes.py ─► handlers.py ─► verbs.py ─► store.py ─► history.py ─► watching.py
    bytes      path to      as JSON or     create,     objects,    journal of    streams of
               resource     a Table        patch, …    versions    changes       watch events

Everything from `verbs` to `history` is state without I/O. kube-apiserver is the reference: the contract test sends the
same requests to both.

- __main__.py: the server as a process
- ages.py: ages as kubectl shows them
- binding.py: the pods/binding subresource
- discovery.py: version, API groups and resources, minimal OpenAPI
- eviction.py: the pods/eviction subresource
- event_forms.py: conversion between core/v1 and events.k8s.io/v1 Events
- handlers.py: from a request to its response
- history.py: journal of changes per kind, limited in length
- http.py: HTTP/1.1 connections, authentication, streams
- kinds.py: the table of all kinds
- logs.py: the pods/log subresource
- metadata.py: validation and defaults of metadata
- patches.py: JSON patch and JSON merge patch
- pod_rules.py: defaults and validation of pods
- pod_table.py: a pod as a row of `kubectl get pods`
- representations.py: response formats: object, view of another group, Table
- reviews.py: TokenReview and SubjectAccessReview
- routes.py: from a path to kind, namespace, name and subresource
- schemas.py: type checks of fields that Carico reads
- selection.py: label and field selectors
- server.py: the whole server: TLS, token, kubeconfig
- status_error.py: errors as `Status` objects
- store.py: all objects, and the resourceVersion
- strategic.py: strategic merge patch
- strategies.py: defaults, validation and deletion per kind
- tables.py: Tables for `kubectl get`
- verbs.py: create, read, update, patch, delete
- watching.py: watch streams
"""
