"""Numbers in the book's prose are those of results/ and docs/machine/, or follow from them. Nobody types a table; sentences are typed, so they are
computed again here. A test that fails names the page and what it should say."""

import json
import math
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from conftest import BIN, ROOT

from tools.book.tables.profiles import metric as number_of
from tools.measure import model_cells
from tools.measure.committed import Results, by_variant, read_json
from tools.measure.profiling import bounds, ncu
from tools.measure.profiling.machine import MMA_CYCLES

H200 = json.loads((ROOT / "docs" / "machine" / "h200.json").read_text())
CEILINGS = {name: entry["value"] for name, entry in H200["ceilings"].items()}
SMS, CLOCK = H200["multiprocessors"], H200["sm_clock_mhz"] * 1e6
LATENCY = round(H200["latency_cycles"]["hbm"] / CLOCK, 9)  # as the pages have it
ROOF = CEILINGS["mma_sync_flops_per_second"] / 1e12


def prose(page):
    """The paragraphs of a page, each as one line, without code and without tables that are made."""
    text = re.sub(r"<!-- results:.*?<!-- /results -->", "", (ROOT / "docs" / page).read_text(), flags=re.DOTALL)
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1\s*$", "", text, flags=re.DOTALL | re.MULTILINE)
    return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text)]


def measured(step, shape):
    """{variant: result} of the committed benchmark."""
    (found,) = [report for (name, at), report in Results(ROOT, "h200").benchmarks().items() if name[:2] == step and at == shape]
    return by_variant(found)


def says(value, text):
    """Whether a number, rounded to the digits of a text, is the text's."""
    return abs(value - float(text)) <= 0.5 * 10 ** -len(text.partition(".")[2]) + 1e-9


# ---- what a variant measured, in the sentence below its prediction ----

SHAPES = {  # {step: {what a page calls a shape: its name}}; "": where nothing is said
    "02": {"": "4k"},
    "04": {"": "4k"},
    "05": {"": "4k", "dim 64": "4k", "dim 128": "4k-d128"},
    "06": {"": "4k", "dim 64": "4k", "dim 128": "4k-d128"},
    "07": {"": "16k", "head dim 64": "16k", "head dim 128": "16k-d128"},
}
TOKEN = re.compile(
    r"(?P<ratio>\d[\d.]*) times(?: the speed of| as fast as)?(?: `(?P<other>\w+)`)?|(?P<rate>\d[\d.]*) TFLOP/s"
    r"|(?P<dim>(?:head )?dim (?:64|128))\b|`(?P<shape>(?:4k|16k)(?:-d128)?(?: causal)?)`"
)
OTHER_RUNS = re.compile(r"burst|FlashAttention|beside other people|\d instead of|which allows|Without strips|the time of|the time:")


def claims(step, paragraph):
    """(ratio or rate as written, the variant compared with or None, shape) of each speed that a paragraph gives of its benchmark."""
    other = None
    for sentence in re.split(r"(?<=[.;])\s", paragraph):
        tokens = [] if OTHER_RUNS.search(sentence) else list(TOKEN.finditer(sentence))
        for i, token in enumerate(tokens):
            if token["dim"] or token["shape"]:
                continue
            other = token["other"] or other
            if token["ratio"] and other is None:
                continue
            after = []  # "at dim 64 and at dim 128"
            for following in tokens[i + 1 :]:
                if following["ratio"] or following["rate"]:
                    break
                after.append(following)
            before = [one for one in tokens[:i] if one["dim"] or one["shape"]]
            for named in after or before[-1:] or [None]:
                shape = SHAPES[step][""] if named is None else named["shape"] or SHAPES[step][named["dim"]]
                yield token["ratio"] or token["rate"], other if token["ratio"] else None, shape


def speeds_of(page):
    """[(what is said, problem or None)] of a page's measured variants."""
    step, variants, found = page.name[:2], [], []
    for paragraph in prose(page.name):
        if paragraph.startswith("#"):
            variants = re.findall(r"`(\w+)`", paragraph)
        if not paragraph.startswith("**Measured") or not variants:
            continue
        for text, other, shape in claims(step, paragraph):
            results = measured(step, shape)
            mine = [results[variant] for variant in variants if variant in results]
            if not mine or (other and other not in results):
                continue
            values = [results[other]["times_ms"]["median"] / one["times_ms"]["median"] if other else one["tflops"] for one in mine]
            right = any(says(value, text) for value in values)
            found.append((f"{page.name}: {text}" + (f" times {other}" if other else " TFLOP/s") + f" of {variants} at {shape}", None if right else values))
    return found


@pytest.mark.parametrize(("page", "at_least"), [("02_tiled_gemm", 7), ("02b_tiled_gemm", 5), ("05_flash_v2", 22), ("06_backward", 14), ("06b_backward", 5), ("07_block_sparse", 8)])
def test_speeds_below_a_prediction_are_those_of_the_committed_benchmark(page, at_least):
    found = speeds_of(ROOT / "docs" / f"{page}.md")
    assert [(what, values) for what, values in found if values] == []
    assert len(found) >= at_least, found  # that the sentences are still understood


# ---- what follows from measurements by arithmetic ----


