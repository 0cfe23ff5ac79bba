"""The book's tools catch what they promise to catch, and the committed book passes them."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]

from tools.book import blocks, calls, pages, pictures, prose, quotes, tables
from tools.measure import ceilings
from tools.measure.committed import read_json
from tools.measure.profiling.machine import quantity
from tools.measure.shapes import claims

KERNEL = """\
// A file.
namespace n {

constexpr int threads = 128;  // of a block

struct Smem {
  float partial[threads];
};

// Adds.
template <class T>
__device__ T add(T a, T b) {
  // [doc: body]
  const T sum = a + b;
  // [doc: last]
  return sum;
  // [/doc: last]
  // [/doc: body]
}

float f(int);
float g(float x) { return x; }
float g(double x) { return x; }

}  // namespace n
"""


@pytest.fixture
def repository(tmp_path):
    """A small repository with one source and nothing wrong."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "a.cuh").write_text(KERNEL)
    return tmp_path


def write(repository, text, name="docs/page.md"):
    (repository / name).write_text(text)
    return repository / name


# ---- quoted code ----


def test_a_marked_region_is_quoted_without_markers_and_indentation(repository):
    quote = quotes.resolve(repository, "steps/a.cuh", "body")
    assert quote.text == "const T sum = a + b;\nreturn sum;"
    assert quote.language == "cuda"


def test_a_definition_is_quoted_with_its_comment_and_its_template_line(repository):
    quote = quotes.resolve(repository, "steps/a.cuh", "add")
    assert quote.text.startswith("// Adds.\ntemplate <class T>\n")
    assert quote.text.endswith("  return sum;\n}")
    assert "doc:" not in quote.text
    assert (quote.first, quote.last) == (10, 19)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("threads", "constexpr int threads = 128;  // of a block"),
        ("Smem", "struct Smem {\n  float partial[threads];\n};"),
    ],
)
def test_constants_and_types_are_definitions_too(repository, name, text):
    assert quotes.resolve(repository, "steps/a.cuh", name).text == text


def test_a_file_is_quoted_whole_without_a_name(repository):
    assert quotes.resolve(repository, "steps/a.cuh", None).text.startswith("// A file.\nnamespace n {")


@pytest.mark.parametrize(
    ("path", "name", "reason"),
    [
        ("steps/b.cuh", "add", "does not exist"),
        ("steps/a.cuh", "subtract", "has no region"),
        ("steps/a.cuh", "f", "has no region"),  # only declared
        ("steps/a.cuh", "g", "is defined at lines 22 and 23"),
    ],
)
def test_what_cannot_be_quoted_is_an_error_that_says_why(repository, path, name, reason):
    with pytest.raises(quotes.QuoteError, match=reason):
        quotes.resolve(repository, path, name)


@pytest.mark.parametrize(
    "markers", ["// [doc: x]\nint a;", "// [/doc: x]\nint a;", "// [doc: x]\na;\n// [doc: x]\nb;\n// [/doc: x]"]
)
def test_markers_come_as_one_pair(repository, markers):
    write(repository, markers, "steps/a.cuh")
    with pytest.raises(quotes.QuoteError, match="no end|one pair"):
        quotes.resolve(repository, "steps/a.cuh", "x")


def test_update_quotes_and_a_second_update_changes_nothing(repository):
    page = write(repository, "Text.\n\n<!-- code: steps/a.cuh#body -->\n\nMore.\n")
    assert blocks.update_blocks(repository) == (["docs/page.md"], [])
    assert page.read_text() == (
        "Text.\n\n<!-- code: steps/a.cuh#body -->\n```cuda\nconst T sum = a + b;\nreturn sum;\n```\n\nMore.\n"
    )
    assert blocks.update_blocks(repository) == ([], [])
    assert blocks.check_blocks(repository) == []


@pytest.mark.parametrize(("side", "old", "new"), [("page", "a + b", "a - b"), ("source", "a + b", "b + a")])
def test_a_changed_line_is_caught_on_either_side_and_shown(repository, side, old, new):
    page = write(repository, "<!-- code: steps/a.cuh#body -->\n")
    blocks.update_blocks(repository)
    changed = page if side == "page" else repository / "steps" / "a.cuh"
    changed.write_text(changed.read_text().replace(old, new))
    (problem,) = blocks.check_blocks(repository)
    is_, should = ("a - b", "a + b") if side == "page" else ("a + b", "b + a")
    assert f"\n-const T sum = {is_};" in problem.text
    assert f"\n+const T sum = {should};" in problem.text
    blocks.update_blocks(repository)
    assert blocks.check_blocks(repository) == []


def test_a_quotation_that_cannot_be_made_is_a_problem_with_its_line_and_leaves_the_page_alone(repository):
    page = write(repository, "Text.\n\n<!-- code: steps/a.cuh#gone -->\n```cuda\nold\n```\n")
    before = page.read_text()
    for problems in (blocks.check_blocks(repository), blocks.update_blocks(repository)[1]):
        assert [problem.where for problem in problems] == ["docs/page.md:3"]
    assert page.read_text() == before


def test_a_comment_that_is_nearly_a_command_is_a_problem(repository):
    write(repository, "<!-- code: steps/a.cuh body -->\n")
    assert "not understood" in blocks.check_blocks(repository)[0].text


def test_commands_inside_other_code_are_left_alone(repository):
    page = write(repository, "````markdown\n<!-- code: steps/a.cuh#gone -->\n```cuda\n```\n````\n")
    assert blocks.update_blocks(repository) == ([], [])
    assert "gone" in page.read_text()


def test_code_that_holds_fences_gets_a_longer_fence(repository):
    write(repository, "// [doc: x]\n// ```\n// [/doc: x]\n", "steps/b.cuh")
    assert quotes.fence(quotes.resolve(repository, "steps/b.cuh", "x"))[0] == "````cuda"


# ---- tables of results ----


def numbers(root, name):
    """A table for the tests: one file of results/."""
    return tables.markdown(["n"], [[read_json(root, f"results/{name}.json")["n"]]], "r")


@pytest.fixture
def measured(repository):
    (repository / "results").mkdir()
    (repository / "results" / "one.json").write_text('{"n": 1}')
    return repository


def test_a_table_is_made_from_results_and_a_stale_number_is_caught(measured):
    registry = {"numbers": numbers}
    page = write(measured, "<!-- results: numbers one -->\n<!-- /results -->\n\nEnd.\n")
    assert blocks.update_blocks(measured, registry) == (["docs/page.md"], [])
    assert page.read_text() == "<!-- results: numbers one -->\n\n| n |\n| ---: |\n| 1 |\n\n<!-- /results -->\n\nEnd.\n"
    assert blocks.check_blocks(measured, registry) == []
    (measured / "results" / "one.json").write_text('{"n": 2}')
    (problem,) = blocks.check_blocks(measured, registry)
    assert "\n-| 1 |\n+| 2 |" in problem.text


@pytest.mark.parametrize(
    ("comment", "reason"),
    [
        ("<!-- results: nothing -->\n<!-- /results -->", "no function is registered"),
        ("<!-- results: numbers -->\n<!-- /results -->", "does not take the arguments"),
        ("<!-- results: numbers two -->\n<!-- /results -->", "results/two.json does not exist"),
        ('<!-- results: numbers "two words" -->\n<!-- /results -->', "results/two words.json does not exist"),
        ("<!-- results: numbers one -->", "is missing"),
    ],
)
def test_a_table_that_cannot_be_made_is_a_problem(measured, comment, reason):
    write(measured, f"{comment}\n")
    (problem,) = blocks.check_blocks(measured, {"numbers": numbers})
    assert problem.where == "docs/page.md:1"
    assert reason in problem.text


def test_a_table_has_one_function():
    with pytest.raises(ValueError, match="two functions"):
        tables.table("memory")(numbers)


