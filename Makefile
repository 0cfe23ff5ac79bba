# The front door. Every target installs what is missing first, and shows what it does.
#
#   make tour               build the steps for this machine, run every step on real input, show the ladder
#   make test [STEP=01]     build, run a test of every promise (or one step's, its parity and its exercises)
#   make test-all [STEP=01] what make test leaves out, too: whole shape lists in every type, more seeds, parity at the tour's
#                           shapes, the book in a browser
#   make proofs             run those long tests, and make sass, that no record in results/proofs covers; write the records, which spare
#                           CI the run; needs strace and nvcc
#   make exercise STEP=01 N=2   grade what you wrote in steps/01_*/exercises/2_* [JSON=1: print one JSON object with the points]
#   make handout OUT=dir    a copy of the project without solutions/, for a class
#   make single STEP=05 VARIANT=tuned   write that variant as one .cu file, with a main() that checks it, and print the line that builds it
#                           [OUT=path; without it, build/single/05_tuned.cu]
#   make mutate STEP=01     break the step's kernels on purpose and see what notices (docs/mutation.md: ONLY, SAMPLE, UPDATE, TIER)
#   make docs               the book as a site, in build/docs
#   make sim | make gpu     only build that preset (also sim-debug, gpu-debug) [STEP=01: only that step's program]
#   make sass [STEP=01]     what nvcc made of each kernel, whether that is what the step plans, and which of the simulator's counts are
#                           exact; needs nvcc, but no GPU [UPDATE=1: write results/machine_code, from which the book's tables are made]
#   make profile STEP=01    what each kernel did, and what bounds it: by Nsight Compute on a GPU, by the simulator elsewhere
#                           [VARIANT=name] [ARGS="shape flags"] [REPORT=x.ncu-rep]; more: tools/measure/profile_step.py --help
#   make gpu-check OUT=dir  on a machine with a GPU: tests, sanitizers, timings, counters; results in dir
#                           (with STEP=02, only that step's, among the results that dir already holds)

PRESET := $(shell tools/preset)
PYTHON := .venv/bin/python

.PHONY: tour test test-all proofs exercise handout single mutate docs notebooks lint sass profile gpu-check sim sim-debug gpu gpu-debug

tour:
	@tools/build $(PRESET) $(STEPS) && $(PYTHON) tools/measure/tour.py $(PRESET)

# The tests of STEP bear its name as a label.
STEPS := $(notdir $(sort $(wildcard steps/[0-9][0-9]_*)))
CTEST = ctest --preset $(PRESET) --parallel 2 --no-tests=error $(if $(STEP),--label-regex '^$(the_step)$$')
the_step = $(or $(filter $(STEP) $(STEP)_%,$(STEPS)),$(error there is no step $(STEP); there are: $(STEPS)))

test:
	@tools/build $(PRESET) && $(CTEST) --label-exclude '^long$$'

test-all:
	@$(if $(STEP),,tools/bootstrap --browser && )tools/build $(PRESET) && $(CTEST)

proofs:
	@tools/bootstrap --browser && $(PYTHON) tools/measure/proofs.py record && $(PYTHON) tools/measure/proofs.py record --sass

exercise:
	@tools/build sim $(the_step) $(if $(JSON),>&2) && $(PYTHON) tools/learn/grade.py '$(STEP)' '$(N)' $(if $(JSON),--json)

handout:
	@python3 tools/learn/handout.py '$(OUT)'

single:
	@python3 tools/learn/single.py '$(STEP)' '$(VARIANT)' $(if $(OUT),--out '$(OUT)')

mutate:
	@tools/build sim && $(PYTHON) tools/mutate/mutate.py --step '$(STEP)' $(if $(ONLY),--only '$(ONLY)') \
	  $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(if $(UPDATE),--update) $(if $(TIER),--tier '$(TIER)')

docs:
	@tools/bootstrap && $(PYTHON) tools/book build

notebooks:
	@tools/build sim && $(PYTHON) tools/book/notebooks.py

lint:
	@tools/bootstrap && tools/lint

sass:
	@tools/build gpu && tools/build sim && $(PYTHON) tools/machine_code/disassembly.py sass $(if $(STEP),--step '$(STEP)') \
	  $(if $(UPDATE),--update)

profile:
	@tools/build $(PRESET) $(the_step) && $(PYTHON) tools/measure/profile_step.py --step '$(STEP)' $(if $(VARIANT),--variant $(VARIANT)) \
	  $(if $(REPORT),--report $(REPORT)) $(ARGS)

gpu-check:
	@$(if $(OUT),,$(error make gpu-check needs a folder for its results: OUT=dir))tools/build gpu && $(PYTHON) tools/measure/gpu_check.py --out $(OUT) \
	  $(if $(STEP),--step '$(STEP)')

sim sim-debug gpu gpu-debug:
	@tools/build $@ $(if $(STEP),$(the_step))