def launches(step, shape):
    """{kernel: its first launch in the committed profile, metrics as numbers}."""
    (path,) = (ROOT / "results" / "h200").glob(f"ncu_{step}_*.csv")
    first = {}
    for launch in ncu.measured(path)[shape]:
        first.setdefault(ncu.base_name(launch["Kernel Name"]), launch)
    return {name: lambda metric, launch=launch: number_of(launch, metric) for name, launch in first.items()}


def per_mma(launch):
    return launch("smsp__inst_executed.sum") / launch("sm__inst_executed_pipe_tensor_op_hmma.sum")


def cycles(launch):
    return launch("gpu__time_duration.sum") * 1e-9 * launch("sm__cycles_elapsed.avg.per_second")


def speeds_beside(program, variant, other, selected=lambda problem: True):
    """Our speed over another one's in each cell of a run beside PyTorch's kernels."""
    report = json.loads((ROOT / "results" / "h200" / f"{program}.json").read_text())
    cells = [cell["contenders"] for cell in report["cells"].values() if selected(cell["problem"])]
    ours = [one["of"] for contenders in cells for one in contenders if one["name"] == variant]
    return [of[other]["median"] for of in ours if other in of]


def of_claims(problem):
    return problem["dtype"] == "fp16" and problem["dim"] in (64, 128) and problem["seq"] >= 2048


def page_00():
    rate = CEILINGS["read_bytes_per_second"]  # a load waits; half of a copy's bytes are stores
    flight = rate * LATENCY
    yield f"To read {rate / 1e12:.2f} TB/s at a latency of {LATENCY * 1e9:.0f} ns"
    yield f"= {flight / 1e6:.2f} \\text{{ MB}}"
    yield f"That is {flight / SMS / 1e3:.1f} kB for each SM."
    yield f"at most {100 * 64 * 128 / (flight / SMS):.0f} % of the bandwidth"
    fp32, copy = CEILINGS["fp32_flops_per_second"], CEILINGS["copy_bytes_per_second"]
    yield f"{fp32 / copy:.0f} FLOP for each byte in fp32, and {ROOF:.0f} / {copy / 1e12:.2f} = {ROOF * 1e12 / copy:.0f} on the tensor cores"
    yield f"by a factor of {CEILINGS['fma_flops_per_second'] / fp32:.2f} at most"


def page_ceilings():
    kept = CEILINGS["read_bytes_per_second"] * LATENCY / SMS
    yield f"An SM needs [{kept / 1e3:.1f} kB]"
    run = json.loads((ROOT / "results" / "h200" / "ceilings.json").read_text())["ceilings"]
    mma = run["mma_sync_flops_per_second"]
    at = SMS * bounds.SCHEDULERS * bounds.FLOPS_OF_MMA / MMA_CYCLES
    yield f"**Expected.** {at * CLOCK / 1e12:.0f} TFLOP/s"
    yield f"{mma['value'] / 1e12:.0f} TFLOP/s mean {mma['value'] / at / 1e9:.2f} GHz"
    yield f"{mma['sustained'] / 1e12:.0f} TFLOP/s mean a clock of {mma['sustained'] / at / 1e9:.2f} GHz"
    copy, read = run["copy_bytes_per_second"], run["read_bytes_per_second"]
    yield f"{copy['value'] / 1e12:.2f} TB/s in bursts, {copy['sustained'] / 1e12:.2f} sustained: {copy['value'] / 4.8e10:.0f} and {copy['sustained'] / 4.8e10:.0f} %"
    yield f"{read['value'] / 1e12:.2f} TB/s in bursts, {read['sustained'] / 1e12:.2f} sustained: {read['value'] / 4.8e10:.0f} and {read['sustained'] / 4.8e10:.0f} %"


def page_02():
    at = SMS * CLOCK / 1e12
    yield f"= {SMS * bounds.SCHEDULERS * bounds.FLOPS_OF_MMA / MMA_CYCLES * CLOCK / 1e12:.0f}\\ \\text{{TFLOP/s}}"
    yield f"The measured roof is {ROOF:.0f}:"
    yield f"**Expected.** {at * 64 / 33:.2f} TFLOP/s, because"
    yield f"**Expected.** {at * 64 / 2:.1f} TFLOP/s, because"
    passes, flops = 8 * 16 * (2 * 8 + 2 * 2) + 128 * 2 + 128, 2 * 128 * 128 * 16
    yield f"= {passes} \\\\"
    yield f"**Expected.** {at * flops / passes:.0f} TFLOP/s, because the load/store pipe needs {passes} cycles"
    mma, wavefronts = 512 / 4 * MMA_CYCLES, 8 * 768 + 256
    bound = mma / wavefronts
    yield f"**Expected.** {bound * ROOF:.0f} TFLOP/s, because {mma:.0f} cycles of tensor cores wait for {wavefronts} wavefronts: {bound:.2f} of the roof."
    yield f"{measured('02', '4k')['tensor_cores']['tflops'] / round(bound * ROOF):.2f} times the prediction. The banks are the bound"
    yield f"Nsight Compute counts {launches('02', '4k')['register_tile_gemm']('smsp__inst_executed.sum') / (4096**3 / 32):.2f} instructions for each multiply-add"


