# Commands for developers. `make demo` and `make test` need no earlier step: they create the virtual environment, install
# the locked dependencies and build the control plane, and are quick the second time.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p && break; done)
UV_VERSION := 0.13.8
KIND_VERSION ?= v0.33.0
BIN := .venv/bin
UV := $(shell command -v uv || echo .uv/bin/uv)
STAMP := .venv/.installed
SOURCES := scheduler_core operator hack tests examples benchmarks
PRESENT := $(shell for d in $(SOURCES); do [ -n "$$(find $$d -name '*.py' -print -quit 2>/dev/null)" ] && echo $$d; done)
PYTEST_ARGS ?=
# More workers than processors: tests on the control plane wait most of the time. WORKERS=0 runs all tests in one process.
WORKERS ?= 4
comma := ,

export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1
# Without bytecode on disk each process compiles what it imports, for more CPU time than the imports themselves take.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: install
install: $(STAMP) ## Create .venv with the locked dependencies and the bayplan command

.uv/bin/uv:
	@echo "==> getting uv $(UV_VERSION)"
	@$(PYTHON) -m venv .uv
	@.uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(STAMP): pyproject.toml uv.lock | $(filter .uv/bin/uv,$(UV))
	@echo "==> installing locked dependencies into .venv"
	@$(UV) sync --frozen --quiet --compile-bytecode --python $(PYTHON)
	@touch $@

.PHONY: controlplane
controlplane: install ## Build or find etcd, Kubernetes' own binaries, kwok and Helm
	@$(BIN)/python -m hack.controlplane.binaries

.PHONY: up
up: controlplane ## Start a control plane with kwok that runs until `make down`, for manual tests (K8S=1.36, K8S=1.35)
	@$(BIN)/python -m hack.controlplane.launcher up --state-dir .cluster --kwok --end-command 'make down'

.PHONY: down
down: ## Stop the control plane of `make up` and remove its data
	@$(BIN)/python -m hack.controlplane.launcher down .cluster && rm -rf .cluster

.PHONY: demo
demo: install ## Demonstrate Bayplan on a real control plane (KEEP=1 leaves it running; PAGE=1 opens the page)
	@$(BIN)/python -m hack.demo$(if $(PAGE),.page) $(if $(KEEP),--keep)

.PHONY: demo-gang
demo-gang: install ## Demonstrate gangs: two that do not both fit, a large one behind small pods, a preemption (KEEP=1)
	@$(BIN)/python -m hack.demo.gangs $(if $(KEEP),--keep)

.PHONY: demo-change
demo-change: install ## Demonstrate a change: a shadow profile, its report, the diff, its promotion, the rollback, a replay (KEEP=1)
	@$(BIN)/python -m hack.demo.change $(if $(KEEP),--keep)

.PHONY: demo-dra
demo-dra: install ## Demonstrate devices: claims by attribute, shared, with alternatives, of a gang, and impossible (KEEP=1)
	@$(BIN)/python -m hack.demo.devices $(if $(KEEP),--keep)

.PHONY: demo-kueue
demo-kueue: install ## Demonstrate the admission check of Kueue: two teams, a preemption, whole replicas, an autoscaler (builds Kueue; KEEP=1)
	@$(BIN)/python -m hack.demo.kueue $(if $(KEEP),--keep)

.PHONY: demo-room
demo-room: install ## Demonstrate room by plan: a fragmented GPU cluster, a gang that does not fit, the moves, a preempted claim (KEEP=1)
	@$(BIN)/python -m hack.demo.room $(if $(KEEP),--keep)

.PHONY: transcript
transcript: controlplane ## Print what a new user sees: wheel, simulation, chart, upgrade, `helm test`, rollback, status, explanation
	@$(BIN)/python -m hack.demo.transcript

.PHONY: test
test: install ## Run all tests, including those on the real control plane (WORKERS=n PYTEST_ARGS=... K8S=1.36)
	@$(BIN)/python -m hack.controlplane.binaries || echo "==> some tests will be skipped, with what they lack"
