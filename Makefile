# One target per intention; `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Never a thread per core for 2 x 2 matrices.
export OPENBLAS_NUM_THREADS := 1

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

# A stamp holds the checksum of what was installed, so that a second run starts at once.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is older than 3.11; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "make: $(PYTHON) cannot make a virtual environment; on Debian install python3-venv" >&2; exit 2; }

.PHONY: setup-demo setup
setup-demo: $(VENV)/bin/python
	@tools/install.sh demo
setup: $(VENV)/bin/python ## install everything that work on Carico needs into .venv
	@tools/install.sh dev

.PHONY: demo
demo: setup-demo ## why capacity beats requests, on this machine, in about a minute and a half
	@$(BIN)/carico demo

.PHONY: test test-quick test-long
test: setup ## all tests that this machine can run, but the long ones
	@$(BIN)/pytest -m "not long"
test-quick: setup ## the tests that need no cluster, in two minutes
	@$(BIN)/pytest -m "not cluster and not slow and not long"
test-long: setup ## the tests that take many minutes each and run before a release
	@$(BIN)/pytest -m long

.PHONY: test-pythons
test-pythons: setup ## the quick tests and a small demo on every Python from 3.11 on that is here
	@tools/test-pythons.sh

N ?= 10
.PHONY: flakes
flakes: setup ## the quick tests N=10 times alone and N times beside stress-ng: which of them fail now and then
	@tools/flakes.sh $(N)

.PHONY: check
check: setup ## linter, types, layers, doctests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/pytest -q carico

.PHONY: bench
bench: setup ## run benchmark NAME=x; without NAME list them
	@$(BIN)/python -m bench $(NAME)

.PHONY: cluster cluster-down
cluster: setup ## a real Kubernetes with NODES=10 kwok nodes, or with KUBELET=1 and a real node (root)
	@$(BIN)/python -m harness.cluster up --nodes="$$NODES" --kubelet="$$KUBELET"
cluster-down: ## end every cluster of this checkout, leave nothing
	@cd tests && $(PYTHON) -m harness.cluster.down

.PHONY: deploy
deploy: setup ## build the image and install Carico on the cluster of `make cluster KUBELET=1`; OVERLAY=name for a variant
	@$(BIN)/python -m harness.install.deploy $(OVERLAY)

.PHONY: pictures recording
pictures: setup ## retake the pictures of the web page in docs/ (chromium)
	@$(BIN)/python tools/pictures.py
# Without make's own environment variables: otherwise the inner make prints its level in the recording.
recording: ## re-record `make demo` for docs/, on an otherwise idle machine
	@env -u MAKELEVEL -u MAKEFLAGS -u MFLAGS $(PYTHON) tools/record.py docs/recordings/demo.cast make demo
	@mv carico-demo.png docs/pictures/demo.png

.PHONY: docs
docs: setup ## write docs/commands.md, settings.md, metrics.md and the metrics pages of the tests from the code
	@$(BIN)/python tools/reference.py
	@$(BIN)/python tools/metric_tables.py

.PHONY: monitoring
monitoring: setup ## write scheduler/prometheus/: dashboards, and the PrometheusRule from rules.yaml
	@$(BIN)/python tools/monitoring.py

.PHONY: protos
protos: setup ## generate the Python code of protos/
	@tools/protos.sh

# Two wheels of one name: images leave out what only a laptop needs (pyproject.toml, not-in-image).
.PHONY: wheels
wheels: setup ## dist/ with the whole package, dist/image/ with what container images need of it
	@rm -rf build dist
	@$(BIN)/python -m pip wheel --quiet --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist .
	@CARICO_WHEEL=image $(BIN)/python -m pip wheel --quiet --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist/image .
	@rm -rf build
	@ls -s dist/*.whl dist/image/*.whl

.PHONY: image manifests
image: setup ## build the container image with buildah or docker: IMAGE=name:tag BASE=image BASE_PYTHON=3.x
	@tools/image.sh
manifests: setup ## write the roles, the READMEs' tables and install.yaml from code and kustomizations; needs kubectl
	@$(BIN)/python tools/manifests.py --kubectl "$${KUBECTL:-kubectl}"

.PHONY: lock
lock: setup ## update versions and write requirements/*.txt
	@tools/lock.sh

.PHONY: clean
clean: ## remove .venv and everything that was made here
	@rm -rf $(VENV) $(VENV)-3.* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -prune -exec rm -rf {} +

# An unknown target ends with one line that says what to do, instead of make's own message.
.DEFAULT:
	@echo "make: there is no target '$@'; 'make' alone lists them" >&2; exit 2