def page_02b():
    kernels = launches("02", "4k")
    rungs = {"`pipeline`": "pipelined_gemm", "`large_tiles`": "large_tile_gemm", "`wide_epilogue`": "wide_epilogue_gemm", "`addresses`": "addresses_gemm", "`tuned`": "tuned_gemm"}
    for rung, kernel in rungs.items():
        yield f"| {rung} | {per_mma(kernels[kernel]):.2f} |"
    for rung, others in [("large", 584), ("addresses", 63), ("tuned", 72)]:
        yield f"0.6\\cdot{others} = {MMA_CYCLES * 128 + 32 + 0.6 * others:.0f}\\ \\text{{cycles}}"
    for rung, kernel in {"`element_per_thread`": "element_per_thread", "`tensor_cores`": "tensor_core_gemm", "`pipeline`": "pipelined_gemm", "`tuned`": "tuned_gemm"}.items():
        yield f"| {rung} | {kernels[kernel]('sm__cycles_elapsed.avg.per_second') / 1e9:.2f} |"
    tile = cycles(kernels["block_order_gemm"]) / 4  # four waves
    saved = 2048 * 32 / 64
    yield f"**Expected.** {100 * saved / tile:.1f} % less time"
    yield f"this saves {saved:.0f} cycles of some {round(tile, -3):,.0f} for a tile"
    yield f"Nsight Compute saw {(cycles(kernels['addresses_gemm']) - cycles(kernels['tuned_gemm'])) / 4 / 64:.0f} cycles less per k-tile"


def page_03():
    yield f"reads at {CEILINGS['read_bytes_per_second'] / 1e12:.2f} TB/s need {CEILINGS['read_bytes_per_second'] * LATENCY / SMS / 1e3:.1f} kB for each"
    times = {name: one["times_ms"]["median"] for name, one in measured("03", "16k × 4k").items()}
    yield f"**Measured: missed.** {times['three_pass']:.2f} ms."
    yield f"{times['online']:.2f} ms, {times['online'] / times['three_pass']:.2f} of the time of `three_pass`"


def page_05():
    mma, scalar = 64 * MMA_CYCLES, 64 * 2 + 32 * 6
    yield f"$64\\cdot2+32\\cdot6={scalar}$"
    yield f"**Expected.** At most {SMS * CLOCK * 512 * 64 / scalar / 1e12:.0f} TFLOP/s at dim 64, because a warp's {512 * 64:,} FLOP for a tile take {scalar} cycles"
    for variant, wavefronts, expected in [("tensor_cores", 4736, "{:.0f} TFLOP/s"), ("ldmatrix", 704, "Well below {:.0f} TFLOP/s"), ("pipeline", 768, "At most {:.0f} TFLOP/s"), ("registers", 640, "At most {:.0f} TFLOP/s")]:
        assert wavefronts_of_a_tile(variant) == wavefronts
        rate = mma / wavefronts * ROOF
        yield f"**Expected.** {expected.format(rate if variant == 'tensor_cores' else round(rate, -1))} at dim 64"
        if variant != "tensor_cores":
            yield f"{wavefronts} wavefronts per tile allow {mma / wavefronts:.2f} of the roof"
    yield "+128=4736$"
    of_first = json.loads((ROOT / "results" / "h100" / "first_flash.json").read_text())["ms_of_a_launch"]
    share = lambda other: statistics.mean(of_first[other]) / statistics.mean(of_first["first_flash"])
    yield f"it has {share('FlashAttention-2'):.2f} of FlashAttention-2's speed on an H100, and {share('05_flash_v2, tuned'):.2f} of `tuned`'s"
    scalar_kernel = launches("05", "4k-d128")["flash_scalar"]
    yield f"the kernel executes {scalar_kernel('smsp__inst_executed.sum') / (16 * 2 * 128 * 4096**2 / 32):.1f} instructions for each multiply-add"


def sparse_run_over_dense_run(dim, causal, share):
    """How long the dense backward pass took in the run of step 07, over how long it took in that of step 06: the same kernel and problem."""
    times = []
    for file, contender, wanted in [("sparse_peers", "dense, ours", {"backward": True, "share": share}), ("backward_peers", "tuned", {"dtype": "fp16"})]:
        wanted = {"dim": dim, "causal": causal, "seq": 16384, **wanted}
        cells = read_json(ROOT, f"results/h200/{file}.json")["cells"].values()
        (cell,) = [cell for cell in cells if wanted.items() <= cell["problem"].items()]
        times += [one["burst_ms"]["median"] for one in cell["contenders"] if one["name"] == contender]
    there, here = times
    return there / here