@pytest.mark.parametrize(
    ("value", "text"),
    [(4.25e12, "4.25 TB/s"), (51e12, "51 TB/s"), (0.0021, "2.1 mB/s"), (999.6, "1e+03 B/s"), (0, "0 B/s")],
)
def test_quantities_have_a_prefix(value, text):
    assert quantity(value, "B/s") == text


PROBLEM = {"family": "attention", "batch": 1, "heads": 12, "seq_q": 207, "seq_k": 207, "dim": 32, "causal": False, "dtype": "fp32"}


def write_bench(repository, *shapes, passed=True, problem=PROBLEM, step="01_naive_mha"):
    """Committed benchmarks as `make gpu-check` writes them."""
    results = [
        {
            "variant": name,
            "problem": problem,
            "verdict": {"pass": passed},
            "times_ms": {"median": ms},
            "tflops": 1 / ms,
            "kernels": [{"kernel": "add", "flops": 51e6, "bytes_read": 4.25e6, "bytes_written": 4.25e6}],
        }
        for name, ms in [("slow", 2.0), ("fast", 0.5)]
    ]
    folder = repository / "results" / "h200"
    folder.mkdir(parents=True, exist_ok=True)
    reports = [{"shape": shape, "step": step, "results": results} for shape in shapes]
    (folder / "bench.json").write_text(json.dumps(reports))


def test_tables_of_times_come_from_the_benchmarks(repository):
    assert tables.make(repository, "times", ["01_naive_mha"]) == ""  # nothing was measured yet
    assert tables.make(repository, "ladder", []) == ""
    write_bench(repository, "tour", "4k")
    text = tables.make(repository, "times", ["01_naive_mha"])
    assert "| median (TFLOP/s) | tour:<br>12 heads, 207 tokens, d = 32 | 4k:<br>" in text
    assert "| `fast` | 500 µs (2) | 500 µs (2) |" in text
    assert tables.make(repository, "times", ["02_gemm"]) == ""
    assert "| [01](01_naive_mha.md) | `slow` | 2 ms | 2 ms |" in tables.make(repository, "ladder", [])
    assert tables.make(repository, "ladder", ["01_naive_mha"]).splitlines()[2] == "| `slow` | 2 ms | 2 ms |"
    assert tables.make(repository, "ladder", ["02_gemm"]) == ""


def test_a_problem_is_described_with_what_is_special_about_it(repository):
    write_bench(repository, "odd", problem=PROBLEM | {"batch": 2, "seq_k": 9, "causal": True})
    assert "batch 2, 12 heads, 207 queries, 9 keys, d = 32, causal" in tables.make(
        repository, "times", ["01_naive_mha"]
    )
    write_bench(repository, "odd", problem=PROBLEM | {"family": "backward", "dtype": "fp16"}, step="06_backward")
    assert "backward, 12 heads, 207 tokens, d = 32, fp16" in tables.make(repository, "times", ["06_backward"])
    for causal, pairs, text in [(False, 4 * 6, "d = 32, 25 % live |"), (True, 3 + 4 + 5 + 6, "d = 32, causal, 33 % live |")]:
        sparse = {"batch": 2, "heads": 2, "seq_q": 4, "seq_k": 6, "causal": causal, "sparse": {"live_pairs": 4 * pairs / (3 if causal else 4)}}
        write_bench(repository, "odd", problem=PROBLEM | sparse, step="07_block_sparse")
        assert text in tables.make(repository, "times", ["07_block_sparse"])
    linear = {"family": "linear", "m": 16, "n": 4096, "k": 896, "experts": 0, "top": 0, "dtype": "fp16"}
    for changes, text in [({}, "4096 × 896, 16 tokens, fp16 |"), ({"m": 1, "experts": 8, "top": 2}, "4096 × 896, 1 token, 2 of 8 experts, fp16 |")]:
        write_bench(repository, "odd", problem=linear | changes, step="08_few_tokens")
        assert text in tables.make(repository, "times", ["08_few_tokens"])


def test_the_passes_of_a_step_have_tables_of_their_own_in_the_ladder(repository):
    path = repository / "results" / "h200" / "bench.json"
    reports = []
    for family, shape in [("attention", "16k"), ("backward", "16k backward")]:
        write_bench(repository, shape, problem=PROBLEM | {"family": family}, step="07_block_sparse")
        reports += json.loads(path.read_text())
    path.write_text(json.dumps(reports))
    forward, backward, _ = tables.make(repository, "ladder", []).split("\n\n")
    assert forward.startswith("| step | variant | 12 heads, 207 tokens, d = 32 |")
    assert backward.startswith("| step | variant | backward, 12 heads, 207 tokens, d = 32 |")


@pytest.mark.parametrize(("name", "arguments"), [("ladder", []), ("times", ["01_naive_mha"])])
def test_a_time_of_a_wrong_result_is_never_shown(repository, name, arguments):
    write_bench(repository, "tour", "4k", passed=False)
    with pytest.raises(tables.TableError, match="not right"):
        tables.make(repository, name, arguments)


PROFILE = """\
# shape tour: --heads 12
"ID","Kernel Name","gpu__time_duration.sum","l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",\
"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum","l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",\
"l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum","l1tex__t_sector_hit_rate.pct","lts__t_sector_hit_rate.pct",\
"dram__bytes_read.sum","dram__bytes_write.sum"
"","","ns","","","","","%","%","byte","byte"
"0","void n::add<float>(float *)","2,500","10","320","10","40","90.4","50","1,000,000","2000"
"1","n::add(float *)","9999","10","320","10","40","90.4","50","1","1"
"2","scale","1000","10","40","0","0","0","0","0","0"
"""


def test_tables_of_kernels_come_from_the_profiles(repository):
    assert tables.make(repository, "kernels", ["01_naive_mha", "tour"]) == ""
    write_bench(repository, "tour")
    (repository / "docs" / "machine").mkdir()
    rates = {"copy_bytes_per_second": {"value": 4.25e12}, "fp32_flops_per_second": {"value": 51e12}}
    (repository / "docs" / "machine" / "h200.json").write_text(json.dumps({"ceilings": rates}))
    (repository / "results" / "h200" / "ncu_01_naive_mha.csv").write_text(PROFILE)
    rows = tables.make(repository, "kernels", ["01_naive_mha", "tour"]).splitlines()[2:-2]
    assert rows == [
        "| `add` | 2 µs | 2.5 µs | 32.0 | 4.0 | 90 % | 50 % | 1 MB | 2 kB |",
        "| `scale` | - | 1 µs | 4.0 | - | 0 % | 0 % | 0 B | 0 B |",
    ]
    with pytest.raises(tables.TableError, match="has no shape 4k"):
        tables.make(repository, "kernels", ["01_naive_mha", "4k"])


def test_a_table_takes_and_names_the_device_of_its_run(repository):
    write_bench(repository, "tour")
    h200, h100 = (repository / "results" / device / "bench.json" for device in ("h200", "h100"))
    h100.parent.mkdir()
    reports = json.loads(h200.read_text())
    reports[0]["results"][0]["times_ms"]["median"] = 3.0
    h100.write_text(json.dumps(reports + [{**reports[0], "step": "02_new"}]))
    made = lambda *arguments: tables.make(repository, "times", arguments).splitlines()
    assert made("01_naive_mha")[2::3] == ["| `slow` | 2 ms (0.5) |", "*Measured on one H200.*"]  # the first that has the step
    assert made("01_naive_mha", "on=h100")[2::3] == ["| `slow` | 3 ms (0.5) |", "*Measured on one H100.*"]
    assert made("02_new")[2::3] == ["| `slow` | 3 ms (0.5) |", "*Measured on one H100.*"]
    assert made("02_new", "on=h200") == []
    with pytest.raises(tables.TableError, match="results/a100 does not exist"):
        made("01_naive_mha", "on=a100")
    with pytest.raises(tables.TableError, match="does not take the arguments"):
        tables.make(repository, "profile_rows", ["on=h100"])  # which is of no device
    for device in ("h200", "h100"):
        (repository / "results" / device / "parity.json").write_text("{}")
    assert tables.make(repository, "parity", []).endswith("\n\n*Measured on one H200 and one H100.*")
    assert tables.make(repository, "parity", ["on=h100"]).endswith("\n\n*Measured on one H100.*")


