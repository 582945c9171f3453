# Everything a fresh machine needs is installed into .venv by the first command that needs it. `make` lists the commands.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# What the README shows, also where one of them cannot run: then its row says why.
SUBJECTS := torch:eager,jittor,tensorflow:eager,tensorflow:graph,onnxruntime
LOCK     := $(BIN)/uv --quiet pip compile pyproject.toml --extra all --extra cluster --extra docs --extra dev --constraint constraints.txt \
            --universal --python-version 3.10 --no-python-downloads --no-annotate --custom-compile-command "make lock"

# Images of containers set it, and then each of the thousand processes of the tests compiles xverify again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run wheel test web slow long check ci fast side-by-side eighth bench faults ports steps ranks decoders floors onnx-suite quantised kernels torchvision formats environments lint types resolve lock docs clean
help:                         ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

run: $(STAMP) environments    ## verify and time ResNet-50 in four frameworks; leaves results/resnet50.json; 9 minutes on a fresh machine
	@mkdir -p results
	$(BIN)/xverify run resnet50 --subjects $(SUBJECTS) --effort quick --json results/resnet50.json

# In an environment of its own, so that it needs none of the frameworks. What an earlier build left would be packed, too.
wheel:                        ## a wheel in dist/, to install xverify elsewhere: pip install "dist/xverify_frameworks-0.1.0-py3-none-any.whl[torch]"
	rm -rf build dist/xverify_frameworks-*.whl
	$(PYTHON) -m venv build/venv
	build/venv/bin/python -m pip wheel --disable-pip-version-check --quiet --no-deps --wheel-dir dist .
	rm -rf build
	@ls dist/xverify_frameworks-*.whl

# A part that fails does not stop the others: what fails on one machine is then known as a whole.
test: $(STAMP)                ## the fast tests, and an eighth of the slow ones: another eighth for each commit
	@failed=; for part in side-by-side web eighth; do $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; done; \
	  test -z "$$failed" || { echo "make test: these parts failed:$$failed" >&2; exit 1; }

eighth: $(STAMP)
	$(BIN)/python -m pytest --durations=25 -m "(timed or slow) and not long" --every 8

# Tests of the other runtimes with an environment of their own are skipped where nobody has made it. Where this one cannot be
# made, because there is no registry of npm, its tests are skipped, too.
web: $(STAMP)                 ## right and wrong kernels in WebAssembly; makes the environment of onnxruntime-web
	-@$(BIN)/xverify env create onnxruntime-web
	$(BIN)/python -m pytest -q -m slow tests/checking/test_onnxruntime_web.py -k "right_file_is_equal or wrong_kernel_is_named"

slow: $(STAMP)                ## all slow tests but the longest; an hour
	$(BIN)/python -m pytest --durations=25 -m "slow and not long"

long: $(STAMP)                ## the longest tests, half a minute and more each
	$(BIN)/python -m pytest --durations=25 -m long

check: lint types fast        ## format, lint, types, the order of imports, and the tests that start no framework

ci: lint types resolve test   ## what has to pass before a change is merged

# Two at a time, except those that judge a speed. Frameworks take all cores by themselves, so slow tests run one by one.
fast: $(STAMP) side-by-side
	$(BIN)/python -m pytest -q -m "timed and not slow"

side-by-side: $(STAMP)
	$(BIN)/python -m pytest -q --numprocesses 2 --dist loadfile -m "not slow and not timed"

docs: $(STAMP)                ## the documentation as a site in site/, which needs no network to be read
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open site/index.html"

bench: $(STAMP)               ## how fast a command starts; the harness beside loops written by hand; the cost of a replay; large models (24 GiB, 10 minutes)
	$(BIN)/python bench/start.py
	$(BIN)/xverify selftest timing --only overhead
	$(BIN)/python bench/replay.py
	$(BIN)/python bench/large_models.py
	$(BIN)/python bench/memory.py

faults: $(STAMP)              ## inject faults of processes, weight files, model files, result files and model folders, and generated cases; 45 minutes
	$(BIN)/python suites/faults.py

