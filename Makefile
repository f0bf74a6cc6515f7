# Two commands set everything up on a machine with python3, make and a package index:
#   make demo    vocabulary, shards, a look at them and a short training on sample_corpus
#   make test    the tests
# `make site` makes the documents a site, build/site/index.html, with llms.txt; it fails on any warning.
# `make dist` makes the wheel and the sdist in dist/, and tries the wheel alone, as a command and in a notebook; EXTRAS=train
# trains with it too.
# Two more look for what breaks it, for as long as they are told (docs/explanation/reliability.md):
#   make fuzz    damaged files for every reader; FUZZ="--cases 100000"
#   make chaos   signals, full disks, two commands at once; CHAOS="--trials 200"
# and `.venv/bin/python -m reliability stores` kills builds into a store of objects that fails.
PYTHON ?= python3
BIN := .venv/bin
FUZZ ?= --cases 10000
CHAOS ?= --trials 100

# All tests of a file in one process, in the order of tests/conftest.py. A process that dies is not replaced: pytest-xdist
# 3.8 may wait for ever for the new one (pytest-dev/pytest-xdist#1378).
FAST := (not slow or quick) and not gpu
PROFILE ?= thorough
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile --max-worker-restart 0

.PHONY: demo dist test test-all lint fuzz chaos docs site clean

.venv/ready: Makefile pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable '.[train,hub,huggingface,notebook,s3,ray,release,test]'
	touch $@

demo: .venv/ready
	rm -rf demo
	$(BIN)/albert-data vocab sample_corpus --vocab-size 4000 -o demo/vocab
	$(BIN)/albert-data build sample_corpus --tokenizer demo/vocab --max-seq-len 128 --dupe-factor 10 \
		--validation-fraction 0.1 -o demo/shards
	$(BIN)/albert-data inspect demo/shards -n 2
	$(BIN)/albert-data inspect demo/shards --html demo/report.html
	$(BIN)/albert-data audit demo/shards
	$(BIN)/albert-data verify demo/shards
	$(BIN)/albert-data train demo/shards --preset tiny --steps 250 -o demo/run
	@echo "The shards lie in demo/shards, their report in demo/report.html, the training run in demo/run."

test: .venv/ready
	$(PYTEST) -m "$(FAST)"

test-all: .venv/ready
	$(PYTEST) -m "not gpu" --hypothesis-profile $(PROFILE)

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

dist: .venv/ready
	rm -rf dist
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build > /dev/null
	$(BIN)/twine check --strict dist/*
	$(BIN)/python scripts/check_dist.py dist $(EXTRAS)

fuzz: .venv/ready
	$(BIN)/python -m reliability fuzz $(FUZZ)

chaos: .venv/ready
	$(BIN)/python -m reliability chaos $(CHAOS)

docs: .venv/ready
	$(BIN)/python tests/cli_reference.py > docs/reference/cli.md
	$(BIN)/python tests/audit_reference.py
	$(BIN)/python tests/public_names.py > tests/public_names.txt
	$(BIN)/python tests/json_keys.py > tests/json_keys.txt
	$(BIN)/python scripts/install_lines.py
	$(BIN)/python -m pytest --write-golden

.venv/site: .venv/ready
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable '.[docs]'
	touch $@

site: .venv/site
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs build/site

clean:
	rm -rf .venv demo dist build *.egg-info