def test_numbers_of_one_table_are_of_one_device(repository):
    """Of a step that was profiled on the second device, the floors are that one's, too."""
    write_bench(repository, "tour")
    folder = repository / "results" / "h100"
    shutil.copytree(repository / "results" / "h200", folder)
    (folder / "ncu_01_naive_mha.csv").write_text(PROFILE)
    (repository / "docs" / "machine").mkdir()
    for device, rate in (("h200", 4.25e12), ("h100", 2.125e12)):
        rates = {"copy_bytes_per_second": {"value": rate}, "fp32_flops_per_second": {"value": 51e12}}
        (repository / "docs" / "machine" / f"{device}.json").write_text(json.dumps({"ceilings": rates}))
    table = tables.make(repository, "kernels", ["01_naive_mha", "tour"]).splitlines()
    assert table[2].startswith("| `add` | 4 µs | 2.5 µs |") and table[-1] == "*Measured on one H100.*"


def test_the_programs_know_the_ceilings_that_the_book_shows():
    known = json.loads((ROOT / "docs" / "machine" / "h200.json").read_text())["ceilings"]
    source = quotes.resolve(ROOT, "common/problem/cost.cpp", "h200_floor_seconds").text
    for name in ("copy_bytes_per_second", "fp32_flops_per_second", "mma_sync_flops_per_second"):
        value = known[name]["value"]
        assert f"{value / 1e12:g}e12" in source


# As ceilings writes it, and `make gpu-check` stores it.
MEASURED = {
    "machine": {"date": "2026-12-01T10:00:00+00:00"},
    "device": "NVIDIA H200",
    "ceilings": {
        "copy_bytes_per_second": {"value": 4.2612e12, "sustained": 4.2487e12, "sm_clock_mhz": 1980, "what": "copy"},
        "mma_sync_flops_per_second": {"value": 689.6e12, "sustained": 615.1e12, "what": "mma.sync"},
    },
}


def test_bursts_stand_beside_sustained_rates(repository):
    assert "No run" in tables.make(repository, "bursts", [])
    (repository / "results" / "h200").mkdir(parents=True)
    (repository / "results" / "h200" / "ceilings.json").write_text(json.dumps(MEASURED))
    assert tables.make(repository, "bursts", []).splitlines()[2:-2] == [
        "| copy | 4.26 TB/s | 4.25 TB/s | 1980 MHz |",
        "| mma.sync | 690 TFLOP/s | 615 TFLOP/s | - |",
    ]


def peers(*contenders, work="operations", share="of_roof"):
    """As benchmarks/gemm_peers.cu and softmax_peers.cu write it: (name, verdict, milliseconds, share of the first one's speed)."""
    spread = lambda value: {"median": value, "min": value, "max": value}
    return {
        "shapes": {
            "4k": {
                "contenders": [
                    {"name": name, "verdict": verdict, work: 1e9, "burst_ms": spread(ms), share: spread(part), "sustained_ms": 2 * ms}
                    for name, verdict, ms, part in contenders
                ]
            }
        }
    }


def test_peers_stand_in_one_table_and_wrong_results_in_none(repository):
    assert tables.make(repository, "gemm_peers", ["burst"]) == ""
    path = repository / "results" / "h200" / "gemm_peers.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(peers(("roof of mma.sync", "", 0.002, 1.0), ("tuned", "ok", 0.0025, 0.8))))
    assert tables.make(repository, "gemm_peers", ["burst"]).splitlines()[2:-2] == ["| roof of mma.sync | 500 (1.000) |", "| tuned | 400 (0.800) |"]
    assert tables.make(repository, "gemm_peers", ["sustained"]).splitlines()[3] == "| tuned | 200 |"
    with pytest.raises(tables.TableError, match="neither burst nor sustained"):
        tables.make(repository, "gemm_peers", ["fast"])
    for verdict in ("WRONG", ""):
        path.write_text(json.dumps(peers(("roof of mma.sync", "", 0.002, 1.0), ("tuned", verdict, 0.0025, 0.8))))
        with pytest.raises(tables.TableError, match="the result of tuned is wrong at 4k"):
            tables.make(repository, "gemm_peers", ["burst"])


def test_the_softmax_stands_beside_a_copy(repository):
    path = repository / "results" / "h200" / "softmax_peers.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(peers(("copy", "", 0.25, 1.0), ("tuned", "ok", 0.5, 0.5), work="bytes", share="of_copy")))
    table = tables.make(repository, "softmax_peers", ["burst"]).splitlines()
    assert table[0] == "| TB/s (share of the copy) | 4k |"
    assert table[2:-2] == ["| copy | 4 (1.000) |", "| tuned | 2 (0.500) |"]
    assert tables.make(repository, "softmax_peers", ["sustained"]).splitlines()[3] == "| tuned | 1 |"


def test_few_tokens_stand_beside_cublas_with_their_claims_and_wrong_results_in_no_table(repository):
    for name in ("few_tokens_peers", "few_tokens_claims"):
        assert tables.make(repository, name, []) == ""
    path = repository / "results" / "h200" / "few_tokens_peers.json"
    path.parent.mkdir(parents=True)
    entry = lambda name, us, verdict="ok": {
        "name": name,
        "verdict": verdict,
        "burst_ms": {"median": us / 1000},
        "of_cublas": {"median": 4 / us},
        "of_read_only": {"median": 2 / us},
    }
    contenders = [entry("read only", 2, ""), entry("cuBLAS", 4), entry("cublasLt, best of 8", 3.5), entry("tuned", 1.6), entry("tuned_alone", 5)]
    cells = {"896 × 896, 1 token": {"contenders": contenders}}
    path.write_text(json.dumps({"shapes": cells, "claims": claims("08_few_tokens", "few_tokens_peers", cells)}))
    assert tables.make(repository, "few_tokens_peers", []).splitlines()[0:-2:2] == [
        "| µs a launch | read only | cuBLAS | best of cublasLt | `tuned` | `tuned_alone` | speed of `tuned` over cuBLAS's | speed of `tuned_alone` over cuBLAS's |",
        "| 896 × 896, 1 token | 2.00 | 4.00 | 3.50 | 1.60 | 5.00 | 2.50 | 0.80 |",
    ]
    assert [line.split(" | ")[-3:] for line in tables.make(repository, "few_tokens_claims", []).splitlines()[2:-2]] == [
        ["2.500–2.500", "1", "holds |"],
        ["0.800–0.800", "1", "missed |"],
        ["1.067–1.067", "1", "missed |"],  # 1.5 µs were aimed at
        ["2.000–2.000", "1", "missed |"],
    ]
    contenders[3]["verdict"] = "WRONG"
    path.write_text(json.dumps({"shapes": cells, "claims": []}))
    for name in ("few_tokens_peers", "few_tokens_claims"):
        with pytest.raises(tables.TableError, match="the result of tuned is wrong at 896 × 896, 1 token"):
            tables.make(repository, name, [])