ports: $(STAMP)               ## the ports of tests/ports as they are, and with planted faults; half an hour
	$(BIN)/python suites/ports.py

steps: $(STAMP)               ## training steps of one's own in tests/steps as they are, and with planted faults; half an hour
	$(BIN)/python suites/steps.py

ranks: $(STAMP)               ## the ways to train on ranks in tests/ranks/kinds as they are, and with planted faults, on two and four ranks; 3 minutes
	$(BIN)/python suites/ranks.py

decoders: $(STAMP)            ## the decoders of tests/decoders in every way to compute a sequence, as they are and with planted faults; half an hour
	$(BIN)/python suites/decoders.py

floors: $(STAMP)              ## whether every fault above the stated detection limit is caught, on 45 graphs and 44 models; an hour and a half
	$(BIN)/python suites/floors.py --markdown

onnx-suite: $(STAMP)          ## onnx's own test data: `xverify check` agrees with the expected outputs, and with what is wrong
	$(BIN)/python suites/onnx_suite.py

quantised: $(STAMP)           ## mistakes of quantising in files of ONNX Runtime: each is found and named, and no right file is accused; 6 minutes
	$(BIN)/python suites/quantised.py --markdown

kernels: $(STAMP)             ## wrong kernels in quantised graphs: each is found at its node; 3 minutes
	$(BIN)/python suites/kernels.py --markdown

torchvision: $(STAMP)         ## 20 architectures by both exporters of torch, on two runtimes, in float16 and in int8: no false alarm
	$(BIN)/python suites/vision.py

formats: $(STAMP)             ## every model of the zoo in every format, each file against each other one: no false alarm
	$(BIN)/python suites/zoo_files.py

lint: $(STAMP)                ## the format of the code, and what ruff finds in it
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)               ## the types, by mypy
	$(BIN)/python .ci/check_types.py

# Frameworks that have no release for this Python get an environment of their own, with an older one.
# Without an older Python the command says what to install, the run goes on, and the row of that framework says it too.
environments: $(STAMP)
	-@$(BIN)/xverify env create --needed jittor tensorflow

resolve: $(STAMP)             ## whether the tested versions can be installed with every supported Python; installs nothing
	$(BIN)/python .ci/resolve.py

# constraints.txt is what `make` installs. requirements.lock has the same versions with the hashes of their files.
# `make` does not check hashes: with hashes, pip refuses to install the project itself, and takes the build of PyTorch on PyPI,
# which brings several GiB for CUDA, also where an index or a folder of wheels offers a build for the CPU alone.
# To check them: pip install --require-hashes -r requirements.lock, then pip install --no-deps -e .
# To take a newer version of a package, delete its lines in constraints.txt first; to take all of them, empty the file.
lock: $(STAMP)                ## resolve again for all supported Pythons, keeping the versions that still fit
	$(LOCK) --output-file $(VENV)/constraints.txt >/dev/null
	mv $(VENV)/constraints.txt constraints.txt
	$(LOCK) --generate-hashes --output-file $(VENV)/requirements.lock >/dev/null
	mv $(VENV)/requirements.lock requirements.lock

clean:                        ## remove .venv, results and everything that was built
	rm -rf $(VENV) results build dist site *.egg-info

$(STAMP): pyproject.toml setup.py constraints.txt
	@echo "== creating $(VENV) and installing xverify with torch, Jittor, TensorFlow and ONNX Runtime (minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# Jittor looks for pythonX.Y-config beside the interpreter, where venv does not put it.
	@config=$$($(BIN)/python -c 'import sysconfig as s; print(s.get_config_var("BINDIR"), s.get_python_version(), sep="/python")')-config; \
	  script=$(BIN)/$$(basename "$$config"); \
	  test ! -x "$$config" || { printf '#!/bin/sh\nexec "%s" "$$@"\n' "$$config" >$$script && chmod +x $$script; }
	@# An environment of before, when the distribution was called xverify.
	@test ! -d $(VENV)/lib/python3*/site-packages/xverify-[0-9]*.dist-info || $(BIN)/python -m pip uninstall --quiet --yes xverify
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -c constraints.txt -e ".[all,cluster,docs,dev]"
	@touch $@
