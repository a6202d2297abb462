# A thin front: each target is a few commands that can be run by hand.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-gpu bench lint clean
jobs := $(shell nproc)

help:
	@echo 'make setup     install what is missing (with apt)'
	@echo 'make demo      build, and show the gradients of all rules at a degenerate matrix'
	@echo 'make test      lint, build, all tests; then the core tests under ASan and UBSan'
	@echo 'make test-gpu  build the CUDA twins and run their tests, on a machine with a GPU'
	@echo 'make bench     build, and time keel against its peers (ARGS=--help)'
	@echo 'make lint      check the formatting (scripts/lint --fix repairs it)'
	@echo 'make clean     remove the build folder'

setup:
	@scripts/setup

demo: setup
	cmake --preset release
	cmake --build --preset release --target keel_demo
	build/bin/keel_demo

test: setup
	scripts/lint
	cmake --preset release
	cmake --build --preset release
	ctest --preset release --parallel $(jobs)
	cmake --preset sanitize
	cmake --build --preset sanitize
	ctest --preset sanitize --parallel $(jobs)

test-gpu:
	scripts/test-gpu

bench: setup
	cmake --preset release
	cmake --build --preset release --target keel_bench
	build/bin/keel_bench $(ARGS)

lint:
	@scripts/lint

clean:
	rm -rf build
