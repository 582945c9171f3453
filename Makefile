# Everything a fresh machine needs is installed into .venv by the first command that needs it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: run test check bench clean
run: $(STAMP)                 ## verify and time ResNet-50 in four frameworks; leaves results/resnet50.json
	@mkdir -p results
	$(BIN)/xverify run resnet50 --effort quick --json results/resnet50.json

test: $(STAMP)                ## every test
	$(BIN)/python -m pytest

check: $(STAMP)               ## format, lint, types, and the tests that start no framework
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -m "not slow"

bench: $(STAMP)               ## how fast a command starts; the harness beside loops written by hand; the cost of a replay
	$(BIN)/python bench/start.py
	$(BIN)/xverify selftest timing --only overhead
	$(BIN)/python bench/replay.py

clean:
	rm -rf $(VENV) results build *.egg-info

$(STAMP): pyproject.toml constraints.txt
	@echo "== creating $(VENV) and installing xverify with torch, Jittor, TensorFlow and ONNX Runtime (minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -c constraints.txt -e ".[all,dev]"
	@touch $@
