# Everything a newcomer needs: `make run`, then `make test`. Needs only Python 3.11+ and make.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
ARGS ?=
# One more than two processors: tests wait, too.
WORKERS ?= 3
LIGHT := not process and not browser and not matrix and not soak

.DEFAULT_GOAL := help
.PHONY: help run test test-all versions check audit format bench soak docs proofs site lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The stamp is older than the lock after every change of the lock, so the set-up runs again exactly then.
# The client is built by what the lock has, and its command ends in .venv/bin/queueops.
$(READY): requirements.lock clients/python/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "QueueOps needs Python 3.11 or newer; name one with: make PYTHON=python3.12")'
	@echo "Setting up .venv from requirements.lock ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable clients/python
	@touch $@

run: $(READY) ## Start everything on this machine (web, workers, sandbox, PostgreSQL); Ctrl-C stops it
	@exec $(BIN)/python manage.py up $(ARGS)

test: $(READY) ## Run the tests that start no process, minutes (ARGS=tests/jobs or ARGS="-k name" for some of them)
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) -m "$(LIGHT)" $(ARGS) || { code=$$?; \
		[ $$code != 5 ] || echo "None of these does without a process or the browser; run them with: make test-all ARGS=..."; exit $$code; }

test-all: $(READY) ## Run all tests: processes, the browser and the matrices, too (ARGS as of test)
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) $(ARGS)

versions: ## Run a part of the tests on each Python and Django that is promised and here (ARGS="3.13:6.0" for one)
	@.ci/versions $(ARGS)

check: $(READY) ## Format, lint, types, import contracts, migrations, generated documents
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python deploy/plain_words.py
	$(BIN)/mypy .
	cd clients/python && ../../$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py write_docs --check
	@[ ! -d clients/typescript/node_modules ] || { cd clients/typescript && npm run --silent schema -- node_modules/openapi.ts \
		&& cmp node_modules/openapi.ts src/openapi.ts || { echo "Write them again with: make docs"; false; }; }

audit: $(READY) ## Ask for known vulnerabilities of what is installed; fails where no source is reached, too
	@$(BIN)/python deploy/audit.py $(ARGS)

format: $(READY) ## Format the code and apply the linter's safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## Write the generated documents again
	$(BIN)/python manage.py write_docs
	$(BIN)/python clients/python/generate_sync.py
	@if command -v npm >/dev/null; then cd clients/typescript && npm ci --silent && npm run --silent schema; fi

proofs: $(READY) ## Run the tests that docs/explanation/proofs.md names, and write their figures into it
	@$(BIN)/python -m pytest --quiet --write-figures docs/_site/proof-figures.json \
		$$($(BIN)/python -c 'from queueops.site.documents.proofs import PROOFS; print(*(test for proof in PROOFS for test in proof.tests))')
	@$(BIN)/python manage.py write_docs

site: $(READY) ## Build the site of docs/ into .site; an installation that has it serves it at /docs/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: $(READY) ## Run the benchmarks, about a minute each; figures go to bench/results
	@set -e; for script in bench/[a-z]*.py; do \
		name=$$(basename "$$script" .py); \
		$(BIN)/python -m "bench.$$name" --json "bench/results/$$name.json" $(ARGS); \
	done

soak: $(READY) ## Run the long forms of the fault tests
	@$(BIN)/python -m pytest -m soak $(ARGS)

COMPILE := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --quiet

lock: ## Compile requirements.lock and those of deploy/ from pyproject.toml (needs uv)
	$(COMPILE) --extra dev --extra mcp --extra oidc --extra otel --extra s3 --output-file requirements.lock
	$(COMPILE) --constraints requirements.lock --output-file deploy/requirements.lock
	$(COMPILE) --constraints requirements.lock --extra mcp --output-file deploy/requirements-mcp.lock
	$(COMPILE) --constraints requirements.lock --extra oidc --output-file deploy/requirements-oidc.lock
	$(COMPILE) --constraints requirements.lock --extra otel --output-file deploy/requirements-otel.lock
	$(COMPILE) --constraints requirements.lock --extra s3 --output-file deploy/requirements-s3.lock

clean: ## Remove the virtual environment and caches; .data (the database) stays
	rm -rf .venv .static .site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache clients/python/.*_cache clients/typescript/node_modules clients/typescript/dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
