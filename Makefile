# make demo and make test do their whole set-up themselves: Python 3.11 or later, git and make are all they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := env -u PIP_FIND_LINKS $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: demo demo-opensearch test check lock bench clean

demo: $(VENV)/.demo
	$(BIN)/pointsman demo

demo-opensearch: $(VENV)/.dev
	deploy/dev/demo_opensearch.sh

test: $(VENV)/.dev
	$(BIN)/python -m pytest tests/unit tests/conformance tests/sql tests/e2e tests/faults

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pointsman needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

# A lock with hashes, then the project itself without any look-up.
$(VENV)/.%: deploy/lock/%.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing the locked packages into $(VENV) (about a minute, once)" >&2
	@$(PIP) --require-hashes -r $<
	@$(PIP) --no-index --no-build-isolation --no-deps -e .
	touch $@

lock:
	uv pip compile pyproject.toml deploy/lock/build.in --extra files --extra http --extra mcp --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -q -o deploy/lock/demo.txt
	uv pip compile pyproject.toml deploy/lock/build.in --extra dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -q -o deploy/lock/dev.txt
	uv pip compile pyproject.toml deploy/lock/build.in --extra all --extra dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -q -o deploy/lock/all.txt

clean:
	rm -rf $(VENV) dist

bench: $(VENV)/.dev
	$(BIN)/python -m tests.bench
