# make help shows what there is. Every target sets up what it needs, in .venv, and only once.
.DEFAULT_GOAL := help
.PHONY: help demo console check test test-all soak simulate interleave mutants matrix bench api clean

READY := .venv/.ready
SERVERS := .venv/.servers
SPARK := .venv/.spark
COMPILED := .venv/.compiled
# Not PYTHON: that one is the user's, and names what .venv is made with.
VENV_PYTHON := .venv/bin/python
# Tests start the program hundreds of times; without its bytecode each start compiles it all anew.
unexport PYTHONDONTWRITEBYTECODE
# More at once than there are cores keep these busy, since tests wait for servers and for time; the order of
# their files, which tests/support/file_order.py makes, does the same.
IN_FILES := --dist loadfile --no-loadscope-reorder
# Where nothing is compiled yet, one compiles for all: four at once would each compile everything.
COMPILE = [ -e $(COMPILED) ] || \
	{ $(VENV_PYTHON) -m pytest --gate --collect-only -qq > /dev/null; touch $(COMPILED); };
# Beside the tests; where it fails, it says so after them.
BESIDE_CHECK = said=$$(mktemp); { $(MAKE) --no-print-directory check > $$said 2>&1 && cat $$said; } \
	& checking=$$!;
BOTH = tested=$$?; wait $$checking; checked=$$?; [ $$checked = 0 ] || cat $$said; rm -f $$said; \
	[ $$tested = 0 ] && exit $$checked || exit $$tested
# Tests kill processes, not machines: where memory is plenty, their files need no disk.
SCRATCH := $(shell test -w /dev/shm && df -Pk /dev/shm | awk 'NR == 2 && $$4 > 6000000 { print "/dev/shm" }')
ON_SCRATCH := $(if $(SCRATCH),TMPDIR=$(SCRATCH))

help: ## Shows this.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1	\2/' | expand -t 18

demo: $(READY) ## Watches 27,004 flights go through two decorated handlers, and proves the totals.
	@$(VENV_PYTHON) -m examples.flights $(ARGS)

console: $(READY) ## Opens the console over flights that arrive without end, and fail now and then; ARGS="--port 8371".
	@$(VENV_PYTHON) -m examples.flights.live $(ARGS)

check: $(READY) $(SPARK) ## Lints, checks the format and the types.
	@$(VENV_PYTHON) -m ruff check --quiet . && echo "ruff check: ok"
	@$(VENV_PYTHON) -m ruff format --quiet --check . && echo "ruff format: ok"
	@$(VENV_PYTHON) -m mypy --no-error-summary && echo "mypy --strict: ok"

test: $(READY) $(SPARK) $(SERVERS) ## The gate: check, beside what tests/gate.py says; ARGS="tests/unit -k topic" those alone.
ifdef ARGS
	@$(BESIDE_CHECK) $(ON_SCRATCH) $(VENV_PYTHON) -m pytest $(ARGS); $(BOTH)
else
	@$(BESIDE_CHECK) $(COMPILE) $(ON_SCRATCH) $(VENV_PYTHON) -m pytest --gate -n 4 $(IN_FILES); $(BOTH)
endif

test-all: $(READY) $(SPARK) $(SERVERS) ## Runs check beside every test; ARGS="gateway sqs" those of these parts.
	@$(BESIDE_CHECK) $(ON_SCRATCH) $(VENV_PYTHON) -m pytest -n 6 $(IN_FILES) --parts "$(ARGS)"; $(BOTH)

soak: $(READY) $(SERVERS) ## Kills and freezes workers of a stream that keeps order: ARGS="--messages 100000 --stores redis --grows".
	@$(ON_SCRATCH) PYTHONPATH=tests/chaos:tests/support:. $(VENV_PYTHON) -m soak $(ARGS)

simulate: $(READY) ## Runs simulated workers by seeds: ARGS="--minutes 60", "--seeds 0:2000", "--seed 81 --history".
	@PYTHONPATH=tests:. $(VENV_PYTHON) -m simulation $(ARGS)

interleave: $(READY) $(SERVERS) ## Runs store operations inside each other: ARGS="--stores redis --kinds delay", "--share 0.1".
	@$(ON_SCRATCH) PYTHONPATH=tests:tests/support:. $(VENV_PYTHON) -m interleaving $(ARGS)

mutants: $(READY) $(SERVERS) ## Plants faults one at a time, and says who finds them; ARGS="settler lanes" some.
	@$(ON_SCRATCH) PYTHONPATH=tests:. $(VENV_PYTHON) -m mutants $(ARGS)

matrix: $(SERVERS) ## Runs what fits each Python, server and package version, and prints the table; ARGS="redis-8" one row.
	@$(ON_SCRATCH) $(VENV_PYTHON) scripts/matrix.py $(ARGS)

bench: $(READY) $(SPARK) $(SERVERS) .venv/.bench ## Measures both stores beside bare loops; ARGS="redis --peers" others too.
	@$(VENV_PYTHON) -m benchmarks $(ARGS)

api: $(READY) $(SPARK) ## Writes docs/api.txt anew.
	@$(VENV_PYTHON) tests/api_listing.py > docs/api.txt

clean: ## Removes what the other targets have made.
	@rm -rf .venv .venv-matrix .mypy_cache .ruff_cache .hypothesis

$(SPARK): $(READY)
	@echo "installing Spark, some 450 MB"
	@$(VENV_PYTHON) -m pip install --quiet --group spark && touch $@

.venv/.bench: $(READY)
	@echo "installing the benchmarks' packages"
	@$(VENV_PYTHON) -m pip install --quiet --group bench && touch $@ || \
		echo "they cannot be had: no picture, and no other frameworks"

$(READY): pyproject.toml scripts/bootstrap.sh
	@sh scripts/bootstrap.sh

$(SERVERS): scripts/servers.sh | $(READY)
	@sh scripts/servers.sh
	@touch $@