def page_05b():
    kernels = launches("05", "4k-d128")
    for variant in ("pipeline", "edge_masks", "folded_scale", "registers", "addresses", "rows_32", "lazy_rescale", "tuned"):
        main = read_json(ROOT, "results/machine_code/05_flash_v2.json")["kernels"]
        (loop,) = [entry["loop"] for name, entry in main.items() if re.fullmatch(rf"flash_{variant}<__half, (TunedTile<)?128>+", name)]
        yield f"| `{variant}` | {loop['instructions'] / loop['HMMA']:.2f} | {per_mma(kernels[f'flash_{variant}']):.2f} |"
        if variant == "tuned":
            usual = loop["instructions"] - model_cells.SELDOM[128]
            yield f"At dim 128 that block has about {model_cells.SELDOM[128]} of the {loop['instructions']:,} instructions. A usual round has {usual} for {loop['HMMA']} mma"
    loop = main["flash_tuned<__half, TunedTile<64>>"]["loop"]
    yield f"At dim 64 a usual round has {loop['instructions'] - model_cells.SELDOM[64]} of {loop['instructions']}, for {loop['HMMA']} mma"
    found = model_cells.cells(Results(ROOT))
    good = [cell for cell in found if abs(cell.off) <= model_cells.WITHIN]
    yield f"**Measured: in part.** {len(good)} of {len(found)} predictions are within {100 * model_cells.WITHIN:.0f} %. The others are too short:"
    assert all(cell.off < 0 for cell in found if cell not in good)
    in_both = [sparse_run_over_dense_run(dim, causal, share) for dim in (64, 128) for causal in (False, True) for share in (0.1, 0.25, 0.5, 1.0)]
    yield f"Step 06's kernel took up to {100 * (max(in_both) - 1):.0f} % longer there than in its own run."
    ours = ("attention_peers", "tuned", "FlashAttention-2")
    selected, whole = speeds_beside(*ours, of_claims), speeds_beside(*ours)
    assert len(selected) == 12
    yield f"`tuned` has {statistics.geometric_mean(selected):.2f} times the speed of FlashAttention-2 in the geometric mean. Over all {len(whole)} cells it has {statistics.geometric_mean(whole):.2f} times."
    yield f"The worst of the twelve cells, dim 128, causal, 2,048 tokens, has {min(selected):.2f}."
    behind = [100 * (1 / over - 1) for over in speeds_beside(*ours, lambda problem: problem["dim"] == 256)]
    yield f"FlashAttention-2 is ahead by {min(behind):.0f} to {max(behind):.0f} %."


def page_06():
    products = 32 * 4096**2 * 64 / 32 / (SMS * CLOCK) * 1e3  # milliseconds of a line for each multiply-add of a warp
    yield f"that is {33 * products:.0f} ms for each of the two. The other three, at two lines, take {6 * products:.0f} ms."
    yield f"**Expected.** {(66 + 6) * products / 1e3:.2f} s at `4k`"
    results = measured("06", "4k")
    yield f"not {6 * products:.0f}."
    yield f"{results['two_kernels']['tflops'] / (MMA_CYCLES / 4 / 4.0 * ROOF):.2f} of the bound"
    yield f"makes the same products in {results['fragment_order']['times_ms']['median'] / results['one_kernel']['times_ms']['median']:.2f} of the time"
    yield f"[{MMA_CYCLES}/4 = {MMA_CYCLES / 4:.3f} cycles]"
    for variants, wavefronts in [("`two_kernels`", 4.0), ("`one_kernel`, `fragment_order`", 2.8), ("`transposed`", 3.1), ("`pipeline`", 3.3), ("`keys_32`, `tuned_64`", 2.0), ("`deterministic`", 2.3)]:
        yield f"| {variants} | {wavefronts} | {MMA_CYCLES / 4 / wavefronts:.2f} |"
    up_to_128 = speeds_beside("backward_peers", "tuned", "FlashAttention-2", lambda problem: problem["dim"] <= 128)
    yield f"`tuned` is {min(up_to_128):.2f} to {max(up_to_128):.2f} times as fast as FlashAttention-2 up to dim 128"


def page_07():
    lengths = [128, 197 - 128]
    yield f"at least {100 * sum(length**2 for length in lengths) / 197**2:.1f} % of the pairs are live"
    times = {shape: {name: one["times_ms"]["median"] for name, one in measured("07", shape).items()} for shape in ("16k", "16k-d128")}
    ratio = [times[shape]["test_per_block"] / times[shape]["list"] for shape in times]
    yield f"`list` is {ratio[0]:.2f} times as fast as `test_per_block` at `16k` (head dim 64) and {ratio[1]:.2f} times at `16k-d128`"
    yield f"`test_per_block` takes {times['16k']['test_per_block']:.2f} ms"
    ratio = [times[shape]["ordered"] / times[shape]["tokens"] for shape in times]
    yield f"`tokens` has {ratio[0]:.2f} and {ratio[1]:.2f} times the speed of `ordered`"


def few_tokens():
    """{"n × k": {m: {contender: µs}}} of step 08 beside cuBLAS."""
    found = {}
    for shape, report in read_json(ROOT, "results/h100/few_tokens_peers.json")["shapes"].items():
        size, tokens = shape.split(", ")
        found.setdefault(size, {})[int(tokens.split()[0])] = {one["name"]: 1000 * one["burst_ms"]["median"] for one in report["contenders"]}
    return found


