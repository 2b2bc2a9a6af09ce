# The front door. Each target installs what it misses, configures a CMake preset and builds it.
.PHONY: help demo build test kill-test check sanitize sanitize-threads test-neon install-test package python-test
.PHONY: python-test-all python-sanitize fuzz fuzz-long clang tidy format clean fuzzers clang-dependencies
.PHONY: configure dependencies neon-dependencies python-venv browser

help:          ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 24

demo: configure  ## build the command, see the chapter's steps on six words, and as a page in build/six-words.html
	@cmake --build --preset default --target attn_command
	@build/default/attn demo
	@build/default/attn report multihead --d-out 4 --output build/six-words.html

build: configure  ## the library, the command, the examples and the tests, optimised, in build/default
	@cmake --build --preset default

test: build browser  ## every test; a test that this machine can run must not be skipped
	ctest --preset default -j2 --output-junit $(CURDIR)/build/default/tests.xml
	@scripts/check-skips build/default/tests.xml

check: configure  ## every number of the five notebooks, digit by digit
	@cmake --build --preset default --target attn_command
	@build/default/attn check

sanitize: dependencies browser  ## every test under the address and undefined-behaviour sanitizers, in build/asan
	cmake --preset asan
	cmake --build --preset asan
	ctest --preset asan -j2

sanitize-threads: dependencies  ## what threads share, under the thread sanitizer, in build/tsan
	cmake --preset tsan
	cmake --build --preset tsan --target test_attention test_kernels test_modules
	ctest --preset tsan -j2 -R 'ThreadsAndBatch|NorThreads|ThreadsDoNot|SameBits|ScoreFunction\.|Blocks\.Cost'

MOMENTS = 1000
kill-test: build  ## verbs killed at MOMENTS=… random moments, full disks, two writers
	ATTN_KILL_MOMENTS=$(MOMENTS) build/default/tests/test_kill

test-neon: neon-dependencies  ## the kernels for 64-bit Arm, under qemu-user, in build/neon
	cmake --preset neon
	cmake --build --preset neon --target test_attention test_kernels
	OMP_WAIT_POLICY=passive ctest --preset neon -j2 \
	  -R '/neon|FewRows|Fused|KVCacheAttention|OwnScores.*/float32|ScoreFunction\.|Blocks|Memory'

install-test: build  ## install to a temporary folder and use it by find_package and pkg-config
	tests/install/run.sh build/default

package: build  ## a Debian package of the library and the command, in build/default
	@scripts/install-dependencies dpkg-dev
	cd build/default && cpack --config CPackConfig.cmake

python-test: python-venv  ## the Python package in build/python-venv, and its tests (PyTorch's where it can be imported)
	build/python-venv/bin/pip install --quiet '.[test]'
	build/python-venv/bin/python -m pytest tests/python

python-test-all: python-venv  ## the same with PyTorch, transformers, JAX and numba (5 GB): no test is skipped
	build/python-venv/bin/pip install --quiet '.[test-all]'
	build/python-venv/bin/python -m pytest tests/python --no-skips

python-sanitize: python-venv  ## the Python package under the address sanitizer, in build/python-asan
	build/python-venv/bin/pip install --quiet 'nanobind>=3.1,<4' numpy pytest hypothesis ml_dtypes
	scripts/python-sanitize build/python-venv/bin/python

fuzz: fuzzers  ## every fuzzer for 20 s from its committed corpus, under the sanitizers, in build/fuzz
	scripts/fuzz 20

HOURS = 1
fuzz-long: fuzzers  ## all fuzzers in HOURS=… hours; scripts/fuzz count sums up what ran
	scripts/fuzz long $(HOURS)

clang: clang-dependencies  ## the whole tree with clang, warnings are errors, in build/clang
	cmake --preset clang
	cmake --build --preset clang

tidy: dependencies  ## clang-tidy over the whole tree
	cmake --preset tidy
	cmake --build --preset tidy

format:        ## clang-format every source file
	git ls-files '*.cpp' '*.hpp' | xargs clang-format -i

clean:         ## remove build/
	rm -rf build

configure: dependencies
	@cmake --preset default >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }

python-venv:
	@scripts/install-dependencies python
	@test -x build/python-venv/bin/python || python3 -m venv build/python-venv

neon-dependencies:
	@mkdir -p build
	@scripts/install-dependencies g++-aarch64-linux-gnu qemu-user

dependencies:
	@mkdir -p build
	@scripts/install-dependencies

clang-dependencies:
	@mkdir -p build
	@scripts/install-dependencies clang libomp-dev

fuzzers:
	@mkdir -p build
	@scripts/install-dependencies clang libomp-dev libclang-rt-dev
	cmake --preset fuzz
	cmake --build --preset fuzz

browser:       # the report's tests open it in one
	@scripts/install-dependencies chromium python3
