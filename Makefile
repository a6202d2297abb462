# A thin front: each target is a few commands that can be run by hand.
.DEFAULT_GOAL := help
.PHONY: help setup wheel install deb test-deb docs demo test test-built ctest test-clang test-machines test-kills test-sanitize test-gpu fuzz bench bench-gpu lint clean
jobs := $(shell nproc)
werror := -DKEEL_WERROR=$(if $(CI),ON,OFF)
# One more than there are cores: some tests wait for a timeout.
tests_at_once := $(shell expr $(jobs) + 1)

help:
	@echo 'make setup          install what is missing (with apt)'
	@echo 'make wheel          a package for the PyTorch that python3 imports, in dist/ (PYTHON=... for another Python)'
	@echo 'make install        the same, installed into that Python, virtual environment or not'
	@echo 'make deb            Debian packages for Debian'"'"'s own LibTorch and Python, in dist/'
	@echo 'make test-deb       install them on a copy of this system, use them from Python, CMake and pkg-config, remove them (root)'
	@echo 'make docs           the documentation site, in build/docs; a warning or a broken link is an error'
	@echo 'make demo           build, train six layers for a few minutes, print a table, write a report'
	@echo 'make test           lint, build, all tests, the readers fuzzed for 30 seconds; then the core tests under ASan and UBSan'
	@echo 'make ctest          of that, build and all tests alone'
	@echo 'make test-clang     the core and its tests with clang, warnings as errors'
	@echo 'make test-machines  the numerical tests as on other CPUs: SSE4, AVX2, AVX-512; 1 and 3 threads'
	@echo 'make test-kills     kill training 100 times in two ways, and compare bit by bit (ARGS=--help)'
	@echo 'make test-sanitize  all C++ tests under ASan and UBSan; LibTorch itself is not'
	@echo 'make fuzz           attack each reader for SECONDS=60 (ARGS=name attacks one)'
	@echo 'make test-gpu       all of it on a machine with a GPU: build with CUDA, all tests, compute-sanitizer'
	@echo 'make bench          build, and time keel against its peers for two minutes (ARGS=--full, ARGS=--help)'
	@echo 'make bench-gpu      the same on a GPU, with the targets it has to meet (ARGS=--help)'
	@echo 'make lint           formatting (scripts/lint --fix repairs it), docs, Python, clang-tidy over the core, commit subjects'
	@echo 'make clean          remove the build folder'

setup:
	@scripts/setup

wheel:
	@scripts/wheel

install:
	@scripts/wheel --install

deb:
	@scripts/deb

test-deb:
	@scripts/test-deb

docs: setup
	cmake --preset release
	cmake --build --preset release --target keel_torch
	scripts/docs

demo: setup
	cmake --preset release
	cmake --build --preset release --target keel_cli
	scripts/demo

test: setup
	scripts/lint
	cmake --preset release $(werror)
	cmake --build --preset release
	@# The CUDA code compiles where tests wait for something.
	nice scripts/build-cuda > build/cuda-check.log 2>&1 & cuda=$$!; \
	$(MAKE) --no-print-directory test-built; tests=$$?; \
	if wait $$cuda; then tail -n 1 build/cuda-check.log; else cat build/cuda-check.log; exit 1; fi; exit $$tests

# Of `make test`, what comes after the build.
test-built:
	ctest --preset release --parallel $(tests_at_once)
	cmake --preset sanitize $(werror)
	@# One of the machines has one core.
	cmake --build --preset sanitize > build/sanitize.log 2>&1 & sanitize=$$!; \
	scripts/test-machines --quick; machines=$$?; \
	wait $$sanitize || { cat build/sanitize.log; exit 1; }; exit $$machines
	ctest --preset sanitize --parallel $(jobs)

ctest: setup
	cmake --preset release $(werror)
	cmake --build --preset release
	ctest --preset release --parallel $(tests_at_once)

test-clang:
	cmake --preset clang
	cmake --build --preset clang
	ctest --preset clang --parallel $(jobs)

test-machines: setup
	cmake --preset release
	cmake --build --preset release
	scripts/test-machines $(ARGS)

test-kills: setup
	cmake --preset release
	cmake --build --preset release --target keel_cli
	python3 lab/tests/cli/kills.py build/bin/keel $(ARGS)

test-sanitize: setup
	cmake --preset sanitize-all
	cmake --build --preset sanitize-all
	ctest --preset sanitize-all --parallel $(tests_at_once)

SECONDS := 60
fuzz: setup
	cmake --preset release
	cmake --build --preset release
	scripts/fuzz $(SECONDS) $(ARGS)

test-gpu:
	scripts/test-gpu $(ARGS)

bench: setup
	cmake --preset release
	cmake --build --preset release --target keel_bench
	build/bin/keel_bench $(ARGS)

bench-gpu:
	scripts/bench-gpu $(ARGS)

lint:
	@scripts/lint

clean:
	rm -rf build