def test_the_committed_claims_of_step_08_follow_from_the_times_beside_them():
    report = json.loads((ROOT / "results" / "h100" / "few_tokens_peers.json").read_text())
    assert report["claims"] == claims("08_few_tokens", "few_tokens_peers", report["shapes"])
    assert [len(claim["cells"]) for claim in report["claims"]] == [15, 14, 1, 15, 15, 9]
    report = json.loads((ROOT / "results" / "h100" / "experts_peers.json").read_text())
    assert report["claims"] == claims("08_few_tokens", "experts_peers", report["shapes"])
    assert [len(claim["cells"]) for claim in report["claims"]] == [1, 7]


def test_decoding_stands_beside_the_faster_ways_of_others_and_wrong_results_in_no_table(repository):
    for name in ("decoding_peers", "decoding_claims"):
        assert tables.make(repository, name, []) == ""
    path = repository / "results" / "h200" / "decoding_peers.json"
    path.parent.mkdir(parents=True)

    def entry(name, us, verdict="ok"):
        return {"name": name, "verdict": verdict, "burst_ms": {"median": us / 1000}, "of": {"best of PyTorch's": {"median": 10 / us}}}

    contenders = [
        entry("read only", 6, ""),
        entry("FlashAttention-2", 18.55),
        entry("FlashAttention-2, as rows", 19),
        entry("cuDNN", 52),
        entry("cuDNN, as rows", 10),
        entry("tuned", 8),
        entry("tuned_dependent", 12.5),
        entry("packed_heads", 92),
        entry("cluster", 12),
    ]
    cells = {"batch 1, 4096 keys": {"contenders": contenders}}
    report = {"variants": ["tuned", "tuned_dependent", "packed_heads", "cluster"], "cells": cells}
    path.write_text(json.dumps(report | {"claims": claims("09_decoding", "decoding_peers", cells)}))
    assert tables.make(repository, "decoding_peers", []).splitlines()[0:-2:2] == [
        "| µs a launch | read only | FA2 | cuDNN | `cluster` | `tuned` | `tuned_dependent` | speed of `tuned` over the best of PyTorch's | speed of `tuned_dependent` over the best of PyTorch's |",
        "| batch 1, 4096 keys | 6.0 | 18.6 | 10.0 | 12.0 | 8.0 | 12.5 | 1.250 | 0.800 |",
    ]
    assert [line.split(" | ")[-3:] for line in tables.make(repository, "decoding_claims", []).splitlines()[2:-2]] == [
        ["1.603–1.603", "1", "missed |"],  # 7.8 µs were aimed at
        ["0.833–0.833", "1", "holds |"],
        ["1.250–1.250", "1", "holds |"],
    ]
    contenders[5]["verdict"] = "WRONG"
    path.write_text(json.dumps(report | {"claims": []}))
    for name in ("decoding_peers", "decoding_claims"):
        with pytest.raises(tables.TableError, match="the result of tuned is wrong at batch 1, 4096 keys"):
            tables.make(repository, name, [])


def test_the_committed_claims_of_step_09_follow_from_the_times_beside_them():
    report = json.loads((ROOT / "results" / "h200" / "decoding_peers.json").read_text())
    for claim, fresh in zip(report["claims"], claims("09_decoding", "decoding_peers", report["cells"]), strict=True):
        assert fresh.pop("cells") == pytest.approx(claim["cells"], rel=1e-5)  # the file has six digits
        assert [fresh.pop(end) for end in ("least", "most")] == pytest.approx([claim["least"], claim["most"]], rel=1e-5)
        assert fresh.items() <= claim.items()
    assert [len(claim["cells"]) for claim in report["claims"]] == [7, 7, 8, 1]


def test_routed_products_and_their_sorting_have_a_table_each(repository):
    assert tables.make(repository, "experts_peers", ["route"]) == ""
    path = repository / "results" / "h200" / "experts_peers.json"
    path.parent.mkdir(parents=True)

    def cell(m, named, **us):
        contenders = [{"name": name.replace("_", " ") if name == "read_only" else name, "verdict": "", "burst_ms": {"median": time / 1000}} for name, time in us.items()]
        return {"problem": {"experts": 64, "top": 8, "m": m, "experts_named": named, "sort_only": "read_only" not in us}, "contenders": contenders}

    cells = {
        "16 tokens, 8 of 64 experts": cell(16, 52, read_only=566.2, experts_unsorted=577.4, route=4.2),
        "512 tokens, 8 of 64 experts": cell(512, 60, read_only=700.0, experts=3257.1, route=4.84),
        "sort of 4096 ids, 64 experts": cell(512, 60, route=3.23),
    }
    path.write_text(json.dumps({"shapes": cells, "claims": claims("08_few_tokens", "experts_peers", cells)}))
    assert tables.make(repository, "experts_peers", ["products"]).splitlines()[0:-2] == [
        "| experts | top | tokens | named | read only | `experts_unsorted` | `route` | `experts` |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| 64 | 8 | 16 | 52 | 566.2 | 577.4 | 4.2 | - |",
        "| 64 | 8 | 512 | 60 | 700.0 | - | 4.8 | 3257.1 |",
    ]
    assert tables.make(repository, "experts_peers", ["route"]).splitlines()[0:-2:2] == [
        "| experts | top | tokens | ids | `route` |",
        "| 64 | 8 | 512 | 4,096 | 3.2 |",
    ]
    assert tables.make(repository, "experts_claims", []).splitlines()[2:-2] == [
        "| `route` up to 4,096 ids: µs, the most | at most 4 | 3.230–4.840 | 3 | missed |"
    ]
    cells["512 tokens, 8 of 64 experts"]["contenders"][1]["verdict"] = "WRONG"
    path.write_text(json.dumps({"shapes": cells, "claims": []}))
    with pytest.raises(tables.TableError, match="the result of experts is wrong at 512 tokens, 8 of 64 experts"):
        tables.make(repository, "experts_peers", ["route"])
    with pytest.raises(tables.TableError, match="neither products nor route"):
        tables.make(repository, "experts_peers", ["all"])


def attention_peers(**changes):
    """As benchmarks/attention_peers.py writes it, of one cell; ours is 1.25 times as fast as FlashAttention-2, and cuDNN refused."""
    spread = lambda value: {"median": value, "min": value * 0.9, "max": value * 1.1}

    def contender(name, tflops, **of):
        others = {"FlashAttention-2": of.get("fa2"), "roof of mma.sync": of.get("roof")}
        return {
            "name": name,
            "verdict": "" if name == "roof of mma.sync" else "ok",
            "tflops": spread(tflops),
            "of": {other: spread(ratio) for other, ratio in others.items() if ratio},
            "sustained_tflops": tflops / 2,
            "sm_clock_mhz": 1500 if name == "tuned" else None,
            **changes.get(name, {}),
        }

    contenders = [contender("roof of mma.sync", 640), contender("FlashAttention-2", 300), contender("tuned", 375, fa2=1.25, roof=0.6)]
    problem = {"seq": 4096, "dim": 64, "causal": False, "dtype": "fp16"}
    claims = [{"what": "speed", "value": 1.25, "target": 1.15}, {"what": "other", "value": 0.5, "target": None}]
    return {"variants": ["tuned"], "cells": {"a cell": {"problem": problem, "contenders": contenders}}, "claims": claims}