# Native gangs are tested during an upgrade from 1.36; a build takes longer than a test may.
	@K8S=1.36 $(BIN)/python -m hack.controlplane.binaries etcd kube-apiserver kubectl || echo "==> some tests of the upgrade will be skipped"
	@$(BIN)/pytest --numprocesses=$(WORKERS) --no-loadscope-reorder $(PYTEST_ARGS)

# All steps run, also after one that fails. NIGHT is the random seed; the date of a night repeats it.
NIGHT ?= $(shell date +%Y%m%d)
HOURS ?= build/nightly/simulated-hours.jsonl
NIGHTLY := tests peers releases floors pythons firefox faults twins parity scenarios soak upstream e2e transcript

.PHONY: nightly
nightly: controlplane ## Run what CI samples or leaves out: long campaigns, planted bugs, soak, floors (hours; NIGHT=20261122)
	@echo "==> night $(NIGHT)"
	@$(MAKE) --keep-going --no-print-directory $(addprefix nightly-,$(NIGHTLY)) NIGHT=$(NIGHT); status=$$?; \
		$(BIN)/python -m tests.simulation.simulated_hours $(HOURS); exit $$status

.PHONY: $(addprefix nightly-,$(NIGHTLY))
nightly-tests: install
	@K8S=1.36 $(BIN)/python -m hack.controlplane.binaries
	@$(BIN)/pytest --numprocesses=$(WORKERS) --no-loadscope-reorder --nightly -m "nightly or hypothesis" $(PYTEST_ARGS)

nightly-peers: controlplane
	@$(BIN)/pytest --numprocesses=2 --no-loadscope-reorder --nightly $(PYTEST_ARGS) tests/peers

nightly-releases: install
	@for release in 1.36 1.35; do echo "==> Kubernetes $$release"; K8S=$$release $(BIN)/python -m hack.controlplane.binaries && \
		K8S=$$release $(BIN)/pytest --numprocesses=$(WORKERS) --no-loadscope-reorder $(PYTEST_ARGS) tests/cluster || status=1; done; exit $${status:-0}

nightly-floors: test-floors

# Other versions of Python; one that the machine lacks is reported and left out.
PYTHONS := 3.12 3.13
PYTHON_TESTS := tests/scheduler_core tests/operator tests/laws examples/plugins/tests

nightly-pythons: install
	@for version in $(PYTHONS); do \
		python=$$($(UV) python find --no-project $$version 2>/dev/null || ls -d $$HOME/.pyenv/versions/$$version.*/bin/python$$version 2>/dev/null | tail -1); \
		if [ -z "$$python" ]; then echo "==> Python $$version is not installed: not tested"; continue; fi; \
		echo "==> $$python"; \
		UV_PROJECT_ENVIRONMENT=build/python-$$version $(UV) sync --frozen --quiet --python $$python && \
		build/python-$$version/bin/pytest --numprocesses=$(WORKERS) -m "not cluster and not kwok and not kube_scheduler" \
			$(PYTEST_ARGS) $(PYTHON_TESTS) || status=1; done; exit $${status:-0}

nightly-firefox: install
	@$(BIN)/python -m hack.geckodriver
	@PAGE_BROWSER=firefox $(BIN)/pytest $(PYTEST_ARGS) $(addprefix tests/page/test_,panels.py connection.py hostile_text.py accessibility.py screenshots.py)

nightly-faults: install
	@$(BIN)/python -m tests.simulation --seeds 3000 --first $(NIGHT)0000 --hours $(HOURS)

nightly-twins: install
	@for bounds in "" --tiny; do for groups in "" --gangs --devices; do PYTHONPATH=operator $(BIN)/python -m tests.laws.twins \
		--decisions 25000 --seed $(NIGHT)0000 $$bounds $$groups || exit 1; done; done

nightly-parity: install
	@$(BIN)/python -m tests.parity.oracle --seed $(NIGHT) --count 2000
	@$(BIN)/python -m tests.parity.oracle --seed $(NIGHT) --count 500 --bent
	@$(BIN)/python -m tests.parity.oracle --seed $(NIGHT) --count 5000 --hints

nightly-scenarios: controlplane
	@$(BIN)/python -m benchmarks.scenarios --random 200 --seed $(NIGHT) --pairs 2

nightly-soak: controlplane
	@$(BIN)/python -m benchmarks.soak --minutes 30 --rate 50

