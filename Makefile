# Two commands matter: `make demo` and `make test`.  Everything is installed into .venv here, once,
# so nothing below needs a network later.

VENV   := .venv
PY     := $(VENV)/bin/python
STAMPS := $(VENV)/stamps
# The first interpreter that is new enough; `make PYTHON=python3.12 test` selects another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
            $$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null \
            && echo $$p && break; done)

C_FILES  := $(sort $(wildcard kafkalog/_native/*/*.c))
H_FILES  := $(sort $(wildcard kafkalog/_native/*.h kafkalog/_native/*/*.h))
NATIVE   := $(C_FILES) $(H_FILES) kafkalog/_native/build.py setup.py
WARNINGS := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wconversion -Werror
# Left out: right shifts of negative numbers, which gcc and clang define, and a check across
# functions that takes results returned through a pointer in a loop for uninitialised.
CPPCHECK := --quiet --error-exitcode=1 --std=c11 --enable=warning,portability --inline-suppr \
            --suppress=missingIncludeSystem --suppress=shiftTooManyBitsSigned \
            --suppress=shiftNegativeLHS --suppress=ctuuninitvar -D_GNU_SOURCE -UKL_TEST

# Without compiled files every start of Python takes longer, and the tests start it very often.
unexport PYTHONDONTWRITEBYTECODE

# Three processes more than processors (tests/support/sharing.py).  A file's tests stay in one
# process, as they share things that are expensive to start.
PROCESSES := -n auto --dist loadfile --no-loadscope-reorder
# `make test TESTS=tests/unit/log` runs only those; so do test-long, test-busy and explore.
TESTS ?= tests
# What `make check` runs.
CHECKED := tests/house tests/examples $(addprefix tests/unit/,base batch config disk inspect log \
           metadata net plane test_clock.py)

.PHONY: help nightly demo demo-full check test test-long test-busy explore bench lint format docs sanitize fuzz torture suites platforms test-versions test-sparks build wheel release clean distclean print-python

help:
	@echo "make demo           the tour: a year of flights through the log, a minute or two"
	@echo "make demo-full      with a longer stream, whose driver is killed"
	@echo "make check          for every save: lint of Python, the house's rules, the quickest tests"
	@echo "make test           every test, the same each time; STRICT=1 runs none a second time"
	@echo "make test-long      the tests that are too long for that: Spark's cluster, ..."
	@echo "make test-busy      the same next to a busy loop, to find unsteady tests"
	@echo "make explore        search for unforeseen cases, with a drawn seed, a quarter of an hour"
	@echo "make bench          the benchmarks, with their figures"
	@echo "make lint           ruff, mypy, clang-format, compiler warnings, cppcheck"
	@echo "make format         let ruff and clang-format write"
	@echo "make docs           render the documents that are made from code"
	@echo "make sanitize       the tests under ASan and UBSan, those with threads under TSan"
	@echo "make fuzz           fuzzing of all that takes outside bytes, KAFKALOG_FUZZ_MINUTES (10)"
	@echo "make torture        the long forms: fuzzing, threads, crashes, power cuts"
	@echo "make suites         the tests that other clients ship, and exporters, against a broker; an hour"
	@echo "make platforms      the form for other systems, wheels for macOS, aarch64 and musl; up to 40 minutes"
	@echo "make wheel          a wheel for Linux with glibc, in build/wheels"
	@echo "make release        the wheels and the source, checked, with checksums and an SBOM, in build/release"
	@echo "make test-versions  a quick subset on every Python >= 3.10 of this machine"
	@echo "make test-sparks    the tests without a JVM and one session on PySpark 4.0, 4.1 and 4.2"
	@echo "make nightly        all of the above but torture, bench and test-busy, with a table of times; two hours"
	@echo "make clean          remove what was built; distclean: and .venv"

# DEMO="--dir FOLDER --no-spark" adds options.
demo: build
	@.ci/need java
	@$(PY) examples/flights/demo.py $(DEMO)

demo-full: build
	@.ci/need java
	@$(PY) examples/flights/demo.py --full $(DEMO)

check: build
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --quiet --check .
	@$(PY) -m mypy --strict kafkalog spark_connector/pyspark_kafkalog
	@$(VENV)/bin/clang-format --dry-run -Werror $(C_FILES) $(H_FILES)
	@$(PY) -m pytest -q $(PROCESSES) -m "not slow and not long and not java and not spark and not explore" \
	    $(CHECKED)

# A test that fails is run again, alone (tests/support/again.py), except with `make test STRICT=1`.
test: build
	@.ci/need java javac maven clang kcat promtool xfs hosts shells
	@$(PY) -m pytest $(PROCESSES) $(if $(STRICT),,-p tests.support.again) -m "not long" $(TESTS)

# Tests that take most of a minute each, or more.
test-long: build
	@.ci/need java javac maven clang kcat promtool xfs hosts shells chromium
	@$(PY) -m pytest $(PROCESSES) -m long $(TESTS)

# Finds tests whose time limits are too short on a busy machine.
test-busy: build
	@while :; do :; done & busy=$$!; trap 'kill $$busy' EXIT INT TERM; \
	    $(MAKE) --no-print-directory test STRICT=1

explore: build
	@.ci/need java javac maven clang xfs hosts
	@.ci/explore