def test_attention_stands_beside_its_peers_and_wrong_results_in_no_table(repository):
    for name, arguments in [("attention_peers", ["burst"]), ("attention_claims", [])]:
        assert tables.make(repository, name, arguments) == ""
    path = repository / "results" / "h200" / "attention_peers.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(attention_peers()))
    assert tables.make(repository, "attention_peers", ["burst"]).splitlines()[0:-2:2] == [
        "| TFLOP/s, bursts | `tuned` | FA2 | cuDNN | memory-efficient | of FA2 | of cuDNN | of the roof |",
        "| a cell | 375 | 300 | - | - | 1.25 (1.12–1.38) | - | 0.60 (0.54–0.66) |",
    ]
    assert tables.make(repository, "attention_peers", ["sustained"]).splitlines()[2] == "| a cell | 188 (1500) | 150 | - | - | 320 |"
    assert tables.make(repository, "attention_claims", []).splitlines()[2:-2] == ["| speed | 1.15 | 1.250 |", "| other | - | 0.500 |"]
    with pytest.raises(tables.TableError, match="neither burst nor sustained"):
        tables.make(repository, "attention_peers", ["fast"])
    path.write_text(json.dumps(attention_peers(tuned={"verdict": "WRONG"})))
    for name, arguments in [("attention_peers", ["burst"]), ("attention_claims", [])]:
        with pytest.raises(tables.TableError, match="the result of tuned is wrong at a cell"):
            tables.make(repository, name, arguments)


def test_the_speed_of_attention_is_drawn_from_a_run_and_from_the_roof_alone():
    sys.path.insert(0, str(ROOT / "tools" / "book" / "plots"))
    import attention_speed

    text = lambda figure: [label.get_text() for axes in figure.axes for label in axes.texts]
    first, *others = attention_speed.draw(attention_peers(), 645).axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in first.get_lines() if not line.get_label().startswith("_")}
    assert drawn == {"roof of mma.sync": [640]}
    ours = next(bars for bars in first.containers if bars.get_label() == "ours: tuned")
    assert list(ours.lines[0].get_ydata()) == [375]
    assert [list(axes.get_lines()[0].get_ydata()) for axes in others] == [[645] * 4] * 3
    assert text(attention_speed.draw({"cells": {}, "variants": []}, 645)) == ["no run is committed yet"] * 4


