"""The numbers that the book's pictures compute themselves, beside what kernels, formulas and measurements say; and that no text is cut."""

import importlib
import json
from itertools import combinations, pairwise

import pytest
from conftest import ROOT
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from tools.book import book_picture
from tools.book.plots import (
    barrier_race,
    bytes_in_flight,
    chip,
    decoding_ways,
    dependent_launch,
    few_tokens_by_m,
    flash_loops,
    flash_order,
    gemm_tiles,
    naive_matrices,
    roofline_path,
    sectors,
)
from tools.learn import io_counts
from tools.measure.committed import ResultError
from tools.measure.profiling import bounds, ncu
from tools.measure.profiling.machine import MMA_CYCLES


def h200():
    return json.loads((ROOT / "docs" / "machine" / "h200.json").read_text())


def reported(step, shape):
    """{variant: result} of results/h200/bench.json."""
    reports = json.loads((ROOT / "results" / "h200" / "bench.json").read_text())
    (found,) = [report["results"] for report in reports if (report["step"], report["shape"]) == (step, shape)]
    return {result["variant"]: result for result in found}


def test_sectors_and_lines_are_counted_from_the_lanes_addresses():
    fp32, half2, column = map(sectors.counts, sectors.PATTERNS)
    assert fp32 == (32, 4, 1, 1.0)
    assert half2 == (64, 4, 1, 1.0)
    assert column == (32, 32, 32, 0.125)
    shifted = sectors.Pattern("", "", 4, 8, 4)  # each lane also reads its neighbour's word: one sector and one line more
    assert sectors.counts(shifted)[1:3] == (5, 2)


@pytest.mark.parametrize("shape", ["tour", "4k"])
def test_the_matrices_of_step_01_have_the_bytes_that_its_kernels_report(shape):
    result = reported("01_naive_mha", shape)["row_per_thread"]
    problem = result["problem"]
    drawn = {"tour": naive_matrices.TOUR, "4k": naive_matrices.LARGE}[shape]
    assert drawn == (problem["heads"], problem["seq_q"], problem["dim"]) and problem["seq_q"] == problem["seq_k"]
    found = naive_matrices.kernels(*drawn)
    assert {kernel["kernel"].partition("_")[0]: (kernel["bytes_read"], kernel["bytes_written"]) for kernel in result["kernels"]} == found