def page_08():
    us = few_tokens()
    square, wide, small, short = (us[size] for size in ("4096 × 4096", "14336 × 4096", "896 × 896", "4864 × 896"))
    one, eight, sixteen = (square[m]["tensor_cores"] for m in (1, 8, 16))
    yield f"There a kernel that only reads the same bytes takes {square[1]['read only']:.1f} µs"
    yield f"{one:.1f} µs and {eight:.1f} µs at 4096 × 4096. With 16 tokens it takes {sixteen:.1f} µs"
    yield f"{square[16]['row_groups']:.1f} µs instead of {sixteen:.1f}. But at 4864 × 896 it takes {short[16]['row_groups']:.1f} µs instead of {short[16]['tensor_cores']:.1f}"
    gain = lambda size: [cell["tuned_alone"] - cell["tuned"] for cell in size.values()]
    every = [less for size in us.values() for less in gain(size)]
    yield f"{min(every):.1f} to {max(every):.1f} µs less in the {len(every)} cells"
    yield f"the gain is {min(gain(wide)):.1f} to {max(gain(wide)):.1f} µs"
    assert square[1]["tuned"] < square[1]["read only"]
    slower = sum(cell["tuned_alone"] > cell["cuBLAS"] for size in us.values() for cell in size.values())
    yield f"it is slower than cuBLAS in {slower} of {len(every)} cells"
    for size, verb in ((small, "`tuned` takes"), (short, "it takes")):
        yield f"{verb} {size[1]['tuned']:.2f}, {size[8]['tuned']:.2f} and {size[16]['tuned']:.2f} µs"
    said = read_json(ROOT, "results/h100/few_tokens_peers.json")["claims"][-1]["cells"]
    at_one = {f"{said[f'{size}, 1 token']:.2f}" for size in ("14336 × 4096", "4096 × 14336")}
    yield f"`tuned_alone` reaches {' to '.join(at_one)} of its speed with one token at the two largest sizes, and {said['4096 × 4096, 16 tokens']:.2f} at 4096 × 4096 with 16"
    yield f"16 of them take {wide[16]['tuned'] - wide[1]['tuned']:.1f} µs more than one"


def page_08b():
    us = few_tokens()
    for size, m, word in (("4096 × 4096", 1, "where `row_groups` takes"), ("14336 × 4096", 16, "instead of"), ("896 × 896", 1, "instead of")):
        cell = us[size][m]
        unit = " with one token," if word.startswith("where") else ""
        yield f"{cell['cluster']:.1f} µs{unit} {word} {cell['row_groups']:.1f}"
    ahead = [cell["row_groups"] < cell["cluster"] for size in us.values() for cell in size.values()]
    yield f"`row_groups` is faster in {sum(ahead)} cells of {len(ahead)}, and `cluster` in {len(ahead) - sum(ahead)}"


def page_08c():
    shapes = read_json(ROOT, "results/h100/experts_peers.json")["shapes"].values()
    few, one, some, many, most, *alone = ({entry["name"]: 1e3 * entry["burst_ms"]["median"] for entry in shape["contenders"]} for shape in shapes)
    by_calls = "cuBLAS, a call for each expert"
    yield f"{few[by_calls]:.1f} µs, where reading takes {few['read only']:.1f}"
    less = lambda us: us["experts"] - us["experts_unsorted"]
    yield f"{less(few):.1f} µs less for 8 tokens of 2 of 8 experts, and {less(some):.1f} µs less for 16 tokens of 8 of 64"
    assert abs(less(one)) < 0.1
    yield f"{alone[0]['route']:.1f} to {alone[2]['route']:.1f} µs if nothing but `route` is launched"
    yield f"it takes {some['route']:.1f} µs for 128 ids and {many['route']:.1f} µs for 4,096"
    yield f"`route` takes {most['route']:.1f} µs"
    yield f"{few['experts']:.1f} µs, and {few['experts_unsorted']:.1f} with `experts_unsorted`. The reader itself takes {few['read only']:.1f} µs"
    yield f"`route` and `combine` take {few['route'] + few['combine']:.1f} µs of the rest"
    rate = 2 * 4096 * 8 * 4096**2 / (most["experts_tiled"] - most["route"] - most["combine"]) / 1e6
    yield f"{rate:.0f} TFLOP/s, if `route` and `combine` are taken off the time"
    yield f"so this is {rate / 524:.2f} of it"
    over_reader = lambda us, name: us[name] - us["read only"]
    yield f"needs {over_reader(few, 'experts_unsorted'):.0f} µs more than the reader for 8 tokens of 2 of 8 experts, and cuBLAS needs {over_reader(few, by_calls):.0f}"
    yield f"it needs {100 * over_reader(some, 'experts_unsorted') / some['read only']:.0f} % more than the reader"
    over_cublas = lambda us: us["experts_tiled"] / us[by_calls]
    yield f"`experts_tiled` takes {100 * over_cublas(many) - 100:.0f} % longer than cuBLAS"
    yield f"`experts_tiled` takes {over_cublas(most):.1f} times as long as cuBLAS"


def counts_of_decoding(variant, *flags, step="09_decoding", batch="1"):
    """[a kernel's counters, …] of a variant at the shape of the pages of step 09."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counted.json"
        shape = ["--batch", batch, "--heads", "8", "--kv-heads", "2", "--seq-q", "1", "--seq-k", "1024", "--dim", "128", *flags]
        command = [BIN / step, "--variant", variant, *shape, "--no-check", "--counters", "--json", path]
        subprocess.run([str(part) for part in command], capture_output=True, check=True)
        (result,) = json.loads(path.read_text())["results"]
        return [{name: entry["value"] for name, entry in kernel["estimate"].items()} | kernel["exact"] for kernel in result["counters"]]


LOADED, STORED = (f"l1tex__t_sectors_pipe_lsu_mem_global_op_{way}.sum" for way in ("ld", "st"))
OF_SM = lambda machine: machine["read_bytes_per_second"]["l2"] / machine["multiprocessors"]


BEST_09 = "best of PyTorch's"
VARIANTS_09 = ("any_dim", "packed_heads", "warp_rings", "split_kv", "last_block", "whole_rows", "stream_k", "cluster", "tuned", "tuned_99k")  # whose launches wait


def cell_of(problem):
    return problem["batch"], problem["keys"], problem["tokens"], problem["dim"]


def decoding(cell):
    """{contender: µs} of step 09 beside PyTorch's kernels; a cell is named as the pages do, "16 × 4,096"."""
    batch, keys = cell.replace(",", "").split(" × ")
    report = read_json(ROOT, "results/h200/decoding_peers.json")["cells"][f"batch {batch}, {keys} keys"]
    return {one["name"]: 1e3 * one["burst_ms"]["median"] for one in report["contenders"]}


