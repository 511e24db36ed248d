# make help shows what there is. Every target sets up what it needs, in .venv, and only once.
.DEFAULT_GOAL := help
.PHONY: help demo check test bench api clean

READY := .venv/.ready
PYTHON := .venv/bin/python

help: ## Shows this.
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1	\2/' | expand -t 16

demo: $(READY) ## Watches 27,004 flights go through two decorated handlers, and proves the totals.
	@$(PYTHON) -m examples.flights $(ARGS)

check: $(READY) ## Lints, checks the format and the types.
	@$(PYTHON) -m ruff check --quiet . && echo "ruff check: ok"
	@$(PYTHON) -m ruff format --quiet --check . && echo "ruff format: ok"
	@$(PYTHON) -m mypy --no-error-summary && echo "mypy --strict: ok"

test: check ## Runs check, then every test.
	@$(PYTHON) -m pytest $(ARGS)

bench: $(READY) ## Measures the store and the worker beside bare loops.
	@$(PYTHON) -m benchmarks $(ARGS)

api: $(READY) ## Writes docs/api.txt anew.
	@$(PYTHON) tests/api_listing.py > docs/api.txt

clean: ## Removes what the other targets have made.
	@rm -rf .venv .mypy_cache .ruff_cache .hypothesis

$(READY): pyproject.toml scripts/bootstrap.sh
	@sh scripts/bootstrap.sh