def test_no_panel_cuts_off_what_another_one_has_room_for():
    sys.path.insert(0, str(ROOT / "tools" / "book" / "plots"))
    import attention_speed

    low = attention_peers()["cells"]["a cell"]
    faster = [{**contender, "tflops": {end: 3 * rate for end, rate in contender["tflops"].items()}} for contender in low["contenders"]]
    high = {"problem": {**low["problem"], "dim": 128}, "contenders": faster}
    made = attention_speed.draw({**attention_peers(), "cells": {"low": low, "high": high}}, 645)
    for figure in (made, attention_speed.from_committed_numbers()):
        for axes in figure.axes:
            (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
            points = [point for line in axes.get_lines() for point in zip(line.get_xdata(), line.get_ydata())]
            points += [point for bars in axes.collections for segment in bars.get_segments() for point in segment]
            assert points and all(left <= x <= right and bottom <= y <= top for x, y in points)


SOFTMAX = {"family": "softmax", "rows": 1000, "cols": 2125, "dtype": "fp16"}


def test_softmax_is_shown_as_a_rate_and_as_a_share_of_a_copy(repository):
    assert tables.make(repository, "softmax", []) == ""
    write_bench(repository, "long rows", problem=SOFTMAX, step="03_online_softmax")
    (repository / "docs" / "machine").mkdir()
    (repository / "docs" / "machine" / "h200.json").write_text(json.dumps({"ceilings": {"copy_bytes_per_second": {"value": 4.25e12}}}))
    assert tables.make(repository, "softmax", []).splitlines()[:-2] == [
        "| x and y over time (share of a copy) | 1000 × 2125, fp16 |",
        "| --- | ---: |",
        "| `slow` | 4.25 GB/s (0.001) |",  # 8.5 MB in 2 ms
        "| `fast` | 17 GB/s (0.004) |",
    ]


def test_steps_that_were_measured_at_the_same_problems_share_a_table_of_the_ladder(repository):
    path = repository / "results" / "h200" / "bench.json"
    reports = []
    for step, problem in [("01_naive_mha", PROBLEM), ("04_flash_v1", PROBLEM), ("05_flash_v2", PROBLEM | {"dtype": "fp16"})]:
        write_bench(repository, "tour", "ragged", problem=problem, step=step)
        reports += json.loads(path.read_text())
    path.write_text(json.dumps(reports))
    first, second, _ = tables.make(repository, "ladder", []).split("\n\n")
    assert first.splitlines()[0] == "| step | variant | 12 heads, 207 tokens, d = 32 |"
    assert [line.split("]")[0] for line in first.splitlines()[2:]] == ["| [01", "| [01", "| [04", "| [04"]
    assert second.splitlines()[0::2] == ["| step | variant | 12 heads, 207 tokens, d = 32, fp16 |", "| [05](05_flash_v2.md) | `slow` | 2 ms |"]


# ---- the README ----


def write_peers(repository, program, cells, **rest):
    """A benchmark beside PyTorch's kernels: {cell: {contender: {another one: our speed over its}}}."""
    entry = lambda name, of: {"name": name, "verdict": "ok", "of": {other: {"median": over} for other, over in of.items()}}
    made = {cell: {"contenders": [entry(name, of) for name, of in contenders.items()]} for cell, contenders in cells.items()}
    (repository / "results" / "h200" / f"{program}.json").write_text(json.dumps({"variants": ["fast"], "cells": made, **rest}))


def test_the_readmes_ladder_has_a_row_for_each_step_with_its_best_variant_and_others(repository):
    for step in ("00_first", "01_naive_mha", "02_tiled_gemm", "05_flash_v2", "07_block_sparse"):
        (repository / "steps" / step).mkdir()
    write(repository, "# 01 · Naive\n\nText.\n", "docs/01_naive_mha.md")
    for device in ("h200", "h100"):
        (repository / "results" / device).mkdir(parents=True)
    short = lambda: tables.make(repository, "ladder_short", []).splitlines()[2:]
    assert short()[0] == "| [00_first](docs/00_first.md) | - | - | - | - |"
    assert short()[4] == "| [07_block_sparse](docs/07_block_sparse.md) | - | - | - | - |"
    reports = []
    for step, shapes in [("01_naive_mha", ["tour", "4k", "64k"]), ("05_flash_v2", ["4k"]), ("07_block_sparse", ["16k", "16k-d128"])]:
        write_bench(repository, *shapes, step=step)
        reports += json.loads((repository / "results" / "h200" / "bench.json").read_text())
    reports[1]["results"][1]["times_ms"]["median"] = 0.125  # of "4k", which counts
    (repository / "results" / "h200" / "bench.json").write_text(json.dumps(reports))
    both = {"FlashAttention-2": 2.0, "cuDNN": 0.5}
    write_peers(repository, "attention_peers", {"a": {"fast": both, "cuDNN": {}}, "b": {"fast": {"FlashAttention-2": 0.5}}})
    ours = {"FlexAttention, band": 4.0, "FlexAttention by mask_mod, band": 9.0}
    write_peers(repository, "sparse_peers", {"a": {"ours, band": ours, "ours without splitting, band": {"FlexAttention, band": 9.0}}})
    squares = {"4096³ fp16": 0.5, "4095 × 4096 fp16": 5.0, "8192³ fp16": 0.5}
    measured = {shape: {"contenders": [{"name": "tuned", "of_cublas": {"median": share}}]} for shape, share in squares.items()}
    (repository / "results" / "h200" / "gemm_peers.json").write_text(json.dumps({"shapes": measured}))
    assert short()[1:-2] == [
        "| [01 · Naive](docs/01_naive_mha.md) | `fast` | 12 heads, 207 tokens, d = 32 | 125 µs | - |",
        "| [02_tiled_gemm](docs/02_tiled_gemm.md) | - | - | - | cuBLAS at 4096³ and 8192³: 0.50 (0.50–0.50) |",
        "| [05_flash_v2](docs/05_flash_v2.md) | `fast` | 12 heads, 207 tokens, d = 32 | 500 µs | FlashAttention-2: 1.00 (0.50–2.00); cuDNN: 0.50 (0.50–0.50) |",
        "| [07_block_sparse](docs/07_block_sparse.md) | `fast` | 12 heads, 207 tokens, d = 32 | 500 µs | FlexAttention: 4.00 (4.00–4.00) |",
    ]
    assert tables.make(repository, "ladder_short", []).endswith("*Measured on one H200.*")
    (repository / "steps" / "08_few_tokens").mkdir()
    entry = {"name": "tuned", "of_cublas": {"median": 1.5}, "burst_ms": {"median": 0.0118}}
    few = {"4096 × 4096, 1 token": {"problem": {"dtype": "fp16"}, "contenders": [entry]}}
    (repository / "results" / "h100" / "few_tokens_peers.json").write_text(json.dumps({"shapes": few}))
    *_, row, _, devices = tables.make(repository, "ladder_short", []).splitlines()
    assert row == "| [08_few_tokens](docs/08_few_tokens.md) | `tuned` | 4096 × 4096, 1 token, fp16, on an H100 | 11.8 µs | cuBLAS, whose launches wait for each other: 1.50 (1.50–1.50) |"
    assert devices == "*Measured on one H200 and one H100.*"


def test_a_run_beside_others_says_where_it_was_made(repository):
    machine = {"name": "NVIDIA H200", "driver_version": "580.1", "nvcc": "13.0", "torch": "2.11.0+cu130", "cudnn": 91900, "date": "2026-11-22T20:41:58+00:00"}
    (repository / "results" / "h200").mkdir(parents=True)
    write_peers(repository, "attention_peers", {}, machine=machine)
    assert tables.make(repository, "measured_on", ["attention_peers"]) == (
        "One NVIDIA H200, 2026-11-22: CUDA 13.0, driver 580.1, PyTorch 2.11.0, cuDNN 9.19.0. The numbers: `results/h200/attention_peers.json`."
    )


def test_the_slowest_odd_element_of_an_input_and_place_is_shown(repository):
    names = {"forward, Q inf, first row": 1.5, "forward, Q nan, first row": 1.25, "forward, V nan, first row": 2, "forward, V nan, last row, every head": 3, "backward, Q inf, first row": 9}
    (repository / "results" / "h100").mkdir(parents=True)
    report = {"groups": {"values": [{"name": name, "ratio": ratio} for name, ratio in names.items()]}}
    (repository / "results" / "h100" / "cliffs.json").write_text(json.dumps(report))
    assert tables.make(repository, "odd_elements", ["forward"]).splitlines()[:-2] == [
        "| odd element in | Q | V |",
        "| --- | ---: | ---: |",
        "| first row | 1.50 | 2.00 |",
        "| last row, every head | - | 3.00 |",
    ]


def test_shared_heads_are_shown_by_problem_with_the_speed_over_others(repository):
    (repository / "results" / "h100").mkdir(parents=True)
    others = ("FlashAttention-2", "8 key/value heads", "heads that are not split over blocks")
    ratios = {"8/1 heads, 64 tokens, d 64": (0.5, 1.25, 0.1), "8/1 heads, 64 tokens, d 64, causal": (0.8, 1, 0.5)}
    rows = [{"name": f"backward, 1 × {name}", "of": of, "ratio": ratio} for name, made in ratios.items() for of, ratio in zip(others, made, strict=True)]
    (repository / "results" / "h100" / "cliffs.json").write_text(json.dumps({"groups": {"shared heads": rows}}))
    assert tables.make(repository, "shared_heads", []).splitlines()[:-2] == [
        "| query heads / key/value heads | d 64 | d 64, causal |",
        "| --- | ---: | ---: |",
        "| 8/1 heads, 64 tokens | 2.00 (10.0) | 1.25 (2.0) |",
    ]


@pytest.mark.parametrize(
    ("path", "old", "new", "reason"),
    [
        (calls.CUDA, "inline int __ffs(", "inline std::uint64_t __clz(int x);\ninline int __ffs(", "says nothing of __clz"),
        (calls.CUDA, "SIMT_ATOMIC(atomicOr,", "SIMT_ATOMIC(atomicXor, old ^ value)\nSIMT_ATOMIC(atomicOr,", "says nothing of atomicXor"),
        (calls.PTX, "inline std::uint32_t prmt(", "inline std::uint32_t lop3(std::uint32_t a);\ninline std::uint32_t prmt(", "says nothing of lop3"),
        (calls.CUDA, "inline float __fmul_rn(", "inline float other::f(", "speaks of .*__fmul_rn"),
    ],
    ids=["function", "atomic", "instruction", "gone"],
)
def test_each_call_that_the_simulator_has_stands_in_the_table(repository, path, old, new, reason):
    for name in (calls.CUDA, calls.PTX, calls.WIDTHS, *(f"common/device/ptx/{file.name}" for file in (ROOT / "common/device/ptx").iterdir())):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        write(repository, (ROOT / name).read_text(), name)
    which = "cuda" if path == calls.CUDA else "ptx"
    assert "\n" in tables.make(repository, "simulated_calls", [which])
    before = (ROOT / path).read_text()
    assert before.count(old) == 1
    write(repository, before.replace(old, new), path)
    with pytest.raises(tables.TableError, match=reason):
        tables.make(repository, "simulated_calls", [which])


def test_what_a_program_printed_is_shown_whole_or_in_part(repository):
    write(repository, "one\n  two\nthree\n", "docs/said.txt")
    page = write(repository, "<!-- results: printed docs/said.txt 2 -->\n<!-- /results -->\n")
    blocks.update_blocks(repository)
    assert page.read_text() == "<!-- results: printed docs/said.txt 2 -->\n\n```text\none\n  two\n```\n\n<!-- /results -->\n"
    assert blocks.check_blocks(repository) == [] and blocks.update_blocks(repository) == ([], [])
    assert tables.make(repository, "printed", ["docs/said.txt"]).count("\n") == 4
    write(repository, "```\n", "docs/fence.txt")
    for arguments, reason in [("no.txt", "does not exist"), ("said.txt 4", "which has 3"), ("said.txt x", "x is not"), ("fence.txt", "a fence")]:
        with pytest.raises(tables.TableError, match=reason):
            tables.make(repository, "printed", f"docs/{arguments}".split())


def test_what_the_readme_says_of_others_that_are_faster_holds_in_the_committed_runs():
    readme = (ROOT / "README.md").read_text()
    losses = " ".join(readme[readme.index("## Where others are faster") :].split("\n## ")[0].split())
    peers = {}
    for program in ("attention_peers", "backward_peers"):
        report = json.loads((ROOT / "results" / "h200" / f"{program}.json").read_text())
        assert not [c["name"] for cell in report["cells"].values() for c in cell["contenders"] if "3" in c["name"]]
        for cell in report["cells"].values():
            peers.update({(program, cell["problem"]["dim"], i): c["of"] for i, c in enumerate(cell["contenders"], len(peers)) if c["name"] == "tuned"})
    assert "FlashAttention-3 was not measured" in losses
    ahead = {dim for (_, dim, _), of in peers.items() if of["FlashAttention-2"]["median"] < 1}
    assert ahead == {256} and "At head dim 256, FlashAttention-2 is ahead of steps 05 and 06" in losses
    assert all(of["FlashAttention-2"]["median"] < 1 for (_, dim, _), of in peers.items() if dim == 256)
    assert all(of["cuDNN"]["median"] < 1 for (program, dim, _), of in peers.items() if dim >= 64)
    flex = {}
    for cell in json.loads((ROOT / "results" / "h200" / "sparse_peers.json").read_text())["cells"].values():
        for contender in cell["contenders"]:
            if contender["name"].startswith("ours, "):
                over = [of["median"] for name, of in contender["of"].items() if name.startswith("FlexAttention, ")]
                flex.setdefault((cell["problem"]["backward"], cell["problem"]["dim"]), []).extend(over)
    most = lambda values: sum(value < 1 for value in values) > len(values) / 2
    assert "under most masks in the forward pass, and under most masks at head dim 128 in the backward pass" in losses
    assert most(flex[False, 64] + flex[False, 128]) and most(flex[True, 128]) and min(flex[True, 64]) > 1


def test_the_index_shows_the_core_path_before_the_contents_which_list_every_page():
    index = (ROOT / "docs" / "index.md").read_text()
    path, _, rest = index.partition("## Contents")
    assert "## The core path" in path and "<!-- results: reading -->" in path and "results:" not in rest
    first = pages.contents(index)[0][1]
    assert first == ["00_first_kernel.md", "00_how_a_gpu_runs.md"]


LADDER = {
    "01_slow.cuh": ("slow", None, "int a;\n"),
    "02_odd.cuh": ("odd", "01_slow.cuh", "int a;\nint b;\n"),  # no variant
    "03_fast.cuh": ("fast", "02_odd.cuh", "int a;\nint b, c;\nint d;\n"),
    "04_short.cuh": ("short", "03_fast.cuh (option: short rows)", "int a;\n"),
    "05_new.cuh": ("new", "03_fast.cuh (tried: slower)", "int a;\n"),
    "06_old.cuh": (None, None, "// Step 01, file 6: a header of another kind.\n"),
}


@pytest.fixture
def rungs(repository):
    """A step with a ladder, of which `slow` and `fast` are measured, `short` does not support the shape, and `new` is new."""
    folder = repository / "steps" / "01_naive_mha"
    folder.mkdir()
    (folder / "step.cu").write_text('"slow", "fast", "short", "new"')
    for name, (variant, predecessor, text) in LADDER.items():
        head = f"// 01_naive_mha, {variant}: an idea.\n" + (f"// Predecessor: {predecessor}\n" if predecessor else "")
        (folder / name).write_text((head if variant else "") + "//\n" + text)
    write_bench(repository, "4k", "large")
    path = repository / "results" / "h200" / "bench.json"
    reports = json.loads(path.read_text())
    path.write_text(json.dumps([report | {"skipped": [{"variant": "short", "reason": "long rows"}]} for report in reports]))
    return repository


def write_machine_code(repository):
    kernel = lambda file, registers, stack=0, mma=None: {
        "file": file, "registers": registers, "stack": stack, "loop": mma and {"instructions": 100, "HMMA": mma, "LDSM": 1}}  # fmt: skip
    variants = {"slow": ["clear", "add"], "fast": ["add", "multiply"], "new": ["spill"]}
    kernels = {"clear": kernel("rows.cuh", 8), "add": kernel("01_slow.cuh", 20), "multiply": kernel("rows.cuh", 128, mma=64), "spill": kernel("05_new.cuh", 255, 96)}
    (repository / "results" / "machine_code").mkdir()
    record = {"shapes": {"4k": variants}, "kernels": kernels}
    (repository / "results" / "machine_code" / "01_naive_mha.json").write_text(json.dumps(record))


def test_rungs_stand_beside_their_predecessors(rungs):
    write_machine_code(rungs)
    table = tables.make(rungs, "rungs", ["01_naive_mha", "4k"]).splitlines()
    assert table[0] == "| rung | predecessor | added lines | registers | instructions per mma | TFLOP/s | × predecessor |"
    assert table[2:-2] == [
        "| `slow` | - | - | 20 | - | 0.5 | - |",  # the kernel in the rung's own file
        "| `fast` | `slow` | 2 | 128 | 1.56 | 2 | 4.00 |",  # the kernel with mma; lines beside the file before, the time beside `slow`'s
        "| `short` | `fast` (option) | 0 | - | - | - | - |",
        "| `new` | `fast` (tried) | 0 | 255 + 96 B spilled | - | not measured | - |",
    ]


def test_what_is_not_measured_says_so_until_it_is(rungs):
    page = write(rungs, "<!-- results: rungs 01_naive_mha 4k -->\n<!-- /results -->\n")
    blocks.update_blocks(rungs)
    assert "| `fast` | `slow` | 2 | not measured | 2 | 4.00 |" in page.read_text()
    assert "| `new` | `fast` (tried) | 0 | not measured | not measured | - |" in page.read_text()
    assert blocks.check_blocks(rungs) == []
    write_machine_code(rungs)
    assert "+| `fast` | `slow` | 2 | 128 | 1.56 | 2 | 4.00 |" in blocks.check_blocks(rungs)[0].text
    blocks.update_blocks(rungs)
    file = rungs / "steps" / "01_naive_mha" / "03_fast.cuh"
    file.write_text(file.read_text() + "int e;\n")
    assert "+| `fast` | `slow` | 3 |" in blocks.check_blocks(rungs)[0].text


def test_what_a_rung_measured_is_a_sentence_beside_its_predecessor(rungs):
    assert tables.make(rungs, "rung", ["01_naive_mha", "fast", "4k", "none", "large"]) == (
        "**Measured on one H200.** 500 µs at `4k`, 4.00 times the speed of `slow`; 500 µs at `large`, 4.00 times the speed of `slow`."
    )
    assert tables.make(rungs, "rung", ["01_naive_mha", "slow", "4k"]) == "**Measured on one H200.** 2 ms at `4k`."
    assert tables.make(rungs, "rung", ["01_naive_mha", "new", "4k"]) == "**Measured.** No run of this variant is committed yet."
    with pytest.raises(tables.TableError, match="01_naive_mha has no variant quick"):
        tables.make(rungs, "rung", ["01_naive_mha", "quick", "4k"])


def test_rungs_at_several_shapes_and_of_a_softmax(rungs):
    header = tables.make(rungs, "rungs", ["01_naive_mha", "4k", "large"]).splitlines()[0]
    assert header.endswith("| 4k:<br>registers | 4k:<br>TFLOP/s | 4k:<br>× predecessor | large:<br>registers | large:<br>TFLOP/s | large:<br>× predecessor |")
    write_bench(rungs, "4k", problem=SOFTMAX)
    table = tables.make(rungs, "rungs", ["01_naive_mha", "4k"]).splitlines()
    assert table[0].endswith("| registers | GB/s | × predecessor |")
    assert table[3] == "| `fast` | `slow` | 2 | not measured | 17 | 4.00 |"


def test_rungs_that_cannot_be_shown_are_an_error_and_a_step_without_times_is_none(rungs):
    for arguments, reason in [([], "no shape"), (["64k"], "was not measured at 64k")]:
        with pytest.raises(tables.TableError, match=reason):
            tables.make(rungs, "rungs", ["01_naive_mha", *arguments])
    write_bench(rungs, "4k", passed=False)
    with pytest.raises(tables.TableError, match="not right"):
        tables.make(rungs, "rungs", ["01_naive_mha", "4k"])
    assert tables.make(rungs, "rungs", ["02_gemm", "4k"]) == ""


def test_measured_ceilings_are_taken_over_and_those_of_other_programs_stay():
    machine = json.loads((ROOT / "docs" / "machine" / "h200.json").read_text())
    after = ceilings.refreshed(machine, MEASURED)
    assert json.loads(ceilings.to_text(after)) == after
    assert {name: entry for name, entry in after.items() if name != "ceilings"} == {
        name: entry for name, entry in machine.items() if name != "ceilings"
    }
    assert after["ceilings"] == machine["ceilings"] | {
        "copy_bytes_per_second": {
            "value": machine["ceilings"]["copy_bytes_per_second"]["value"],  # confirmed, so kept
            "sustained": 4.25e12,
            "sm_clock_mhz": 1980,
            "what": "copy",
            "date": "2026-12-01",
        },
        "mma_sync_flops_per_second": {
            "value": 690e12,
            "sustained": 615e12,
            "what": "mma.sync",
            "date": "2026-12-01",
        },
    }
    with pytest.raises(ValueError, match="not on NVIDIA H200"):
        ceilings.refreshed(machine, MEASURED | {"device": "NVIDIA A100"})


# ---- links, contents, glossary ----


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("[x](other.md)", None),
        ("[x](other.md#the-n-lanes)", None),
        ("[x](#here)", None),
        ("[x](../steps/a.cuh)", None),
        ("[x](../steps/)", None),
        ("[x](https://example.org/nothing)", None),
        ("`[x](gone.md)`", None),
        ("```\n[x](gone.md)\n```", None),
        ("[x](gone.md)", "does not exist"),
        ("[x][r]\n\n[r]: gone.md", "does not exist"),
        ("![x](images/gone.svg)", "does not exist"),
        ('<img src="gone.png">', "does not exist"),
        ("[x](other.md#gone)", "names a heading"),
        ("[x](#gone)", "names a heading"),
        ("[x](../../elsewhere)", "leaves the repository"),
        ("[x](../../actions/workflows/ci.yml)", "leaves the repository"),  # only README.md is shown where this leads anywhere
    ],
)
def test_dead_links_are_found(repository, link, reason):
    write(repository, "# Other\n\n## The `N` *lanes*\n", "docs/other.md")
    write(repository, f"# Page\n\n## Here\n\n{link}\n")
    problems = pages.check_links(repository)
    assert [reason in problem.text for problem in problems] == ([True] if reason else [])
    assert all(problem.where.startswith("docs/page.md:") for problem in problems)