nightly-upstream: install
	@for release in 1.37 1.36; do echo "==> Kubernetes $$release"; K8S=$$release nice $(BIN)/python -m tests.upstream || status=1; done; exit $${status:-0}

nightly-e2e: controlplane
	@nice $(BIN)/python -m tests.e2e

nightly-transcript: transcript

# Separate environment with the lowest versions that pyproject.toml allows.
FLOORS := build/floors
FLOOR_SMOKE := tests/cluster/test_operator.py
FLOOR_TESTS := $(if $(QUICK),$(addprefix tests/operator/,settings/test_operator_settings.py profiles/test_kopf_handlers.py process/test_tracing.py \
	kube/test_kubeconfig_access.py cli/test_following_the_leader.py),tests/operator tests/scheduler_core examples/plugins/tests)

.PHONY: test-floors
test-floors: controlplane ## Test with the lowest versions of dependencies that pyproject.toml allows (QUICK=1 for a part)
	@echo "==> installing the lowest versions into $(FLOORS)"
	@$(UV) venv --quiet --clear --python $(BIN)/python $(FLOORS)
	@$(UV) pip install --quiet --python $(FLOORS) --resolution lowest-direct --group dev --editable '.[otel]'
	@PYTHONPATH=. $(FLOORS)/bin/python -m hack.checks.imports
	@$(FLOORS)/bin/pytest $(PYTEST_ARGS) -m "not cluster and not kwok and not kube_scheduler" $(FLOOR_TESTS)
	@$(FLOORS)/bin/pytest $(PYTEST_ARGS) $(FLOOR_SMOKE)

.PHONY: parity
parity: install ## Run random cases through kube-scheduler's framework and Bayplan (SEED=n COUNT=n FAMILY=f BENT=1 HINTS=1)
	@$(BIN)/python -m tests.parity.oracle $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) \
		$(if $(FAMILY),--family $(FAMILY)) $(if $(BENT),--bent) $(if $(HINTS),--hints)

.PHONY: upstream
upstream: install ## Run kube-scheduler's integration tests against Bayplan (K8S=1.36 PACKAGES="filters taint" ONLY=test QUICK=1)
	@nice $(BIN)/python -m tests.upstream $(PACKAGES) $(if $(ONLY),--only '$(ONLY)') $(if $(QUICK),--selection)

.PHONY: e2e
e2e: install ## Run kube-scheduler's end-to-end tests against kube-scheduler and Bayplan, and compare (20 minutes; ONLY=regexp)
	@$(BIN)/python -m tests.e2e $(if $(ONLY),--only '$(ONLY)')

# Results are stored as JSON lines; existing results are not measured again. OUTPUT=json prints JSON.
RESULTS ?= build/benchmarks$(if $(QUICK),/quick)
OUTPUT ?= table
BENCH_CHARTS := $(if $(QUICK),$(RESULTS),docs/benchmarks)

.PHONY: bench-e2e
bench-e2e: bench-latency ## Measure both schedulers on a real API server, workload by workload (hours; QUICK=1 for a short run)
	@$(BIN)/python -m benchmarks.end_to_end $(if $(QUICK),--quick) --results $(RESULTS)/end-to-end.jsonl \
		--chart $(BENCH_CHARTS)/end-to-end.svg -o $(OUTPUT)

.PHONY: bench-dra
bench-dra: install ## Measure both schedulers with devices (resource claims), at 100, 500 and 5,000 nodes (QUICK=1: 500 nodes)
	@for nodes in $(if $(QUICK),500,100 500 5000); do \
		$(BIN)/python -m benchmarks.end_to_end --devices --nodes $$nodes --pods 2000 --repetitions 1 \
			--results $(RESULTS)/devices.jsonl -o $(OUTPUT) || exit 1; \
	done

.PHONY: bench-shadow
bench-shadow: install ## Measure Bayplan without and with a shadow profile, on a real API server (QUICK=1)
	@$(BIN)/python -m benchmarks.shadow $(if $(QUICK),--quick) --results $(RESULTS)/shadow.jsonl

