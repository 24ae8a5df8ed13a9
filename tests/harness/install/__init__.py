"""Carico on a real node as a user installs it: the image of this checkout, and its manifests.

base.py     a base image from Debian packages, since there is no registry
image.py    the image, built by tools/image.sh and cached
deploy.py   `make deploy`: image and manifests on a cluster of `make cluster KUBELET=1`
"""