@pytest.mark.parametrize(("workflow", "reason"), [("ci.yml", []), ("gone.yml", ["README.md:1: there is no workflow gone.yml"])])
def test_the_readme_may_link_to_the_forges_page_of_a_workflow_that_exists(repository, workflow, reason):
    (repository / ".github" / "workflows").mkdir(parents=True)
    write(repository, "", ".github/workflows/ci.yml")
    write(repository, f"![CI](../../actions/workflows/{workflow}/badge.svg)\n", "README.md")
    assert [str(problem) for problem in pages.check_links(repository)] == reason


def test_dead_links_of_notebooks_are_found(repository):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("[x](gone.md)")])
    nbformat.write(notebook, repository / "docs" / "a.ipynb")
    assert len(pages.check_links(repository)) == 1


def test_headings_get_the_anchors_that_a_forge_gives_them():
    slugs = [heading.slug for heading in pages.headings("# 00 · How?\n\n## Q, K, V\n\n## a `b_c`\n\n## Q, K, V\n")]
    assert slugs == ["00--how", "q-k-v", "a-b_c", "q-k-v-1"]


def test_every_page_has_its_place_in_the_contents(repository):
    write(repository, "# One\n", "docs/one.md")
    write(repository, "# Two\n", "docs/two.md")
    index = "# B\n\n[two](two.md)\n\n## Contents\n\n### First\n\n- [One](one.md): see [two](two.md)\n\n## After\n\n- [Two](two.md)\n"
    write(repository, index, "docs/index.md")
    assert pages.contents(index) == [("First", ["one.md"])]
    assert [problem.text for problem in pages.check_contents(repository)] == ["the contents do not list two.md"]
    write(repository, "# B\n\n## Contents\n\n- [One](one.md)\n- [Two](two.md)\n- [Two](two.md)\n", "docs/index.md")
    assert [problem.text for problem in pages.check_contents(repository)] == ["the contents list two.md more than once"]