.PHONY: bench-page
bench-page: install ## Measure CPU time and bytes of the page by number of viewers, on a large cluster in memory (QUICK=1)
	@$(BIN)/python -m benchmarks.page $(if $(QUICK),--quick) --results $(RESULTS)/page.jsonl

.PHONY: bench-latency
bench-latency: install ## Measure both schedulers' latency from creation to bind at a steady rate (part of bench-e2e; QUICK=1)
	@$(BIN)/python -m benchmarks.latency $(if $(QUICK),--nodes 1000 --seconds 5 --repetitions 1) \
		--results $(RESULTS)/latency.jsonl -o $(OUTPUT)

.PHONY: bench-core
bench-core: install ## Measure the core alone, in memory, up to 50,000 nodes and 200,000 bound pods (half an hour; QUICK=1)
	@$(BIN)/python -m benchmarks.core --results $(RESULTS)/core.jsonl --chart $(BENCH_CHARTS)/core.svg -o $(OUTPUT) \
		$(if $(QUICK),$(BENCH_CORE_QUICK),$(BENCH_CORE))

BENCH_CORE := --nodes 100,1000,5000,5000+50000,5000+200000,50000,50000+200000 \
	--memory 1000+10000,5000+50000,5000+200000,50000+200000
BENCH_CORE_QUICK := --nodes 100,1000,5000,5000+50000 --memory 1000+10000,5000+50000 --pods 300 --repetitions 1

.PHONY: bench-startup
bench-startup: install ## Measure startup in a full cluster, and takeovers (QUICK=1 for a short run)
	@$(BIN)/python -m benchmarks.startup $(if $(QUICK),--nodes 500 --pods 2000 --repetitions 1) --results $(RESULTS) \
		-o $(OUTPUT)

.PHONY: bench-churn
bench-churn: install ## Measure memory and time per pod over a simulated year in which every name is new (QUICK=1)
	@$(BIN)/python -m benchmarks.churn $(if $(QUICK),--nodes 50 --pods 200 --months 6) -o $(OUTPUT)

.PHONY: bench-gangs
bench-gangs: install ## Measure gangs beside kube-scheduler, and one large gang in the core (QUICK=1 for a short run)
	@$(BIN)/python -m benchmarks.gangs $(if $(QUICK),--quick) --results $(RESULTS)/gangs.jsonl -o $(OUTPUT)
	@$(BIN)/python -m benchmarks.gang_core $(if $(QUICK),--nodes 500 --members 100)

.PHONY: bench-shared-nodes
bench-shared-nodes: install ## Count the pods too many on nodes that Bayplan and kube-scheduler share, beside two kube-schedulers (QUICK=1)
	@$(BIN)/python -m benchmarks.shared_nodes $(if $(QUICK),--nodes 20,--repetitions 5) --results $(RESULTS)/shared-nodes.jsonl -o $(OUTPUT)

.PHONY: bench-record
bench-record: install ## Measure the cost of a record, compared with runs without one, and replay it (QUICK=1 for a short run)
	@$(BIN)/python -m benchmarks.record $(if $(QUICK),--pods 1000 --repetitions 1)

.PHONY: bench-packing
bench-packing: install ## Measure how many GPUs of a trace each profile allocates (TRACE=folder with its CSV files; QUICK=1: one sample)
	@test -n "$(TRACE)" || { echo "TRACE is not set: name the folder with the CSV files of the trace"; exit 2; }
	@PYTHONPATH=examples/plugins $(BIN)/python -m benchmarks.packing $(if $(QUICK),--draws 1) \
		--results $(RESULTS)/packing.jsonl -o $(OUTPUT) "$(TRACE)"

.PHONY: bench-recovery
bench-recovery: install ## Measure the GPUs recovered per eviction beside the descheduler (TRACE=folder with its CSV files; QUICK=1: 100 nodes)
	@test -n "$(TRACE)" || { echo "TRACE is not set: name the folder with the CSV files of the trace"; exit 2; }
	@PYTHONPATH=examples/plugins $(BIN)/python -m benchmarks.recovered_gpus $(if $(QUICK),--nodes 100) \
		--results $(RESULTS)/recovered-gpus.jsonl -o $(OUTPUT) "$(TRACE)"

