# Needs Python 3.10+, a C++ compiler and make. Every target sets up what it needs in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
SOURCES := pyproject.toml CMakeLists.txt $(wildcard cpp/* src/onlad/mcu/c/*.[ch])
PARTS := fleet hardware serve library cli experiments adapters  # of the tests, beside `mcu`
VARIANTS := constant adaptive on-drift fos-elm dff-os-elm fp-elm-dynamic ml-oselm mixture
C := $(wildcard cpp/*.?pp cpp/*.[ch] src/onlad/mcu/c/*.[ch] src/onlad/mcu/c/*/*.[ch] tests/mcu/*.c src/onlad/hardware/*.cpp tests/mcu/tools/*/*/*/*)
EXTRAS := sklearn,river,pyod,pysad,capymoa,plot,parquet,experiments,fleet,hardware,serve

.DEFAULT_GOAL := help
.PHONY: help demo fleet-demo soak test $(PARTS:%=test-%) test-levels quick dist test-slow bench reproduce variants networks benchmark docs lint format clean
.PHONY: mcu arm core-area core-accuracy core-latency core-detection

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(VENV)/.run  ## see the detector at work, in under a minute
	$(BIN)/onlad demo

fleet-demo: $(VENV)/.dev  ## watch 2,000 pumps on Spark, which needs Java 17
	$(BIN)/python -m onlad.fleet.spark.demo

# Packages are built while the rest is installed. Then parts run side by side, the long ones first:
# many tests wait for a process, and each part loads only what it needs.
# TORCH=torch==... also tests the GPU's kernels, in Triton's interpreter.
test: $(VENV)/.run  ## lint, tests with coverage, examples in the text, docs, packages
	@$(MAKE) --no-print-directory -j 3 -O dist lint $(VENV)/.pynq $(VENV)/.mcu $(if $(TORCH),$(VENV)/.torch)
	@rm -f .coverage .coverage.*
	@$(MAKE) --no-print-directory -j 4 -O mcu $(PARTS:%=test-%) test-levels quick docs
	@$(BIN)/coverage combine -q
	$(BIN)/coverage report --skip-covered

COUNT := --cov=onlad --cov-report= --cov-fail-under=0  # the lines; all parts are judged together
test-fleet: TESTS = tests/fleet docs/howto/spark.md
test-experiments: COUNT =
test-experiments: TESTS = tests/experiments --ignore=$(CHIP_RECORDS)
test-library: TESTS = tests/test_*.py src/onlad README.md docs --ignore=docs/conf.py --ignore=docs/howto/spark.md
$(PARTS:%=test-%): test-%: $(VENV)/.dev
	COVERAGE_FILE=.coverage.$* $(BIN)/python -m pytest -q -m "not slow" $(COUNT) $(or $(TESTS),tests/$*)

# The numbers, at each instruction level below the processor's best: the parts above run at that.
NUMBERS := block compiled compound detector forgetting instance kernel long_life merge mode monitor reference
test-levels: $(VENV)/.dev
	best=$$($(BIN)/python -c "from onlad import kernel; print(kernel.BACKEND)"); \
	for level in x86-64-v2 x86-64-v3; do \
	  if [ $$level \< $$best ]; then \
	    echo "at $$level:"; \
	    ONLAD_LEVEL=$$level $(BIN)/python -m pytest -q -m "not slow" $(NUMBERS:%=tests/test_%.py) \
	      || exit 1; \
	  fi; \
	done

quick: $(VENV)/.dev
	$(BIN)/python -m experiments.quick

dist: $(VENV)/.run
	.ci/check_dist.sh $(BIN)/python

test-slow: $(VENV)/.dev  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

bench: $(VENV)/.dev  ## time the detector beside its peers
	$(BIN)/python -m benchmarks

MINUTES ?= 60
soak: $(VENV)/.dev  ## the service with 1,000 devices for an hour, killed now and then; MINUTES=15
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES) --record benchmarks/results/soak.json
	$(BIN)/python -m benchmarks.survives

reproduce: $(VENV)/.dev  ## run the evaluation, go on where it stopped; QUICK=1 repeats a part of it
	$(BIN)/python -m experiments.$(if $(QUICK),quick,reproduce)

variants: $(VENV)/.dev  ## ways to forget in both testbeds, resumable; needs ONLAD_DATA
	$(BIN)/python -m experiments.tune both --jobs 1 $(foreach m,$(VARIANTS),--method $m)
	$(BIN)/python -m experiments.reproduce auc --family variant --jobs 1
	$(BIN)/python -m experiments.ways

networks: $(VENV)/.dev  ## the networks, made for a GPU, resumable; needs ONLAD_DATA
	$(BIN)/python -m experiments.neural
	$(BIN)/python -m experiments.scaling run nn dnn

benchmark: $(VENV)/.benchmark  ## how well Monitor detects, beside others; goes on where it stopped
	$(BIN)/python -m experiments.benchmark.regimes
	$(BIN)/python -m experiments.benchmark

# LONG=1 also fuzzes for long, and measures every size on every board that has no record yet.
CHIP_RECORDS := tests/experiments/test_mcu_records.py
mcu: $(VENV)/.dev $(VENV)/.mcu  ## the monitor on emulated microcontrollers: equal to Python, and what it costs
	COVERAGE_FILE=.coverage.mcu $(BIN)/python -m pytest -q $(if $(LONG),,-m "not slow") $(COUNT) tests/mcu
	$(BIN)/python -m pytest -q $(if $(LONG),,-m "not slow") $(CHIP_RECORDS)
	$(if $(LONG),$(BIN)/python -m experiments.mcu cost)
	$(if $(LONG),$(BIN)/python -m experiments.mcu variants)

ARM_TESTS ?= tests/test_kernel.py tests/test_instance.py tests/test_judge.py tests/mcu/test_portable.py
arm: $(VENV)/.dev  ## wheels for 64-bit and 32-bit Arm, their tests under qemu-user; downloads from Debian
	.ci/check_arm.sh $(BIN)/python arm64 $(ARM_TESTS)
	.ci/check_arm.sh $(BIN)/python armhf $(ARM_TESTS)

core-area: $(VENV)/.dev  ## synthesise the core at the paper's sizes; hours, resumable
	$(BIN)/python -m experiments.core_area run
	$(BIN)/python -m experiments.core_area table

core-accuracy: $(VENV)/.dev  ## the core's fixed point beside float64; minutes, resumable
	$(BIN)/python -m experiments.core_accuracy run
	$(BIN)/python -m experiments.core_accuracy table

core-latency: $(VENV)/.dev  ## count the core's cycles at the paper's sizes
	$(BIN)/python -m experiments.core_latency run
	$(BIN)/python -m experiments.core_latency table

core-detection: $(VENV)/.dev  ## AUC of the core beside float64; needs ONLAD_DATA
	$(BIN)/python -m experiments.core_detection run
	$(BIN)/python -m experiments.core_detection table

docs: $(VENV)/.dev  ## build the pages into docs/_build/html; a warning is an error
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

lint: $(VENV)/.dev  ## style, types, import layers, C++
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(C)
	$(BIN)/clang-tidy --quiet -p build cpp/*.cpp

format: $(VENV)/.dev  ## rewrite the code in the project's style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(C)

clean:  ## remove all that the other targets made, .venv included
	rm -rf $(VENV) build dist docs/_build docs/generated .coverage* demo.png
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

# What a user has. The build requirements come first, so that the compiled kernel is built in
# .venv itself, without a second, isolated environment. --no-compile: Python compiles what the demo
# imports when it imports it, and that is a small part of what is installed. For the same reason pip
# comes from the pip at hand, if there is one: `venv` would compile an old one.
NEW_PIP := --quiet --disable-pip-version-check install --no-compile "pip>=25.1"  # the first with --group
$(VENV)/.run: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	$(PYTHON) -m pip --python $(BIN)/python $(NEW_PIP) 2>/dev/null || \
	  { $(BIN)/python -m ensurepip && $(BIN)/python -m pip $(NEW_PIP); }
	$(PIP) install --no-compile --group build
	$(PIP) install --no-compile --group run & \
	  $(PIP) install --no-compile --no-build-isolation --no-deps -e . && wait $$!
	cp "$$(ls -t build/*/compile_commands.json | head -n 1)" build/
	touch $@