def less(cell, variant, other):
    return decoding(cell)[other] - decoding(cell)[variant]


def gains(variant, other):
    """µs that a variant takes less than another one, for each cell."""
    cells = read_json(ROOT, "results/h200/decoding_peers.json")["cells"].values()
    times = [{one["name"]: 1e3 * one["burst_ms"]["median"] for one in cell["contenders"]} for cell in cells]
    return [us[other] - us[variant] for us in times]


def measured_09():
    short, medium, long, many, longest, most = map(decoding, ("1 × 4,096", "16 × 4,096", "1 × 32,768", "64 × 1,000", "16 × 32,768", "4 × 131,072"))
    part_less = lambda us, variant, other: f"{100 - 100 * us[variant] / us[other]:.{0 if us[variant] / us[other] < 0.95 else 1}f} %"
    yield f"{part_less(medium, 'warp_rings', 'packed_heads')} less at 16 × 4,096: {medium['warp_rings']:.1f} µs instead of {medium['packed_heads']:.1f}. At 64 × 1,000 it is {part_less(many, 'warp_rings', 'packed_heads')}"
    bound = 4 * 8 * 32768 * 128 / (8 * OF_SM(H200)) * 1e6
    yield f"{long['warp_rings']:.0f} µs, {long['warp_rings'] / bound:.1f} times this bound. A kernel that only reads takes {long['read only']:.1f} µs"
    more = lambda us: us["split_kv"] - us["read only"]
    yield f"{more(long):.1f} µs more: {long['split_kv']:.1f} µs instead of {long['read only']:.1f}. At 1 × 4,096 these are {more(short):.1f} µs more"
    yield f"{many['stream_k']:.1f} µs instead of {many['whole_rows']:.1f} at 64 × 1,000. But at 16 × 4,096 `stream_k` takes {medium['stream_k']:.1f} µs, and `whole_rows` {medium['whole_rows']:.1f}"
    yield f"takes whole rows at 16 × 4,096 and needs {medium['tuned']:.1f} µs"
    cells = read_json(ROOT, "results/h200/decoding_peers.json")["cells"].values()
    waiting = [{one["name"]: one["burst_ms"]["median"] for one in cell["contenders"] if one["name"] in VARIANTS_09} for cell in cells]
    yield f"In {sum(min(us, key=us.get) == 'tuned' for us in waiting)} of {len(waiting)} cells `tuned` is the fastest"
    yield f"`whole_rows` is {part_less(many, 'whole_rows', 'tuned')} faster at 64 × 1,000"
    assert min(longest, key=lambda name: longest[name] if name in VARIANTS_09 else math.inf) == "last_block"
    yield f"`last_block` is faster in the two cells with 2.1 GB, by {part_less(most, 'last_block', 'tuned')} at 4 × 131,072"
    best = speeds_beside("decoding_peers", "tuned", BEST_09)
    yield f"{min(best):.3f} to {max(best):.3f} of this speed: `tuned` is behind in {sum(speed < 1 for speed in best)} of {len(best)} cells"
    behind = lambda batch, keys: f"{100 - 100 * speeds_beside('decoding_peers', 'tuned', BEST_09, lambda problem: cell_of(problem) == (batch, keys, 1, 128))[0]:.1f} %"
    yield f"At 16 × 4,096 it is {behind(16, 4096)} behind. At 16 × 32,768 it is {behind(16, 32768)} behind, and at 4 × 131,072 it is {behind(4, 131072)}"
    ahead = speeds_beside("decoding_peers", "tuned_dependent", BEST_09)
    yield f"`tuned_dependent` is ahead of it in {sum(speed > 1 for speed in ahead)} of {len(ahead)} cells, and {100 - 100 * min(ahead):.1f} % behind at 16 × 32,768"
    early = gains("tuned_dependent", "tuned")
    yield f"It takes {min(early):.1f} to {max(early):.1f} µs less than `tuned`"
    for cell in cells:
        peers = {one["name"]: one["burst_ms"]["median"] for one in cell["contenders"] if one["name"].partition(",")[0] in ("FlashAttention-2", "cuDNN", "FlexAttention")}
        assert min(peers, key=peers.get).startswith("cuDNN")