.PHONY: simulate-faults
simulate-faults: install ## Simulate cluster lifetimes with faults (SEEDS=n, or SEED=n for one with its trace)
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED) --trace) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(JOBS),--jobs $(JOBS))

.PHONY: twins
twins: install ## Compare schedulers with and without cached results over random cluster lifetimes (DECISIONS=n SEED=n TINY=1 GANGS=1 DEVICES=1)
	@PYTHONPATH=operator $(BIN)/python -m tests.laws.twins $(if $(DECISIONS),--decisions $(DECISIONS)) \
		$(if $(SEED),--seed $(SEED)) $(if $(TINY),--tiny) $(if $(GANGS),--gangs) $(if $(DEVICES),--devices)

# The longest step comes first, so that `make --jobs=2 check` runs the others beside it.
CHECKS := $(addprefix check-,types imports lint format dockerfile length english crds docs)

.PHONY: check $(CHECKS)
check: $(CHECKS) ## Check types, import contract, lint, format, file length, wording, and generated CRDs and docs; no tests
check-types: install
	@echo "==> types" && $(BIN)/mypy --no-error-summary $(PRESENT)
check-imports: install
	@echo "==> import contract" && PYTHONPATH=operator $(BIN)/lint-imports --no-logo > .import-contract.log || (cat .import-contract.log && false)
	@rm -f .import-contract.log
check-lint: install
	@echo "==> lint" && $(BIN)/ruff check --quiet $(PRESENT)
check-format: install
	@echo "==> format" && $(BIN)/ruff format --check --quiet $(PRESENT) || (echo "run: make format" && false)
check-dockerfile: install
	@echo "==> Dockerfile" && if [ -x $(BIN)/hadolint ]; then $(BIN)/hadolint Dockerfile; else echo "no hadolint for this machine"; fi
check-length: install
	@echo "==> file length" && $(BIN)/python -m hack.checks.file_length
check-english: install
	@echo "==> plain English" && $(BIN)/python -m hack.checks.plain_english
check-crds: install
	@echo "==> CRD drift" && $(BIN)/python -m bayplan.resources.crd_generation --output crds --check
check-docs: install
	@echo "==> docs drift" && $(BIN)/python -m hack.docs --check

.PHONY: audit
audit: install ## Check the locked dependencies for known vulnerabilities, if a vulnerability service can be reached
	@$(BIN)/python -m hack.checks.audit

.PHONY: format
format: install ## Format the code and apply automatic fixes
	@$(BIN)/ruff format $(PRESENT)
	@$(BIN)/ruff check --fix $(PRESENT)

.PHONY: crds
crds: install ## Generate crds/*.yaml from the models
	@$(BIN)/python -m bayplan.resources.crd_generation --output crds

.PHONY: docs
docs: install ## Generate docs/reference/*.md from the models, the settings and the commands
	@$(BIN)/python -m hack.docs

.PHONY: docs-site
docs-site: install ## Build the documentation site into build/site; fails on broken links
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet && echo "build/site/README.html"

.PHONY: image
image: install ## Build the container image with docker, podman or buildah into dist/bayplan-image.tar (BASE_IMAGE=... EXTRAS=otel)
	@$(BIN)/python -m hack.image $(if $(EXTRAS),--extras $(EXTRAS))

.PHONY: e2e-kind
e2e-kind: install ## Install the image and the chart in a kind cluster and test them there; needs docker or podman
	@KIND_VERSION=$(KIND_VERSION) $(BIN)/pytest $(PYTEST_ARGS) tests/kind

.PHONY: manifests
manifests: install ## Render the chart as plain manifests and a Kustomize base into dist/manifests (VALUES=file)
	@$(BIN)/python -m hack.release.manifests $(if $(VALUES),--values "$(VALUES)")

.PHONY: release
release: controlplane ## Build the files of a release into dist/release: packages, chart, image, bills of materials (IMAGE=0: no image)
	@$(BIN)/python -m hack.release $(if $(filter 0,$(IMAGE)),--no-image)

.PHONY: build
build: install ## Build the wheel and the source distribution into dist/
	@$(UV) build --quiet

.PHONY: clean
clean: ## Remove build results; the control plane's cache stays
	@rm -rf .venv .uv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
