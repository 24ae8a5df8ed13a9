"""Generated from protos/carico/kube/messages by `make protos`. protobuf.py uses it; nothing else does."""