def page_09():
    rate, group, dim, kv_heads = CEILINGS["read_bytes_per_second"], 4, 128, 8
    yield f"An H200 reads {rate / 1e12:.2f} TB/s."
    size = lambda batch, keys: 4 * batch * kv_heads * keys * dim
    for batch, keys in ((16, 4096), (64, 1000), (1, 32768), (1, 4096)):
        yield f"| {batch} × {keys:,} | {size(batch, keys) / 1e6:.3g} MB | {size(batch, keys) / rate * 1e6:.1f} µs |"
    yield f"gets at most its share of what L2 delivers, {OF_SM(H200) / 1e9:.0f} GB/s"
    yield f"At least {size(1, 32768) / (8 * OF_SM(H200)) * 1e6:.0f} µs at 1 × 32,768"
    (alone,) = counts_of_decoding("tuned", step="05_flash_v2")
    (packed,), (rings,), (split, _) = map(counts_of_decoding, ("packed_heads", "warp_rings", "split_kv"))
    mma, barriers = "sm__inst_executed_pipe_tensor_op_hmma.sum", "sass__inst_executed_per_opcode.BAR"
    yield f"{packed[LOADED]:,} sectors instead of {alone[LOADED]:,}, and {packed[mma]:,} `mma` instead of {alone[mma]:,}"
    yield f"The keys and values are {4 * 2 * 1024 * dim // 32:,} of these sectors"
    yield f"{rings[barriers]} `BAR` instead of {packed[barriers]}"
    yield f"{split[STORED]:,} sectors are stored"
    assert alone[mma] == group * 128 // 16 * packed[mma]
    yield from measured_09()


