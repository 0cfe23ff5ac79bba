"""`make profile`: the table from the simulator, what bounds a kernel, the comparison, and what is said where something is missing.

There is no GPU here: nvidia-smi and ncu are scripts on PATH, and ncu prints what was once measured.
"""

import csv
import json
import os
import re
import shutil
import sys

import pytest
from conftest import BIN, ROOT

from tools.measure import parity, profile_step, shapes
from tools.measure.profiling import banks, bounds, digest, ncu, plots
from tools.measure.profiling.launch import Launch, from_report
from tools.measure.profiling.machine import machine

STEP = "01_naive_mha"
SMALLEST = profile_step.FIXED[STEP]["smallest"]
H200 = machine(ROOT, "h200")
CSV = ROOT / "results" / "h200" / f"ncu_{STEP}.csv"
OPTIONS = ["--step", "01", "--sim-build", str(BIN.parent)]


@pytest.fixture
def profile(capsys):
    """Runs the tool; returns its exit status and what it said."""

    def call(*arguments):
        status = profile_step.main([*OPTIONS, *map(str, arguments)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


def simulated(*arguments):
    return ["--source", "sim", "--build", BIN.parent, *arguments]


# ---- what bounds a kernel ----


def launch(milliseconds=None, cost=None, **counts):
    """A launch of constructed numbers, under short names."""
    names = {
        "dram": "dram__bytes_read.sum",
        "l2": "lts__t_sectors_op_read.sum",
        "requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
        "sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
        "wavefronts": "memory_l1_wavefronts_shared",
        "ideal": "memory_l1_wavefronts_shared_ideal",
        "instructions": "smsp__inst_executed.sum",
        "tensor": "sm__inst_executed_pipe_tensor_op_hmma.sum",
        "ffma": "sass__inst_executed_per_opcode.FFMA",
        "blocks": "launch__grid_size",
        "warps": bounds.ACTIVE_WARPS,
        "of_ncu": "l1tex__throughput.avg.pct_of_peak_sustained_active",
        "local": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    }
    values = {names.get(name, ncu.STALL.format(name)): value for name, value in counts.items()}
    if milliseconds is not None:
        values["gpu__time_duration.sum"] = milliseconds * 1e6
    return Launch("kernel", "variant", values, cost=cost)


CYCLES = 132 * 1.98e6  # a millisecond's, of all multiprocessors


@pytest.mark.parametrize(
    ("counts", "unit", "text"),
    [
        ({"dram": 3.4e9}, "DRAM bandwidth", "DRAM bandwidth (80 % of the time)"),
        ({"l2": 0.7 * 1.01e10 / 32}, "L2 bandwidth", "L2 bandwidth (70 % of the time)"),
        ({"instructions": 0.9 * 4 * CYCLES}, "issue slots", "issue slots (90 % of the time)"),
        ({"ffma": 0.8 * 51e9 / 64}, "fp32 pipe", "fp32 pipe (80 % of the time)"),
        ({"tensor": 0.75 * 645e9 / 4096}, "tensor pipe", "tensor pipe (75 % of the time)"),
        ({"requests": 0.9 * CYCLES, "sectors": 3.6 * CYCLES}, bounds.L1, "L1 requests: one pass each"),
        ({"requests": 0.03 * CYCLES, "sectors": 0.96 * CYCLES}, bounds.L1, "32.0 per request where 4 would do (24 to 96 % of the time)"),
        ({"wavefronts": 0.8 * CYCLES, "ideal": 0.1 * CYCLES}, bounds.L1, "shared-memory banks: 8.0 wavefronts for each ideal one (80 %"),
        ({"wavefronts": 0.8 * CYCLES, "ideal": 0.7 * CYCLES}, bounds.L1, "shared-memory bandwidth"),
        ({"requests": 1, "sectors": 32, "of_ncu": 88}, bounds.L1, "where 4 would do (88 % of the time)"),
        ({"dram": 3.4e9, "instructions": 3.2 * CYCLES}, "DRAM bandwidth", "; also issue slots 80 %"),
        # certainly busy comes before perhaps busier
        ({"dram": 2.8e9, "requests": 0.03 * CYCLES, "sectors": 0.96 * CYCLES}, "DRAM bandwidth", "also load/store pipe 24 to 96 %"),
        ({"dram": 3.4e9, "local": 1e6}, "DRAM bandwidth", "32 MB of local memory"),
    ],
)
def test_the_unit_that_is_busiest_bounds_the_kernel(counts, unit, text):
    verdict = bounds.verdict(launch(1, **counts), H200)
    assert verdict.unit == unit
    assert text in verdict.text


def test_a_kernel_that_keeps_nothing_busy_is_bound_by_latency():
    verdict = bounds.verdict(launch(1, dram=2.1e9, warps=3.1, blocks=24, long_scoreboard=6, wait=3, selected=1), H200)
    assert verdict.unit == "latency"
    assert verdict.text == (
        "latency: 3 % of warps active, no unit busy (most: DRAM bandwidth 49 %)"
        "; warps wait for long_scoreboard, 60 % of their time; 24 blocks for 132 multiprocessors"
    )
    assert bounds.verdict(launch(1, dram=1), H200).text == "latency: no unit busy (most: DRAM bandwidth < 1 %)"


def test_without_a_time_the_longest_need_is_named_and_latency_never():
    cost = {"flops": 51e6, "bytes_read": 0, "bytes_written": 0}  # a microsecond
    counts = {"dram": 425, "requests": 0.001 * CYCLES, "sectors": 0.032 * CYCLES}
    verdict = bounds.verdict(launch(cost=cost, **counts), H200)
    assert verdict.text == "by the counts alone: L1 sectors: 32.0 per request where 4 would do (8.0 to 32.0 × the floor)"
    assert bounds.verdict(launch(cost=cost, dram=425), H200).text == "by the counts alone: fp32 pipe"
    assert bounds.verdict(launch(), H200).unit == "nothing"


def test_ideal_sectors_follow_the_width_of_the_accesses():
    wide = launch(requests=10, sectors=160)
    assert bounds.is_scattered(wide)  # 4 bytes a lane, for want of better knowledge
    wide.lines = [{"space": "global", "bytes": 16, "requests": 10}]
    assert wide.ideal_sectors == 16 and not bounds.is_scattered(wide)
    wide.lines, wide.values["memory_l2_theoretical_sectors_global_ideal"] = [], 160
    assert wide.ideal_sectors == 16


def test_the_three_longest_waits_and_the_limiter_of_occupancy():
    waits = launch(wait=2, barrier=5, selected=1, long_scoreboard=11, sleeping=1)
    assert waits.stalls()[:3] == [("long_scoreboard", 0.55), ("barrier", 0.25), ("wait", 0.1)]
    limits = {"registers": 4, "shared_mem": 2, "warps": 16, "blocks": 32}
    waits.values |= {f"launch__occupancy_limit_{what}": blocks for what, blocks in limits.items()}
    assert waits.occupancy_limiter() == "shared_mem: 2 blocks"
    assert launch().occupancy_limiter() is None


# ---- from the simulator ----


def test_the_simulators_table(profile, tmp_path):
    status, out, err = profile(*simulated("--json", tmp_path / "a.json", "--csv", tmp_path / "a.csv", "--plot", tmp_path / "a.png", *SMALLEST))
    assert (status, err) == (0, "")
    assert "---- row_per_thread ----" in out and "---- scores_bshs ----" in out
    lines = {line.split("  ")[0]: line.split() for line in out.partition("---- element_")[0].splitlines() if line}
    assert lines["sectors a load"][-3:] == ["16.5", "32.0", "16.5"]
    assert lines["store requests"][-3:] == ["128", "130", "64"]
    assert "DRAM read" in lines and ">=16.4" in lines["DRAM read"]
    assert "time" not in lines and "L2 hits" not in lines  # what it cannot know
    assert "scores_row_per_thread   by the counts alone: L1 sectors: 16.7 per request where neighbouring lanes need 4" in out
    assert "1 block for 132 multiprocessors" in out
    content = json.loads((tmp_path / "a.json").read_text())
    assert len(content["launches"]) == 18
    assert content["launches"][0]["rows"]["load requests"] == 8192
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["load requests"]) for row in rows] == [entry["rows"]["load requests"] for entry in content["launches"]]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        (simulated("--variant", "block_softmax"), f"{STEP}, shape smallest: {' '.join(SMALLEST)} (the simulator"),  # a name alone says nothing
        (simulated("--variant", "block_softmax", "--shape", "smallest", "--causal"), f"{STEP}, shape smallest: {' '.join(SMALLEST)} --causal (the simulator"),
        (simulated("--variant", "block_softmax", *SMALLEST), f"{STEP}, {' '.join(SMALLEST)} (the simulator"),
        (["--source", "results", "--shape", "4k"], f"{STEP}, shape 4k: {' '.join(profile_step.shapes_of(STEP)['4k'])} (results/h200)"),
        (["--compare", "--shape", "smallest"], f"{STEP}, shape smallest: {' '.join(SMALLEST)}: the simulator, and results/h200"),
    ],
)
def test_a_profile_says_the_shape_that_it_is_of(profile, arguments, title):
    status, out, _ = profile(*arguments)
    assert status == 0 and out.startswith(title)


