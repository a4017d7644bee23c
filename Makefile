# One task runner for everything. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := tracekit/_core.abi3.so
RUST := $(shell find schema parsers replay statistics tracekit/_bindings -name '*.rs' -o -name Cargo.toml 2>/dev/null) Cargo.toml Cargo.lock
# Captures for the larger tests; tests that need them skip, and the run says how many, where they are absent.
ARCHIVES ?= ../shared
DEMO := fixtures/demo/slice-default.dat
OUT := out
# How the core is built here; wheels and measurements use release.
PROFILE ?= quick

.PHONY: help tools dev demo test test-rust tests-built test-python lint lint-rust lint-python format testdata bench validate bounds studies differential fuzz sanitize docs wheel smoke publishable clean release

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

tools: ## check that cargo, a C compiler and Python 3.11+ are here
	@ok=1; \
	command -v cargo >/dev/null || { ok=0; echo "missing: cargo (Rust). Install Rust with rustup, or your distribution's cargo package (1.91 or later)."; }; \
	command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || { ok=0; echo "missing: a C compiler. Install gcc or clang (Debian: apt install gcc libc6-dev)."; }; \
	if ! command -v $(PYTHON) >/dev/null; then ok=0; echo "missing: $(PYTHON). Install Python 3.11 or later, or name one: make PYTHON=python3.12 ..."; \
	elif ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then ok=0; echo "too old: $(PYTHON) is $$($(PYTHON) -V); Python 3.11 or later is needed: make PYTHON=python3.12 ..."; \
	elif ! $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null; then ok=0; echo "missing: Python's venv module (Debian: apt install python3-venv)."; fi; \
	[ $$ok = 1 ] || exit 1

$(VENV)/.needed: setup.cfg | tools
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the packages that tracekit needs into $(VENV)"
	@$(BIN)/python -c "import configparser as c; p = c.ConfigParser(); p.read('setup.cfg'); print(p['options']['install_requires'].strip())" > $@.tmp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $@.tmp
	@printf '#!/bin/sh\nPYTHONPATH="%s" exec "%s" -m tracekit "$$@"\n' '$(CURDIR)' '$(abspath $(BIN))/python' > $(BIN)/tracekit
	@chmod +x $(BIN)/tracekit
	@mv $@.tmp $@

$(VENV)/.packages: $(VENV)/.needed
	@echo "installing the packages that tests, lints and docs need into $(VENV)"
	@$(BIN)/python -c "import configparser as c; p = c.ConfigParser(); p.read('setup.cfg'); [print(p['options.extras_require'][k].strip()) for k in ('test', 'lint', 'docs')]" > $@.tmp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $@.tmp
	@mv $@.tmp $@

# The editable installation would build the core a second time; the same profile makes that short.
$(VENV)/.made: setup.cfg pyproject.toml $(VENV)/.packages | $(CORE)
	@echo "installing tracekit into $(VENV)"
	SETUPTOOLS_RUST_CARGO_PROFILE=$(PROFILE) $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

$(CORE): $(RUST) | tools
	cargo build --profile $(PROFILE) --package tracekit-bindings --features extension-module
	cp target/$(PROFILE)/lib_core.so $@.tmp
	mv $@.tmp $@

dev: $(VENV)/.made $(CORE) ## set up .venv with tracekit, editable, and everything for tests

demo: ## compare two policies on the shipped capture and write a report; installs only what that needs
	@$(MAKE) --no-print-directory --jobs=2 $(VENV)/.needed $(CORE)
	@mkdir -p $(OUT)
	$(BIN)/tracekit compare $(DEMO) --policy cfs:wakeup_preemption=off --policy eevdf -o $(OUT)/demo.html --json $(OUT)/demo.json
	@echo "report: $(OUT)/demo.html (open it in a browser)"
	@echo "a capture of your own: $(BIN)/tracekit info FILE, then compare FILE --policy NAME ($(BIN)/tracekit policies lists them)"

test: test-rust test-python ## run all tests

test-rust: | tools
	cargo test --quiet --workspace

tests-built: | tools
	cargo test --quiet --workspace --no-run

test-python: dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations=10

lint: lint-rust lint-python ## check formatting, lints and types

lint-rust: | tools
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings

lint-python: $(VENV)/.packages $(CORE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest tracekit._core --mypy-config-file pyproject.toml

format: dev ## format all code
	cargo fmt --all
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

testdata: ## unpack the captures of $(ARCHIVES) into testdata/ (2.1 GB)
	@if [ -x $(ARCHIVES)/unpack.sh ]; then $(ARCHIVES)/unpack.sh testdata corpus lab lab2; \
	else echo "no $(ARCHIVES)/unpack.sh: tests that need the captures will skip (set ARCHIVES=folder)"; fi

release: dev
	cargo build --release --package tracekit-bindings --features extension-module
	cp target/release/lib_core.so $(CORE).tmp
	mv $(CORE).tmp $(CORE)

bench: release ## measure parsing against peers (absent ones are named), whole commands, dispatches/s of every policy, and hooks [LONG=1: and what takes minutes]
	@mkdir -p $(OUT)
	$(BIN)/python bench/parse.py
	$(BIN)/python bench/commands.py --json $(OUT)/commands.json --plot $(OUT)/commands.png
	-$(BIN)/python bench/dispatch.py --json $(OUT)/dispatch.json --plot $(OUT)/dispatch.png
	$(BIN)/python bench/callbacks.py
	cargo bench --quiet --package tracekit-replay --bench reconstruct
	$(if $(LONG),$(BIN)/python bench/long.py --json $(OUT)/long.json)

# Captures on several CPUs.
SEVERAL := cpu/

validate: dev testdata ## hold a sample of pairs against reality; write docs/validation.md, model errors and switch costs [SAMPLE=320 BUDGET=34]
	$(BIN)/python -m validation.switch_costs testdata/lab
	$(BIN)/python -m validation.run testdata/lab --pairs $(ARCHIVES)/lab/pairs.tsv --several testdata/lab2 --several-pairs $(ARCHIVES)/lab2/pairs.tsv --sample $(or $(SAMPLE),320) --budget $(or $(BUDGET),34) --store $(OUT)/validation -o docs/validation.md --fit tracekit/whatif/model_error.toml --fit-rows tracekit/whatif/row_error.toml
	$(BIN)/python -m validation.blame testdata/lab
	$(BIN)/python -m validation.several testdata/lab2 --pairs $(ARCHIVES)/lab2/pairs.tsv --only '$(SEVERAL)' --controls -o docs/validation-several.md
	$(BIN)/python -m validation.tunables testdata/lab testdata/lab2 -o docs/validation-infer.md
	$(BIN)/python -m validation.public testdata/corpus -o docs/validation-public.md

bounds: dev ## take records out of whole traces 1,000 times: the truth lies inside the bounds of what is left
	TRACEKIT_BOUNDS=125 $(BIN)/python -m pytest -n 2 -q tests/analysis/test_bounds.py

differential: dev ## hold 200 random schedules of each policy against independent models; writes docs/differential.json
	$(BIN)/python -m tests.differential --count 200 -o docs/differential.json

studies: dev ## run the five published studies and set their results beside the published ones
	$(BIN)/tracekit study

# Grammars that Python reads, as tools/fuzz_grammars.py calls them; `filter` and `text` draw from several.
GRAMMARS := fail-if goal set set-shown grid grid-set filter-name filter-time filter-cpu duration scenario machine group-map

fuzz: | tools ## look for inputs that break something: make fuzz FORMAT=trace-dat [DURATION=600 seconds of CPU time]; FORMAT=list prints what there is, FORMAT=all shares the time among them (grammars and formats have it each)
ifeq ($(FORMAT),list)
	@printf '%s\n' $(GRAMMARS)
endif
ifneq ($(filter $(FORMAT),$(GRAMMARS) filter text all),)
	@[ -x $(BIN)/tracekit ] || $(MAKE) dev
	$(BIN)/python tools/fuzz_grammars.py "$(FORMAT)" "$(or $(DURATION),600)"
endif
ifeq ($(filter $(FORMAT),$(GRAMMARS) filter text),)
	cargo run --quiet --profile checked --package tracekit-replay --example fuzz -- "$(FORMAT)" "$(or $(DURATION),600)"
endif

# Tried with the runtime of clang 19, which `apt install libclang-rt-19-dev` has.
ASAN ?= $(firstword $(shell ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan-x86_64.so 2>/dev/null))
UNSAFE := tests/test_policy.py tests/test_dataframes.py tests/test_read.py tests/test_cache.py tests/reliability/test_sources.py
# It allows 1 GiB of address space; AddressSanitizer takes terabytes.
UNSANITIZED := tests/reliability/test_sources.py::test_a_bomb_ends_in_a_message

sanitize: dev ## run the tests of what is unsafe under AddressSanitizer; needs a nightly Rust and clang's runtime (ASAN=file)
	@[ -n "$(ASAN)" ] || { echo "missing: libclang_rt.asan-x86_64.so (Debian: apt install libclang-rt-19-dev), or name it: make sanitize ASAN=file"; exit 1; }
	RUSTFLAGS="-Zsanitizer=address -Zexternal-clangrt" CARGO_TARGET_DIR=target/sanitize cargo +nightly build --quiet --target x86_64-unknown-linux-gnu --package tracekit-bindings --features extension-module
	@rm -rf $(OUT)/sanitize
	@mkdir -p $(OUT)/sanitize
	@for entry in *; do [ $$entry = $(OUT) ] || [ $$entry = tracekit ] || ln -s $(CURDIR)/$$entry $(OUT)/sanitize/; done
	@cp -r tracekit $(OUT)/sanitize/
	@cp target/sanitize/x86_64-unknown-linux-gnu/debug/lib_core.so $(OUT)/sanitize/$(CORE)
	cd $(OUT)/sanitize && PYTHONPATH=. LD_PRELOAD=$(ASAN) ASAN_OPTIONS=detect_leaks=0 $(CURDIR)/$(BIN)/python -m pytest -q -p no:cacheprovider --deselect $(UNSANITIZED) $(UNSAFE)

docs: dev ## write the generated pages and build the site into out/site, failing on broken links
	$(BIN)/python docs/generate.py --run
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir $(OUT)/site

# The time of files in the wheel is that of the commit.
wheel: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 315532800)
wheel: dev ## build sdist, and from it the wheel, into dist/; the same wheel byte for byte in any folder
	$(BIN)/python -m pip install --quiet build
	CARGO_TARGET_DIR=$(CURDIR)/target $(BIN)/python -m build --outdir dist .

smoke: ## install dist/*.whl and what it needs into a bare environment and use it there: make smoke PYTHON=python3.14
	rm -rf $(OUT)/smoke
	$(PYTHON) -m venv $(OUT)/smoke
	$(OUT)/smoke/bin/python -m pip install --quiet dist/*.whl
	cd $(OUT)/smoke && bin/tracekit compare $(CURDIR)/$(DEMO) --policy cfs:wakeup_preemption=off -o report.html
	cd $(OUT)/smoke && bin/tracekit doctor

publishable: | tools ## pack the crates that read traces, and build them from what was packed; nothing is uploaded
	cargo publish --dry-run --allow-dirty --package tracekit-schema --package tracekit-parsers

clean: ## remove what was built (not .venv, not testdata)
	rm -rf target build dist $(OUT) $(CORE) *.egg-info