def test_the_loops_of_v1_and_v2_move_what_the_formulas_say(monkeypatch):
    n, d, tile = flash_loops.N, flash_loops.D, flash_loops.TILE
    monkeypatch.setattr(io_counts, "block_sizes", lambda words, d: (tile, tile))
    (v1_order, v1), (v2_order, v2) = flash_loops.v1_loops(), flash_loops.v2_loops()
    assert sum(v1.values()) == io_counts.v1_bytes(n, d, 48)
    assert sum(v2.values()) == io_counts.v2_bytes(n, d, tile)
    assert sorted(v1_order) == sorted(v2_order) and len(set(v1_order)) == (n // tile) ** 2
    assert v2["O read"] == v2["l, m read"] == v2["l, m written"] == 0


def test_the_tiles_of_the_tuned_product_fit_into_each_other():
    tile = gemm_tiles.tile_of_source()
    assert (tile["rows"], tile["columns"], tile["warp"], tile["threads"]) == (128, 256, 64, 256)
    assert tile["rows"] * tile["columns"] == tile["warps"] * tile["warp"] ** 2
    assert tile["warp"] % gemm_tiles.MMA[0] == tile["warp"] % gemm_tiles.MMA[1] == gemm_tiles.C % tile["rows"] == gemm_tiles.C % tile["columns"] == 0


def test_bars_of_the_order_are_as_wide_as_the_work_of_their_tiles():
    variants = json.loads((ROOT / "results" / "sim" / "05_flash_v2_order.json").read_text())["variants"]
    for name, steps in variants.items():
        drawn = flash_order.spells(steps)
        widths = {(kind, tile): 0 for kind, tile, *_ in drawn if tile is not None}
        for kind, tile, begin, end in drawn:
            if tile is not None:
                widths[kind, tile] += end - begin
        # 16 queries × 64 keys of a warp, d = 64: mma of 16 × 8 × 16; 32 scores in a lane, 2 × 2 shuffles; copies of 16 bytes by 128 threads
        assert widths == {(kind, tile): {"S": 32, "P": 32, "X": 32 + 4, "K": 4, "V": 4}[kind] for kind in "SPXKV" for tile in range(4)}, name
        assert all(before[3] == after[2] for before, after in pairwise(drawn))


def test_a_barrier_makes_the_result_independent_of_the_order():
    found = {barrier: {barrier_race.run(order, barrier).value for order in barrier_race.ORDERS.values()} for barrier in (False, True)}
    assert found == {False: {barrier_race.OLD, barrier_race.NEW}, True: {barrier_race.NEW}}


def test_a_dependent_launch_requests_weights_before_the_launch_before_has_ended_and_tokens_after_that():
    variants = json.loads((ROOT / "results" / "sim" / "08_few_tokens_order.json").read_text())["variants"]
    runs = {name: dependent_launch.run(order) for name, order in variants.items()}
    for name, blocks in runs.items():
        first, second = ([block for block in blocks if block.launch == launch] for launch in (0, 1))
        over = max(block.end for block in first)
        overlaps = [block for block in second if block.begin < over]
        assert len(overlaps) == {"row_groups": 0, "dependent": 2}[name]  # of three: one block is the last of its launch
        for block in second:
            began = {what: begin for what, begin, _ in block.spells}
            assert began["weights"] == block.begin and began.get("tokens", began["mma"]) >= over
        begin, end = dependent_launch.nothing_requested(blocks)
        assert (end > begin) == (name == "row_groups")
    ends = {name: max(block.end for block in blocks) for name, blocks in runs.items()}
    assert ends["dependent"] < ends["row_groups"]


def test_each_tile_of_keys_is_read_once_and_no_sm_reads_two_at_a_time():
    for items in decoding_ways.ITEMS:
        for way, pieces_of in decoding_ways.WAYS.items():
            pieces = pieces_of(items)
            read = sorted((piece.item, tile) for piece in pieces for tile in range(piece.first, piece.last))
            assert read == [(item, tile) for item in range(items) for tile in range(decoding_ways.TILES)], way
            for sm in range(decoding_ways.SMS):
                own = sorted((piece for piece in pieces if piece.sm == sm), key=lambda piece: piece.begin)
                assert all(before.end + before.merge <= after.begin for before, after in pairwise(own)), way
    ends = {items: {way: decoding_ways.ends(way, items)[1] for way in decoding_ways.WAYS} for items in decoding_ways.ITEMS}
    assert min(ends[3], key=ends[3].get) == "cluster" and min(ends[10], key=ends[10].get) == "stream_k"
    waves = {piece.begin for piece in decoding_ways.split_kv(10)}
    assert len(waves) == 3 and sum(piece.begin == max(waves) for piece in decoding_ways.split_kv(10)) == 4  # as page 09 says


def few_tokens(shape, **rates):
    """A cell of few_tokens_peers.json: contenders that read 34 MB at so many TB/s."""
    contenders = [{"name": name, "verdict": "ok", "bytes": 34e6, "burst_ms": {"median": 34e6 / rate * 1e-9}} for name, rate in rates.items()]
    return {shape: {"problem": {"n": 4096, "k": 4096, "m": 1}, "contenders": contenders}}


def test_bytes_in_flight_are_drawn_where_all_four_variants_were_measured_and_there_is_no_picture_before_that():
    machine = json.loads((ROOT / "docs" / "machine" / "h100.json").read_text())
    all_four = few_tokens("a", in_flight_8k=2.0, in_flight_16k=2.5, wide_loads=2.9, in_flight_64k=3.0, tuned=3.1)
    shapes = all_four | few_tokens("b", wide_loads=2.9, tuned=3.1)
    assert {shape: pytest.approx(rates) for shape, rates in bytes_in_flight.measured(shapes).items()} == {"a": [2.0, 2.5, 2.9, 3.0]}
    figure = bytes_in_flight.draw(shapes, machine, "h100")
    ceiling, line = figure.axes[0].lines
    assert list(line.get_xdata()) == [8, 16, 32, 64]
    rate = machine["ceilings"]["read_bytes_per_second"]["value"]
    latency = machine["latency_cycles"]["hbm"] / machine["sm_clock_mhz"] * 1e-6
    needed = rate * latency / machine["multiprocessors"] / 1024
    assert bytes_in_flight.bound(machine, needed / 2) == pytest.approx(rate / 2e12) and max(ceiling.get_ydata()) == pytest.approx(rate / 1e12)
    book_picture.plt.close(figure)
    assert bytes_in_flight.draw(few_tokens("b", wide_loads=2.9), machine, "h100") is None


def sweep(m, dtype="fp16", **us):
    """A cell of few_tokens_sweep.json."""
    contenders = [{"name": name.replace("_only", " only"), "verdict": "ok", "burst_ms": {"median": time / 1000}} for name, time in us.items()]
    return {"problem": {"n": 4096, "k": 4096, "m": m, "dtype": dtype}, "contenders": contenders}


def test_of_each_kind_the_fastest_kernel_is_drawn_by_the_number_of_tokens(tmp_path, monkeypatch):
    tiled = {"02_tiled_gemm, tuned": 17.0}
    cells = {
        "one": sweep(1, read_only=12.0, cuBLAS=15.6, wide_loads=14.0, warp_per_row=30.0, row_groups=14.3, tuned=11.8, **{"cublasLt, best of 8": 9.0}),
        "16": sweep(16, read_only=12.0, cuBLAS=15.9, wide_loads=40.0, ring=18.0, tuned=12.8),
        "64": sweep(64, read_only=12.0, cuBLAS=16.5, **tiled),
        "in another type": sweep(1, "bf16", tuned=1.0),
    }
    kinds = {
        "read only": {1: 12.0, 16: 12.0, 64: 12.0},
        "cuBLAS": {1: 15.6, 16: 15.9, 64: 16.5},
        "GEMV": {1: 14.0, 16: 40.0},
        "skinny": {1: 11.8, 16: 12.8},
        "tiled": {64: 17.0},
    }
    assert few_tokens_by_m.fastest(cells) == {(4096, 4096): {name: pytest.approx(times) for name, times in kinds.items()}}
    monkeypatch.setattr(few_tokens_by_m, "ROOT", tmp_path)
    (tmp_path / "results" / "h100").mkdir(parents=True)
    assert few_tokens_by_m.from_committed_numbers() is None  # no sweep is committed
    (tmp_path / "results" / "h100" / "few_tokens_sweep.json").write_text(json.dumps({"shapes": cells}))
    figure = few_tokens_by_m.from_committed_numbers()
    panel = figure.axes[0]
    assert panel.get_title() == "4096 × 4096" and [line.get_label() for line in panel.lines] == list(few_tokens_by_m.STYLES)
    book_picture.plt.close(figure)
    cells["64"]["contenders"][-1]["verdict"] = "WRONG"
    with pytest.raises(ResultError, match="the result of 02_tiled_gemm, tuned is wrong at 64"):
        few_tokens_by_m.fastest(cells)


def test_an_sm_gets_from_shared_memory_at_most_a_pass_of_128_bytes_in_a_cycle():
    assert 120 < chip.per_cycle(h200()["read_bytes_per_second"]["shared"], h200()) <= 128


def test_a_tensor_core_takes_an_mma_in_the_cycles_that_the_book_says():
    """By the committed profiles of products, in which the share of busy cycles is that of SMs with a block; and less than the roof in a cycle of
    the highest clock would mean that this clock was reached."""
    for launch in ncu.measured(ROOT / "results" / "h200" / "ncu_02_tiled_gemm.csv")["4k"]:
        number = lambda name, launch=launch: float(launch[name].replace(",", ""))
        products = number("sm__inst_executed_pipe_tensor_op_hmma.sum")
        if products > 30e6:
            busy = number("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active") / 100
            cycles = number("gpu__time_duration.sum") * 1e-9 * number("sm__cycles_elapsed.avg.per_second")
            assert busy * cycles * h200()["multiprocessors"] * bounds.SCHEDULERS / products == pytest.approx(MMA_CYCLES, rel=0.03), launch["Kernel Name"]
    assert chip.tensor_flops_per_cycle() == pytest.approx(2686, abs=0.5)
    assert chip.tensor_flops_per_cycle() > chip.per_cycle(h200()["ceilings"]["mma_sync_flops_per_second"]["value"], h200())


def test_no_measured_point_lies_above_the_roofline_and_the_roofs_are_those_of_the_latest_run():
    ceilings = h200()["ceilings"]
    bandwidth, peak = ceilings["copy_bytes_per_second"]["value"], ceilings["mma_sync_flops_per_second"]["value"]
    found = roofline_path.committed()
    assert {step: len(path) for step, path in found.items()} == {"01_naive_mha": 4, "02_tiled_gemm": 13, "04_flash_v1": 6, "05_flash_v2": 2}
    for path in found.values():
        for point in path:
            assert point.tflops * 1e12 <= min(peak, point.intensity * bandwidth), point
    for step, path in found.items():
        times = reported(step, roofline_path.SHAPE)
        assert [point.tflops for point in path] == [times[point.variant]["tflops"] for point in path]
    latest = json.loads((ROOT / "results" / "h200" / "ceilings.json").read_text())["ceilings"]
    for name in ("copy_bytes_per_second", "mma_sync_flops_per_second", "fma_flops_per_second"):
        assert latest[name]["value"] == pytest.approx(ceilings[name]["value"], rel=0.02)


PICTURES = [
    "attention_speed", "backward_speed", "barrier_race", "chip", "decoding_ways", "dependent_launch", "flash_loops", "flash_order", "gemm_tiles", "model", "naive_matrices", "roofline_path", "sectors",
]  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_texts_of_a_picture_are_whole_apart_and_large_enough_for_a_phone(name):
    script = importlib.import_module(f"tools.book.plots.{name}")
    figure = getattr(script, "from_committed_numbers", getattr(script, "draw", None))()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    ticks = {text for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for text in axis.findobj(Text) if text is not axis.label}
    boxes = {}
    for text in figure.findobj(Text):
        if text.get_text().strip() and text.get_visible() and text not in ticks:
            box = boxes[text] = text.get_window_extent(canvas.get_renderer())
            assert 0 <= box.x0 and box.x1 <= figure.bbox.width and 0 <= box.y0 and box.y1 <= figure.bbox.height, text.get_text()
            on_phone = text.get_fontsize() * 350 * 0.75 / (figure.get_size_inches()[0] * 72)  # 350 pixels of 0.75 points
            assert on_phone > 6.7, text.get_text()
    for (one, box), (other, next_box) in combinations(boxes.items(), 2):
        wide, high = min(box.x1, next_box.x1) - max(box.x0, next_box.x0), min(box.y1, next_box.y1) - max(box.y0, next_box.y0)
        assert wide < 1 or high < 2, (one.get_text(), other.get_text())
    book_picture.plt.close(figure)