def test_one_variant(profile):
    status, out, _ = profile(*simulated("--variant", "block_softmax", "--shape", "smallest"))
    assert status == 0
    assert out.count("----\n") == 1 and "transpose_k" in out


def test_estimates_are_marked():
    counted = {
        "kernel": "n::k<4>(int)", "exact": {"launch__grid_size": 8}, "at_least": {"dram__bytes_read.sum": 64}, "lines": [],
        "estimate": {"l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": {"value": 5, "reason": "unrolled"}},
    }  # fmt: skip
    result = {"variant": "v", "problem": {"dtype": "fp16"}, "kernels": [], "counters": [counted]}
    text = digest.text(from_report({"results": [result]}), H200)
    assert "load requests      ~5" in text and ">=64 B" in text


# ---- the banks of shared memory ----


def traced(step, variant):
    return profile_step.simulate(BIN.parent, step, variant, profile_step.FIXED[step]["smallest"], traced=True)


@pytest.mark.parametrize(("variant", "most"), [("tensor_cores", 8), ("padding", 1), ("swizzle", 1)])
def test_only_ldmatrix_of_plain_rows_wants_eight_words_of_a_bank(variant, most):
    ((_, accesses),) = banks.panels(traced("02_tiled_gemm", variant))
    found = [(access.op, access.member, set(access.words), access.wavefronts, access.ideal) for access in accesses]
    stores = [("store 16 B", member, {1}, 4, 4) for member in "ab"]
    assert found == stores + [("ldmatrix.x4 16 B", member, {most}, 4 * most, 4) for member in "ab"]


