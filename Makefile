# The two commands of a newcomer are `make demo` and `make test`; both set up .venv by themselves.

PYTHON ?=
EXTRAS := dev,sql,plots,tune,trees
BIN := .venv/bin
READY := .venv/.ready
JOBS ?= 2

.PHONY: demo test check fix bench docs

demo: $(READY)  ## train on real data and print lists that stop by themselves
	@$(BIN)/shortlist demo

test: check  ## everything that must hold before a change lands
	@cache=$$(mktemp -d) && trap 'rm -rf "$$cache"' EXIT && \
	NUMBA_CACHE_DIR="$$cache" OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(JOBS) $(ARGS)

check: $(READY)  ## lint, format, types, and the order of the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(READY)  ## mend what a tool can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## us and our peers in one run, ratios printed
	@$(BIN)/python -m pip install -q -c constraints.txt -e '.[bench]'
	@for script in $$(grep -l __main__ benchmarks/*.py); do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

docs: $(READY)  ## the pages under docs/ as a site
	$(BIN)/mkdocs build --strict --quiet

$(READY): pyproject.toml constraints.txt
	@if [ ! -x $(BIN)/python ]; then sh .ci/venv "$(PYTHON)"; fi
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@
