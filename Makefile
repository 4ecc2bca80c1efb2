# Start with `make demo` and `make test`; both create .venv.

PYTHON ?=
EXTRAS := dev,sql,trees,serve,spark
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
DEMO := .venv/.demo
READY := .venv/.ready
JOBS ?= 2
CHECKS = $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
FUZZ ?= 50
FUZZ_SECONDS ?= 3600

.PHONY: demo test fuzz check fix bench reproduce rankers lowest newest packaging mutants docs

demo: $(DEMO)  ## train on real data and print dynamic lists
	@$(BIN)/shortlist demo

# Many processes of the tests import the package, so bytecode is kept whatever the environment says.
# All kernels are compiled beside the checks, unless ARGS selects tests, which compile what they need.
test: $(READY)  ## everything that must pass before a change is merged
	@cache=$$(mktemp -d) && trap 'kill $$warming 2>/dev/null; rm -rf "$$cache"' EXIT && \
	export NUMBA_CACHE_DIR="$$cache" OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= && \
	{ $(if $(ARGS),:,$(BIN)/python -m tests.warm_up $(JOBS)) & warming=$$!; } && \
	$(CHECKS) && wait $$warming && \
	$(BIN)/pytest -q -n $(JOBS) --dist loadgroup $(ARGS)

fuzz: $(READY)  ## all fuzz suites in full: FUZZ times the cases of `make test`, stopped after FUZZ_SECONDS
	@cache=$$(mktemp -d) && trap 'rm -rf "$$cache"' EXIT && \
	NUMBA_CACHE_DIR="$$cache" OMP_NUM_THREADS=1 SHORTLIST_FUZZ=$(FUZZ) \
	timeout $(FUZZ_SECONDS) $(BIN)/pytest -q -m fuzz -n $(JOBS) --dist loadgroup $(ARGS)

check: $(READY)  ## linter, formatter, type checker, import contract
	$(CHECKS)

fix: $(READY)  ## apply automatic fixes
	$(BIN)/python .ci/write_stub.py
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## compare with other libraries in one run and print the ratios
	@$(BIN)/python -m pip install -q -c constraints.txt -e '.[bench]'
	@for script in $$(grep -l __main__ benchmarks/*.py); do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

reproduce: $(READY)  ## repeat the experiments of the paper, for hours; ARGS="--quick --out FOLDER" takes minutes
	@OMP_NUM_THREADS=1 $(BIN)/python -m reproduction $(ARGS)

RANKERS := torch lenskit rectools replay-rec cornac lightfm-next pandas pyarrow scikit-learn pytest \
	llama-index-core langchain-core haystack-ai mlflow-skinny
rankers: $(READY)  ## run the examples of docs/rankers.md and the tests of the adapters whose packages are large; downloads gigabytes
	@$(BIN)/python -m venv .venv/rankers && .venv/rankers/bin/python -m pip install -q $(RANKERS)
	@.venv/rankers/bin/python -m pip install -q . && .venv/rankers/bin/python .ci/rankers.py && \
	.venv/rankers/bin/python -m pytest -q --noconftest -c /dev/null --rootdir=. tests/adapters

VERSIONS := pytest hypothesis httpx pyarrow pandas
CORE_TESTS := tests/data tests/core tests/recommend tests/cutoff tests/evaluation tests/serve/test_walk.py
lowest newest: $(READY)  ## run core tests with the lowest, or the newest, versions that pyproject.toml allows
	@$(BIN)/python -m venv --clear .venv/$@ && $(BIN)/python .ci/lowest.py > .venv/lowest.txt && \
	.venv/$@/bin/python -m pip install -q $(if $(filter lowest,$@),-c .venv/lowest.txt) '.[trees,serve]' $(VERSIONS) && \
	OMP_NUM_THREADS=1 .venv/$@/bin/python -m pytest -q -W ignore::DeprecationWarning $(CORE_TESTS)

packaging: $(READY)  ## run the steps of the Dockerfile and of the compose file in an empty environment; minutes
	SHORTLIST_PACKAGING=1 $(BIN)/pytest -q tests/serve/test_packaging.py

mutants: $(READY)  ## change the source in many places and list the changes that no test notices; N=50 for fewer
	@$(BIN)/python -m pip install -q -c constraints.txt -e '.[mutants]'
	@nice -n 10 $(BIN)/python -m tests.mutants.run --n $(or $(N),500) --jobs $(JOBS) $(ARGS)

docs: $(READY)  ## build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

$(DEMO): pyproject.toml constraints.txt  # what the demo needs, not the tools of developers
	@if [ ! -x $(BIN)/python ]; then sh .ci/venv "$(PYTHON)"; fi
	@if [ ! -e $(READY) ]; then echo "installing shortlist into .venv" && \
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[trees]'; fi
	@touch $@

$(READY): pyproject.toml constraints.txt benchmarks/plugins/pyproject.toml
	@if [ ! -x $(BIN)/python ]; then sh .ci/venv "$(PYTHON)"; fi
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[$(EXTRAS)]' -e benchmarks/plugins
	@touch $@
