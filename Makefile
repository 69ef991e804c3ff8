# A front for CMake: installs what is missing, builds llama.cpp once, then hearth. `make help` lists the targets.

PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: all run portable demo-model check test thorough real real-all bench bench-full bench-check peers drafts agents asan tsan fuzz crash install deb tarball gpu-check dist format tidy clean help

all: ## build build/bin/hearth, build/bin/hearth-mkmodel, build/lib/libhearth.a and .so
	@scripts/build.sh release

# Two terminals are answered at once, and the second turn, short as it is, shows what was there already.
run: all ## build, then serve the demo model on 127.0.0.1:8080; MODEL=smollm2 or gemma3: a real one, fetched once
ifdef MODEL
	scripts/real.sh serve $(MODEL)
else
	build/bin/hearth serve --set n_seq_max=4 --set cache_min_tokens=0
endif

# Not part of anything else: the model it makes is a committed file. tools/demo-model/README.md
demo-model: all ## train models/demo.gguf anew, one to four hours on two cores, into build/demo-model; an interrupted training is resumed
	@scripts/build.sh release hearth-demo-model hearth-demo-evaluate
	build/bin/hearth-demo-model --folder build/demo-model
	build/bin/hearth-demo-evaluate build/demo-model/demo.gguf

check: ## an answer to a change in a minute: format, layers, clang-tidy, unit tests; BASE=origin/main: to all since then
	@scripts/test.sh check $(BASE)

test: ## build and run every test; ends with `N passed, N failed`
	@scripts/test.sh

test-%: ## build and run the unit tests of a folder: test-engine, test-store, test-exactness, test-demo-model …
	@scripts/test.sh folder $*

thorough: ## the unit and end-to-end tests with all cases of random tests and matrices, of which `make test` plays a part
	@scripts/test.sh thorough

real: all ## fetch three small real models once (415 MB) and test with them; those that cannot be fetched are skipped
	@scripts/real.sh

real-all: all ## the same with the longer versions of the tests, and Open WebUI in a browser (1.5 GB more)
	@HEARTH_REAL=all scripts/real.sh

bench: all ## compare with llama-server, a quarter of an hour: same llama.cpp, same model file
	@scripts/packages.sh test
	@BENCH_PEER=1 bench/run.sh short

bench-full: all ## the same with all workloads and the sizes of the goals: one to two and a half hours
	@scripts/packages.sh test
	@BENCH_PEER=1 bench/run.sh full

bench-check: ## compare counts of a fixed scenario (tokens, decode calls, copies, bytes, instructions) with a baseline
	@scripts/packages.sh test
	@scripts/build.sh release hearth_bench_counts
	@node bench/check.mjs

drafts: all ## compare replies with drafts and without, and llama-server's, on a real model, half an hour
	@scripts/peers.sh drafts

peers: all ## compare with llama-server, Ollama and Kronk on a real model, three quarters of an hour
	@scripts/peers.sh

agents: all ## five coding agents of npm (1.5 GB) against hearth and llama-server: what their prompts cost
	@scripts/agents.sh

asan: ## the unit and end-to-end tests under AddressSanitizer and UBSan
	@scripts/test.sh asan

tsan: ## the unit and end-to-end tests under ThreadSanitizer
	@scripts/test.sh tsan

fuzz: ## every fuzzer for FUZZ_SECONDS (120), and random configurations
	@scripts/test.sh fuzz

crash: ## kill a saving process at each of its system calls, fail each, lose power, damage files (in `make test`, too)
	@scripts/test.sh crash

portable: ## build what runs on any processor of this architecture, and loads backends of GPUs, in build/portable
	@scripts/build.sh portable

deb: portable ## a Debian package of the server, in build/dist
	@scripts/deb.sh

tarball: portable ## the server for any Linux of this architecture, to be unpacked anywhere, in build/dist
	@scripts/tarball.sh

gpu-check: ## test on the machine's GPU; where it has none, on one that the processor plays (Mesa's lavapipe)
	@scripts/gpu-check.sh

dist: all portable ## a release: sources, Debian package, tarball, Homebrew formula and their checksums, in build/dist
	@scripts/dist.sh

install: all ## install under $(DESTDIR)$(PREFIX): programs, library, header, man pages, systemd unit
	@DESTDIR=$(DESTDIR) cmake --install build --prefix $(PREFIX)

format: ## bring the sources into shape with clang-format
	@scripts/packages.sh test
	@scripts/sources.sh | xargs clang-format -i

tidy: ## look for faults with clang-tidy
	@scripts/packages.sh test
	@scripts/build.sh checked hearth
	@scripts/tidy.sh

clean: ## remove build/; llama.cpp stays in its cache
	rm -rf build

help: ## print this list
	@sed -nE 's/^([a-z%-]+):[^#]*## (.*)/  make \1\t\2/p' Makefile | expand -t 20
	@echo
	@echo 'Variables: PREFIX (/usr/local), DESTDIR, HEARTH_DEPS (cache folder of llama.cpp, ~/.cache/hearth/deps),'
	@echo '  LLAMA_CPP_DIR (own source tree of the pinned llama.cpp), LLAMA_FLAGS (-DGGML_CUDA=ON), FUZZ_SECONDS (120),'
	@echo '  BASE (of make check: HEAD), CHECK_SECONDS (of its unit tests: 30), MODEL (of make run), PIP_INDEX_URL (where real models come from)'