@pytest.mark.parametrize("second", ["lane", "warp, lane", "Lane"])
def test_a_term_is_bound_once(repository, second):
    write(repository, "# Glossary\n\n## Machine\n\n### lane\nOne.\n\n### block\nTwo.\n", "docs/glossary.md")
    assert pages.check_glossary(repository) == []
    write(repository, f"# Glossary\n\n### lane\nOne.\n\n### {second}\nTwo.\n", "docs/glossary.md")
    assert [problem.where for problem in pages.check_glossary(repository)][:1] == ["docs/glossary.md:6"]


# ---- pictures ----

DRAW = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--out")
open(parser.parse_args().out, "w").write("<svg>{}</svg>")
"""


def test_a_picture_that_its_script_would_draw_differently_is_caught(repository):
    script = repository / "tools" / "book" / "plots" / "roof.py"
    script.parent.mkdir(parents=True)
    script.write_text(DRAW.format("1.000"))
    assert [problem.where for problem in pictures.check_pictures(repository)] == ["docs/images/roof.svg"]
    assert pictures.update_pictures(repository) == ["docs/images/roof.svg"]
    assert pictures.check_pictures(repository) == []
    script.write_text(DRAW.format("1.001"))  # another machine's rounding
    assert pictures.check_pictures(repository) == []
    for other in ("1.100", "1.000 2.000"):
        script.write_text(DRAW.format(other))
        assert len(pictures.check_pictures(repository)) == 1


def test_a_script_without_numbers_has_no_picture_and_an_old_one_is_caught(repository):
    script = repository / "tools" / "book" / "plots" / "roof.py"
    script.parent.mkdir(parents=True)
    script.write_text("pass")
    assert pictures.check_pictures(repository) == []
    picture = repository / "docs" / "images" / "roof.svg"
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text("<svg>1.000</svg>")
    assert [problem.where for problem in pictures.check_pictures(repository)] == ["docs/images/roof.svg"]
    assert pictures.update_pictures(repository) == ["docs/images/roof.svg"]
    assert not picture.exists()


# ---- notebooks ----


@pytest.fixture(scope="module")
def notebooks():
    spec = importlib.util.spec_from_file_location("notebooks_main", ROOT / "tools" / "book" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def notebook(path, source, **fields):
    cell = nbformat.v4.new_code_cell(source, **fields)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    return path


@pytest.mark.parametrize(("source", "reason"), [("print(6 * 7)", None), ("1 / 0", "ZeroDivisionError")])
def test_a_notebook_is_executed_and_a_failing_cell_is_an_error(notebooks, tmp_path, source, reason):
    out = tmp_path / "out" / "a.ipynb"
    error = notebooks.run(notebook(tmp_path / "a.ipynb", source), out, tmp_path)
    assert error is None if reason is None else reason in error
    assert ("42" if reason is None else reason) in out.read_text()


def test_a_notebook_with_outputs_is_refused(notebooks, tmp_path):
    path = notebook(tmp_path / "a.ipynb", "1", execution_count=1)
    assert "clear them" in notebooks.run(path, tmp_path / "out.ipynb", tmp_path)


def test_the_committed_notebooks_hold_no_outputs(notebooks):
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert notebooks.leftovers(nbformat.read(path, as_version=4)) == [], path


# ---- the committed book ----


@pytest.mark.parametrize(
    "check",
    [blocks.check_blocks, pages.check_links, pages.check_contents, pages.check_glossary, pictures.check_pictures, prose.check_words, prose.check_predictions],
)
def test_the_committed_book_passes(check):
    assert [str(problem) for problem in check(ROOT)] == []


def test_a_quotation_stands_beside_its_prose_under_a_link_to_its_source(site):
    text = (site / "00_how_a_gpu_runs.html").read_text()
    row = text[text.index('<div class="beside') :]
    assert row.index('class="prose') < row.index('class="code') < row.index("weight")
    assert 'href="code/steps/01_naive_mha/01_projections.cuh.html#L-' in row


def test_links_to_sources_lead_to_pages_that_show_them(site):
    folder = (site / "code" / "steps" / "01_naive_mha" / "contents.html").read_text()
    assert 'href="step.cu.html"' in folder
    assert 'id="L-1"' in (site / "code" / "steps" / "01_naive_mha" / "step.cu.html").read_text()