# What a contributor has, on top of it. The kernel is not compiled again: build/ is kept.
$(VENV)/.dev: $(VENV)/.run $(SOURCES)
	$(PIP) install --no-compile --group dev
	$(PIP) install --no-compile --no-build-isolation -e ".[$(EXTRAS)]"
	touch $@

# TSB-AD's own code for VUS-PR. Without its dependencies, which are gigabytes: two files are used.
$(VENV)/.benchmark: $(VENV)/.dev
	$(PIP) install --no-compile --no-deps --group benchmark
	touch $@

# What Triton's interpreter needs. On an index with no build for processors alone it is gigabytes.
$(VENV)/.torch: $(VENV)/.dev
	$(PIP) install --no-compile $(TORCH) triton
	touch $@

# PYNQ's own classes, for the test of the board's driver: they pin NumPy below 2 and others.
$(VENV)/.pynq: $(VENV)/.run
	$(BIN)/python -m venv --without-pip $(VENV)/pynq
	$(PIP) --python $(VENV)/pynq install --no-compile "pynq==4.0.0"
	touch $@

# What checks the packaging of the C source: PlatformIO, and the parts of ESP-IDF and Zephyr on PyPI.
$(VENV)/.mcu: $(VENV)/.run pyproject.toml
	$(BIN)/python -m venv --without-pip $(VENV)/mcu
	$(PIP) --python $(VENV)/mcu install --no-compile --group mcu
	touch $@