def test_each_group_of_lanes_needs_the_wavefronts_of_its_fullest_bank():
    events = [event for step in ("01_naive_mha", "02_tiled_gemm") for launch in traced(step, "all") for event in launch.shared]
    compared = set()
    for event in events:
        if (event["op"], event["bytes"]) != ("ld.shared", 16):  # two groups of these can go together
            fullest = [max(words.values(), default=0) for words in banks.groups(event)]
            assert sum(fullest) == event["shared"]["wavefronts"]
            compared.add((event["op"], event["shared"]["wavefronts"]))
    assert compared > {("ld.shared", 1), ("st.shared", 2), ("ldmatrix.x4", 4), ("ldmatrix.x4", 32), ("cp.async.cg", 4)}


@pytest.mark.parametrize(
    ("size", "offsets", "wanted"),
    [
        (4, [128 * lane for lane in range(32)], [{0: 32}]),
        (4, [None] * 31 + [132], [{1: 1}]),
        (2, [2 * (lane % 4) for lane in range(32)], [{0: 1, 1: 1}]),
        (8, [8 * (lane % 16) for lane in range(32)], 2 * [{bank: 1 for bank in range(32)}]),
        (8, [256 * (lane // 16) for lane in range(32)], 2 * [{0: 1, 1: 1}]),
        (16, [2] + [None] * 31, [{bank: 1 for bank in range(5)}, {}, {}, {}]),
    ],
)
def test_words_are_counted_by_bank_and_group(size, offsets, wanted):
    assert list(banks.groups({"bytes": size, "shared": {"offsets": offsets}})) == wanted


def test_a_kernel_of_several_variants_is_drawn_once_and_one_without_shared_memory_not():
    launches = traced(STEP, "all")
    (((kernel, _), variants),) = banks.panels(launches).items()
    assert (kernel, variants) == ("softmax_block_per_row", ["block_softmax", "scores_bshs"])
    assert len(plots.draw_lines(launches, "").subfigs) == 2
    assert len(plots.draw_lines(launches[:3], "").subfigs) == 1


# ---- from committed measurements ----


def test_committed_measurements_are_a_source(profile, tmp_path):
    status, out, _ = profile("--source", "results", "--shape", "4k", "--variant", "block_softmax", "--plot", tmp_path / "a.png")
    assert status == 0
    assert re.search(r"DRAM bandwidth \(8\d % of the time\)", out) and "floor / time" in out
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_roofline_has_every_variant():
    groups = digest.grouped(digest.committed(ROOT, "h200", STEP)["4k"])
    path = plots.points(groups)
    assert [variant for variant, _, _ in path] == list(groups)
    for _, intensity, flops in path:
        assert 0 < flops <= min(51e12, intensity * 4.25e12)


def test_the_comparison_agrees_with_parity(profile):
    status, out, _ = profile("--compare", "--shape", "smallest")
    pairs = zip(parity.simulated(STEP, SMALLEST, BIN.parent), ncu.measured(CSV)["smallest"])
    found = [exact for ours, row in pairs for _, _, _, exact in parity.compare(ours, row)]
    assert status == 0
    assert f"{sum(found)} exact numbers compared, 0 different; {found.count(False)} estimates" in out


def test_a_difference_is_shown():
    rows = ncu.measured(CSV)["smallest"][:1]
    name = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
    ours = [Launch("scores_row_per_thread", "", {name: 8191})]
    assert profile_step.compare(ours, rows)["different"] == 1
    ours[0].marks[name] = "~"
    assert profile_step.compare(ours, rows)["estimates_different"] == 1


def test_the_digests_are_up_to_date(profile):
    assert profile("--check-digest") == (0, "", ""), "run tools/measure/profile_step.py --digest"


def test_a_digest_says_where_profile_and_benchmark_are_of_other_variants(tmp_path):
    shutil.copytree(ROOT / "results" / "h200", tmp_path / "results" / "h200")
    shutil.copytree(ROOT / "docs" / "machine", tmp_path / "docs" / "machine")
    path = tmp_path / "results" / "h200" / "bench.json"
    reports = json.loads(path.read_text())
    for report in reports:
        if (report["step"], report["shape"]) == (STEP, "4k"):
            del report["results"][0]
    path.write_text(json.dumps(reports))
    text = digest.digest(tmp_path, "h200", STEP)
    sections = dict(re.findall(r"==== shape (\S+) ====\n\n(.*?)(?=\n==== shape|\Z)", text, re.DOTALL))
    assert sections["4k"].startswith(f"Profile and benchmark are of other variants: measure again (make gpu-check STEP={STEP[:2]})")
    assert [name for name, section in sections.items() if "other variants" in section] == ["4k"]


def test_a_stale_digest_is_noticed_and_renewed(profile, tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "h200").symlink_to(ROOT / "results" / "h200")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.setattr(profile_step, "ROOT", tmp_path)
    assert profile("--check-digest")[0] == 1
    assert profile("--digest")[0] == 0
    assert profile("--check-digest")[0] == 0
    assert (tmp_path / "results" / "digests" / f"{STEP}.txt").read_text() == digest.digest(ROOT, "h200", STEP)


# ---- Nsight Compute, or a script in its place ----


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A PATH with an nvidia-smi that knows one GPU, and what else a test puts there."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")

    def add(name, text):
        path = folder / name
        path.write_text(text)
        path.chmod(0o755)

    add("nvidia-smi", "#!/bin/sh\necho NVIDIA H200\n")
    return add


# Runs the program, as ncu does, and prints the raw page that was measured with stall reasons added.
FAKE_NCU = f"""#!{sys.executable}
import csv, subprocess, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tools.measure.profiling import ncu
if "--export" in sys.argv:
    Path(sys.argv[sys.argv.index("--export") + 1]).write_text("report")
    sys.exit()
metrics, program = sys.argv[sys.argv.index("--metrics") + 1].split(","), sys.argv[sys.argv.index("--metrics") + 2:]
if REFUSED in metrics:
    sys.exit("==ERROR== no metric " + REFUSED.split(".")[0])
done = subprocess.run(program)
if done.returncode:
    print("==ERROR== The application returned an error code (%d)." % done.returncode)
    sys.exit(1)
rows = [row | {{ncu.STALL.format("barrier"): "1000", ncu.STALL.format("gmma"): "n/a"}} for row in ncu.measured(Path({str(CSV)!r}))["smallest"]]
print("==PROF== Connected")
out = csv.DictWriter(sys.stdout, rows[0], quoting=csv.QUOTE_ALL)
out.writeheader()
out.writerow({{name: "" for name in rows[0]}})
out.writerows(rows)
"""


def measured(*arguments):
    return ["--source", "gpu", "--build", BIN.parent, *arguments]


def test_a_run_under_ncu(profile, tools, tmp_path):
    tools("ncu", FAKE_NCU.replace("REFUSED", "'none'"))
    status, out, err = profile(*measured("--shape", "smallest", "--report", tmp_path / "x.ncu-rep"))
    assert (status, err) == (0, "")
    assert re.search(r"barrier 9\d %", out) and "latency: 3 % of warps active" in out
    assert (tmp_path / "x.ncu-rep").read_text() == "report"


def test_simulator_against_a_fresh_run(profile, tools):
    tools("ncu", FAKE_NCU.replace("REFUSED", "'none'"))
    status, out, _ = profile(*measured("--shape", "smallest", "--compare"))
    assert status == 0
    assert "exact numbers compared, 0 different" in out


def test_a_metric_that_ncu_refuses_is_left_out(profile, tools):
    tools("ncu", FAKE_NCU.replace("REFUSED", repr(ncu.STALL.format("gmma"))))
    assert profile(*measured("--shape", "smallest"))[0] == 0


@pytest.mark.parametrize(
    ("script", "arguments", "says"),
    [
        (None, measured(), "no ncu on PATH"),
        ("#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM - The user may not'\nexit 1\n", measured(), "NVreg_RestrictProfilingToAdminUsers=0"),
        ("#!/bin/sh\necho '==ERROR== LibraryNotLoaded'\nexit 1\n", measured(), "LibraryNotLoaded"),
        (FAKE_NCU.replace("REFUSED", "'none'"), measured("--variant", "nope"), "'nope' is unknown"),
        (FAKE_NCU.replace("REFUSED", "'none'"), measured("--variant", "block_softmax"), "18 launches, the variants have 4: measure again"),
    ],
)
def test_ncu_that_cannot_measure_is_explained(profile, tools, script, arguments, says):
    if script:
        tools("ncu", script)
    status, _, err = profile(*arguments, "--shape", "smallest")
    assert status == 2
    assert err.startswith("profile: ") and says in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--step", "99"], "there is no step 99: STEP is one of"),
        (["--step", ""], "there is no step (none given)"),
        (["--source", "sim", "--build", "build/other"], "build/other/bin/01_naive_mha is not built: run make other"),
        (simulated("--variant", "nope"), "'nope' is unknown"),
        (simulated("--shape", "nope"), "has no shape nope; it has: smallest"),
        (simulated("--heads", "none"), "--heads"),
        (["--source", "results", "--heads", "4"], "give --shape"),
        (["--source", "results", "--shape", "smallest"], "has no benchmarked shape smallest; it has: tour"),
        (["--source", "results", "--device", "h200", "--variant", "nope", "--shape", "4k"], "there is no variant nope"),
        (["--compare", "--variant", "block_softmax"], "--compare takes the committed profile"),
        (["--compare", "--shape", "4k"], "compared at its fixed shapes"),
    ],
)
def test_what_is_missing_is_said_with_its_remedy(profile, arguments, says):
    status, _, err = profile(*arguments)
    assert status == 2
    assert err.startswith("profile: ") and says in err