def page_09b():
    (_, last), (split, combine), (any_dim, _), (cluster,) = map(counts_of_decoding, ("last_block", "split_kv", "any_dim", "cluster"))
    yield f"{last[LOADED]:,} sectors are loaded"
    yield f"the {split[LOADED]:,} of `split_kv` and the {combine[LOADED]:,} of `combine`"
    assert last[LOADED] == split[LOADED] + combine[LOADED]
    yield f"{cluster[STORED]} sectors are stored instead of the {split[STORED] + combine[STORED]:,} of `split_kv` and `combine`"
    yield f"{math.ceil(CEILINGS['read_bytes_per_second'] / OF_SM(H200))} SMs are enough on an H200"
    yield f"the kernel asks for {any_dim[LOADED]:,} sectors: {4 * 4 * 2 * 1024 * 128 // 32:,} of K and V"
    yield f"132 SMs ask for {SMS * CLOCK * 64 / 1e12:.1f} TB/s at most, where 4 heads at the memory's rate need {4 * CEILINGS['read_bytes_per_second'] / 1e12:.1f} TB/s"
    yield f"have {100 * 2 * 33 * 4 / 32768:.1f} % more bytes"
    for name in ("h100", "h200"):
        machine = json.loads((ROOT / "docs" / "machine" / f"{name}.json").read_text())
        rate = machine["ceilings"]["read_bytes_per_second"]["value"]
        yield f"| {name.upper()} | {rate / 1e12:.2f} TB/s | {OF_SM(machine) / 1e9:.0f} GB/s | {math.ceil(rate / OF_SM(machine))} |"
    for items in (8, 128, 160):
        bounds = [32 * items * block // 132 for block in range(133)]
        within = [bound for bound in bounds if bound % 32]
        cut = {bound // 32 for bound in within}
        yield f"| {items} | {len(cut)} | {len(cut) + len(within)} |"
    short, medium, long, longest = map(decoding, ("1 × 4,096", "16 × 4,096", "1 × 32,768", "16 × 32,768"))
    yield f"{less('1 × 4,096', 'last_block', 'split_kv'):.1f} µs less at 1 × 4,096 on an H200, and {100 - 100 * longest['last_block'] / longest['split_kv']:.1f} % less at 16 × 32,768. But at 1 × 32,768 it is {less('1 × 32,768', 'last_block', 'split_kv'):.1f} µs less"
    yield f"At 64 × 1,000 `last_block` needs {less('64 × 1,000', 'split_kv', 'last_block'):.1f} µs more"
    yield f"`any_dim` takes {medium['any_dim']:.0f} µs at 16 × 4,096, where `packed_heads` takes {medium['packed_heads']:.1f} µs. So its loads ask for {4 * 4 * 8 * 16 * 4096 * 128 / medium['any_dim'] / 1e6:.1f} TB/s"
    yield f"{less('1 × 4,096', 'cluster', 'split_kv'):.1f} µs less at 1 × 4,096: {short['cluster']:.1f} µs instead of {short['split_kv']:.1f}. But at 1 × 32,768 it takes {less('1 × 32,768', 'split_kv', 'cluster'):.1f} µs more"
    yield f"takes {long['tuned']:.1f} µs instead of {long['cluster']:.1f}"
    gained = sorted(gains("dependent", "cluster"))
    yield f"{gained[1]:.1f} to {gained[-1]:.1f} µs less in {sum(gain > 0 for gain in gained)} of {len(gained)} cells. At 1 × 32,768 `dependent` takes {-less('1 × 32,768', 'dependent', 'cluster'):.1f} µs more"
    yield f"faster than the reader in {('no', 'one', 'two', 'three')[sum(gain > 0 for gain in gains('tuned_dependent', 'read only'))]} cells"
    repeated = measured("09", "1 × 32k keys")
    again = {name: 1e3 * result["times_ms"]["median"] for name, result in repeated.items()}
    yield f"{again['tuned_dependent']:.1f} µs instead of {again['tuned']:.1f}. We do not know why"
    rate = lambda us: f"{4 * 8 * 32768 * 128 / us / 1e6:.1f} TB/s"
    yield f"`cluster` reads {rate(long['cluster'])} with small blocks, and `tuned` reads {rate(long['tuned'])} with large ones. A kernel that only reads with all SMs reaches {rate(long['read only'])}"


def page_09c():
    copied = "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum"
    (whole, _) = counts_of_decoding("stream_k", batch="4")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lengths.npy"
        np.save(path, np.array([1024, 512, 256, 256], np.int32))
        (counted, uneven, _) = counts_of_decoding("stream_k", "--lengths", path, batch="4")
    yield f"{uneven[copied]:,} sectors instead of {whole[copied]:,}"
    yield f"`count_tiles` loads {counted[LOADED]} sector and stores {counted[STORED]}"
    pages = {size: counts_of_decoding("stream_k", "--page-size", size, batch="4")[0][LOADED] - whole[LOADED] for size in ("64", "1")}
    yield f"{pages['64']} more sectors with pages of 64 keys. With pages of one key they are {pages['1']:,}"


def page_ladder():
    cell = few_tokens()["4096 × 4096"][1]
    yield f"it takes {cell['tuned']:.1f} µs for one token at 4096 × 4096, where cuBLAS takes {cell['cuBLAS']:.1f} µs"
    short = decoding("1 × 4,096")
    yield f"it takes {short['tuned']:.1f} µs for one sequence with 4,096 keys, where cuDNN takes {short['cuDNN']:.1f} µs"


DERIVED = {
    "00_how_a_gpu_runs.md": page_00,
    "ceilings.md": page_ceilings,
    "02_tiled_gemm.md": page_02,
    "02b_tiled_gemm.md": page_02b,
    "03_online_softmax.md": page_03,
    "05_flash_v2.md": page_05,
    "05b_flash_v2.md": page_05b,
    "06_backward.md": page_06,
    "07_block_sparse.md": page_07,
    "08_few_tokens.md": page_08,
    "08b_rings_and_clusters.md": page_08b,
    "08c_experts.md": page_08c,
    "09_decoding.md": page_09,
    "09b_sharing_keys.md": page_09b,
    "09c_caches_of_engines.md": page_09c,
    "ladder.md": page_ladder,
}


@pytest.mark.parametrize("page", DERIVED)
def test_a_page_says_what_its_numbers_give(page):
    text = " ".join(" ".join(prose(page)).split())
    assert [sentence for sentence in DERIVED[page]() if sentence not in text] == []


def wavefronts_of_a_tile(variant):
    """Of step 05 at dim 64: 64 queries and 64 keys, counted by the simulator."""

    def wavefronts(keys):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "counted.json"
            shape = ["--heads", "1", "--seq-q", "64", "--seq-k", str(keys), "--dim", "64"]
            command = [BIN / "05_flash_v2", "--variant", variant, *shape, "--no-check", "--counters", "--json", path]
            subprocess.run([str(part) for part in command], capture_output=True, check=True)
            (launch,) = json.loads(path.read_text())["results"][0]["counters"]
        number = {**launch["exact"], **launch["estimate"]}["memory_l1_wavefronts_shared"]
        return number["value"] if isinstance(number, dict) else number

    return (wavefronts(256) - wavefronts(128)) / 2


# ---- names of files ----

FILE = re.compile(r"(?<![\w./<*{…-])((?:[\w.-]+/)*[\w-]+\.(?:cuh|cu|cpp|h|py|cmake|ipynb|csv|gdb|md))(?::(\d+))?(?![\w(*])")
OF_CUDA = {"cuda_fp16.h", "cuda_bf16.h"}


def tracked():
    """{how a text may call a file: the files}: by its path, or by the end of the path."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = {}
    for path in listed.splitlines():
        parts = path.split("/")
        for i in range(len(parts)):
            names.setdefault("/".join(parts[i:]), []).append(path)
    return names


def line_of(path, number):
    lines = (ROOT / path).read_text().splitlines()
    return lines[number - 1] if number <= len(lines) else ""


def test_files_and_lines_that_the_book_names_are_there():
    """In sentences, in reports and in commands; not what a reader makes (build/, NN_name)."""
    known, wrong = tracked(), []
    texts = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "notebooks").glob("*.ipynb")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for path in texts:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for found in FILE.finditer(re.sub(r"https?://\S+", "", line)):
                name = found[1].lstrip("./")
                if name.startswith("build/") or "NN_name" in name or name in OF_CUDA:
                    continue
                at = known.get(name, [])
                kernel = re.search(r" in kernel faulty::(\w+)", line)
                right = [one for one in at if not found[2] or re.search(r"\w", line_of(one, int(found[2])))]
                if not right or (kernel and f"// fault: {kernel[1]}" not in line_of(right[0], int(found[2]))):
                    wrong.append(f"{path.name}:{number}: {found[0]}")
    assert wrong == []


def test_a_release_has_a_date_only_when_it_is_released():
    version = re.search(r"^## (\S+), (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {version[1]}\n" in cited
    assert ("date-released:" in cited) == (version[2] != "not yet released")


def test_pictures_write_xor_as_the_pages_do():
    """⊕ is the merge of two states."""
    assert [path.name for path in (ROOT / "tools" / "book" / "plots").glob("*.py") if "⊕" in path.read_text()] == []
