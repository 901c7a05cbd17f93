.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
# two processes with one thread each: with more, libraries of numbers would wait for each other; each process takes
# tests in the order of the files, so that most fixtures of a file are made once
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
# modules are compiled when they are first imported: most never are, and compiling all takes half of the installation
PIP := $(BIN)/pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt
export CONGRUENCE_DATA
# where this is set, each of the many processes that the tests start would compile all it imports
unexport PYTHONDONTWRITEBYTECODE

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: .venv/installed ## Train three autoencoders on digits, compare them, write demo/report.html
	$(BIN)/congruence demo --out demo

test: .venv/developing ## Run the whole test suite
	$(PYTEST)

shuffle: .venv/developing ## Run the test suite in a random order, which SEED=1 chooses
	$(PYTEST) --shuffle $(or $(SEED),1)

coverage: .venv/developing ## The same, and say which lines no test runs
	$(PYTEST) --cov --cov-report=term

smoke: .venv/developing ## Run every recipe of the papers at its smallest scale
	for name in $$($(BIN)/python -c "from congruence.experiments.recipes.recipe import RECIPES; print(*(r.name for r in RECIPES))"); do \
		$(BIN)/congruence reproduce $$name --scale smoke --force || exit 1; \
	done

fuzz: .venv/developing ## Read damaged files and folders (FUZZ=10000 of them), and try half as many command lines
	$(BIN)/python tests/fuzz/run.py --count $(or $(FUZZ),10000) --first $(or $(SEED),0)
	$(BIN)/python tests/fuzz/run.py --lines --count $$(($(or $(FUZZ),10000) / 2)) --first $(or $(SEED),0)

kills: .venv/developing ## Kill every command that writes (KILLS=200 times), and compare with undisturbed runs
	$(BIN)/python tests/fuzz/kills.py --count $(or $(KILLS),200) --seed $(or $(SEED),0)

lint: .venv/developing ## Check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/developing ## Format the code
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: .venv/developing ## Build the documentation into site/, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

picture: .venv/developing ## Make the picture of the report in the README again
	$(BIN)/congruence demo --out demo
	$(BIN)/congruence compare demo/seed0.parquet demo/seed1.parquet --report demo/pair.html --quiet
	$(BIN)/python docs/make_picture.py demo/pair.html docs/img/report.png

clean: ## Remove what was built
	rm -rf .venv demo site dist .coverage .pytest_cache .mypy_cache .ruff_cache

.venv/installed: pyproject.toml constraints.txt
	test -d .venv || $(PYTHON) -m venv .venv
	$(PIP) -e '.[torch,lightgbm]' pandas
	touch $@

.venv/developing: pyproject.toml constraints.txt
	test -d .venv || $(PYTHON) -m venv .venv
	$(PIP) -e '.[dev]'
	touch $@ .venv/installed

.PHONY: help demo test shuffle coverage smoke fuzz kills lint format docs picture clean