def test_without_a_gpu_its_source_is_refused(profile, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "take --source sim" in profile("--source", "gpu")[2]
    assert "needs a GPU" in profile("--report", tmp_path / "x.ncu-rep")[2]


# ---- the shared parser ----


def test_the_raw_page_keeps_what_was_asked_for():
    output = (
        '==PROF== Connected\n"ID","Kernel Name","Block Size","Grid Size","device__x","a.sum","sass__inst_executed_per_opcode"\n'
        '"","","","","","inst",""\n"0","n::k(int)","(32, 1, 1)","(2, 3, 1)","7","1,024 (12; 13)","5 (BAR: 2; LDG: 3)"\n'
        '"1","run::fill_words(int)","(1, 1, 1)","(1, 1, 1)","7","1","1"\n'
    )
    (row,) = ncu.launches(ncu.raw_page(output, ["a.sum", ncu.OPCODES]))
    assert "device__x" not in row and row["a.sum"] == "1,024"
    values = ncu.values(row)
    assert values["a.sum"] == 1024 and values["launch__grid_size"] == 6
    assert values[f"{ncu.OPCODES}.BAR"] == 2 and values[f"{ncu.OPCODES}.SHFL"] == 0
    assert ncu.values({"a.sum": "n/a", "b.pct": "12.5"}) == {"b.pct": 12.5}


def test_kernels_that_make_inputs_are_left_out():
    names = ["void flash_v2::flash_tuned<__half, flash_v2::Tile<64>>(int)", "void backward::prepare_rows<__half>(flash_v2::Shape)", "fill_words(int)"]
    output = '"ID","Kernel Name","a.sum"\n"","","inst"\n' + "".join(f'"{i}","{name}","1"\n' for i, name in enumerate(names))
    kept = lambda forward: [row["ID"] for row in ncu.launches(ncu.raw_page(output, ["a.sum"], forward))]
    assert (kept(None), kept("flash_v2")) == (["0", "1"], ["1"])


def test_where_one_step_has_both_passes_the_forward_pass_ends_with_a_kernel():
    names = ["void s::add_up<1>(int)", "void s::merge_parts<2>(int)", "fill_words(int)", "void s::add_up<1>(int)", "void s::merge_parts_of_columns(int)"]
    output = '"ID","Kernel Name","a.sum"\n"","","inst"\n' + "".join(f'"{i}","{name}","1"\n' for i, name in enumerate(names))
    kept = lambda **inputs: [row["ID"] for row in ncu.launches(ncu.raw_page(output, ["a.sum"], **inputs))]
    assert (kept(), kept(forward_ends="merge_parts"), kept(forward_ends="other")) == (["0", "1", "3", "4"], ["3", "4"], ["0", "1", "3", "4"])
    assert shapes.making_inputs("07_block_sparse", ["--backward"])["forward_ends"] == "merge_parts"
    assert shapes.making_inputs("07_block_sparse", [])["forward_ends"] is None


def test_a_step_that_takes_its_inputs_from_another_ones_kernels_says_so():
    linked = {}
    for file in ROOT.glob("steps/*/step.cmake"):
        linked |= {step: other.partition("_")[2] for step, other in re.findall(r"^link_step\((\w+) (\w+)\)", file.read_text(), re.MULTILINE)}
    assert shapes.FORWARD == linked


@pytest.mark.parametrize(
    ("kernel", "name"),
    [("naive_mha::linear(int, int)", "linear"), ("void step::gemm<64>(float *)", "gemm"), ("unnamed>::k(const float *)", "k"), ("k", "k")],
)
def test_kernels_have_short_names(kernel, name):
    assert ncu.base_name(kernel) == name