# Writes RESULT: `python -m benchmarks.report build/bench.json` makes docs/performance.md and its
# pictures from it.  `make bench PARTS="log broker_produce"` runs only those files of
# benchmarks/; the report takes several such results, newest last.
RESULT ?= build/bench.json
PARTS ?= $(patsubst benchmarks/test_%.py,%,$(sort $(wildcard benchmarks/test_*.py)))
bench: build $(STAMPS)/bench
	@.ci/need java javac maven librdkafka
	@mkdir -p build
	@$(PY) -m pytest $(PARTS:%=benchmarks/test_%.py) --benchmark-only --benchmark-columns=median \
	    --benchmark-json=$(RESULT)

lint: build
	@.ci/need cc cppcheck
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy --strict kafkalog spark_connector/pyspark_kafkalog
	@echo "clang-format"; $(VENV)/bin/clang-format --dry-run -Werror $(C_FILES) $(H_FILES)
	@echo "gcc $(WARNINGS), both builds"
	@for build in -UKL_TEST -DKL_TEST; do \
	    printf '%s\0' $(C_FILES) | xargs -0 -n 1 -P "$$(nproc)" \
	        gcc $(WARNINGS) -O2 $$build -I kafkalog/_native -c -o /dev/null || exit 1; \
	done
	cppcheck -j "$$(nproc)" $(CPPCHECK) -I kafkalog/_native kafkalog/_native/*/

format: build
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .
	$(VENV)/bin/clang-format -i $(C_FILES) $(H_FILES)

docs: build
	@$(PY) docs/render.py
	@$(PY) -m pip install --quiet --disable-pip-version-check 'mkdocs>=1.6,<2' 'mkdocstrings[python]' pygments
	@$(PY) -m mkdocs build --strict --quiet && echo "build/site: written"

sanitize: build
	@.ci/need cc
	@.ci/sanitize $(PY) address
	@.ci/sanitize $(PY) thread

# KAFKALOG_FUZZ_MINUTES sets the duration.
fuzz: build
	@.ci/need cc clang
	@$(PY) -m tests.damage.fuzz.long

# The long forms, hours: KAFKALOG_EXPLORE_SECONDS sets the duration of each search.
torture: fuzz
	@.ci/need java javac maven xfs hosts
	@KAFKALOG_EXPLORE_SECONDS=$${KAFKALOG_EXPLORE_SECONDS:-120} KAFKALOG_LONG=1 \
	    .ci/explore
	@KAFKALOG_LONG=1 $(PY) -m pytest tests/kafka/clients/test_kill.py tests/hostile \
	    tests/damage/enumerate tests/damage/full tests/damage/sweep

suites: build
	@.ci/need cc java javac maven rapidjson
	@$(PY) -m tests.kafka.suites

# PLATFORMS="macos-arm64 portable" selects some; --build runs no tests.
platforms: build
	@.ci/need cc emulator
	@$(PY) -m tests.platforms $(PLATFORMS)

# For machines without a compiler.  Without `build`: it needs no package of .venv.
wheel:
	@PYTHON=$(PYTHON) .ci/need cc python
	@.ci/wheels $(or $(PYTHON),python3)

# Uploads nothing.  RELEASE=checks takes the wheels that are in build/wheels.
release:
	@PYTHON=$(PYTHON) .ci/need cc python
	@.ci/release $(or $(PYTHON),python3) $(RELEASE)

test-versions: build
	@.ci/versions $(PY)

# NIGHTLY="fuzz docs" selects some.
nightly: build
	@.ci/nightly $(NIGHTLY)

# SPARKS="4.0 4.3" selects other versions.
test-sparks: build
	@.ci/need java
	@.ci/sparks $(PY) $(SPARKS)

# ---- installation ------------------------------------------------------------------------

build: $(STAMPS)/native

$(STAMPS)/venv:
	@PYTHON=$(PYTHON) .ci/need cc python
	@python=$(PYTHON) && $${python:-python3} -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# Build tools first, so that the package's own build downloads none of them.
$(STAMPS)/packages: pyproject.toml | $(STAMPS)/venv
	@echo "installing into $(VENV) (once)"
	@$(PY) -m pip install --quiet --disable-pip-version-check 'setuptools>=77' wheel 'cffi>=1.16'
	@KAFKALOG_NO_EXTENSION=1 $(PY) -m pip install --quiet --disable-pip-version-check --no-compile \
	    --no-build-isolation --editable '.[test,lint,spark,demo]'
	@touch $@

# The other logs and clients to compare with: only `make bench` needs them.
$(STAMPS)/bench: pyproject.toml $(STAMPS)/packages
	@echo "installing the rivals of the benchmarks (once)"
	@KAFKALOG_NO_EXTENSION=1 $(PY) -m pip install --quiet --disable-pip-version-check --no-compile \
	    --no-build-isolation --editable '.[bench]'
	@touch $@

# The released extension and the one for tests, in place.
$(STAMPS)/native: $(NATIVE) $(STAMPS)/packages
	@echo "building the C core"
	@mkdir -p build
	@KAFKALOG_TEST_EXTENSION=1 $(PY) setup.py --quiet build_ext --inplace \
	    > build/native.log 2>&1 || { cat build/native.log; exit 1; }
	@touch $@

print-python:
	@echo $(PYTHON)

clean:
	rm -rf build dist *.egg-info demo-data demo-data-pipeline .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f kafkalog/_native/*.so kafkalog/_native/_kl*.c $(STAMPS)/native
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
