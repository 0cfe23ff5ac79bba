"""--trace: what one warp did, in order, as JSON Lines; and the committed observations that the book's pictures are drawn from."""

import json
import runpy
from collections import Counter
from itertools import pairwise

import jsonschema
import pytest
from conftest import BIN, ROOT

from tools.measure import traces

pytestmark = pytest.mark.usefixtures("sim")

SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "trace.schema.json").read_text()))
ALL_LANES = "0xffffffff"
RAGGED_HEADS = ("--heads", 2, "--causal", "--seq-q", 37, "--dim", 5)
RAGGED_PRODUCT = ("--m", 40, "--n", 56, "--k", 72)
ONE_TILE = ("--m", 128, "--n", 128, "--k", 128)  # one block of eight warps that all do the same, in two k-tiles


@pytest.fixture
def trace(tmp_path):
    """Runs a step with --trace; returns [(launch, events), …], every line of which is as the schema says."""

    def call(step, *arguments):
        path = tmp_path / "trace.jsonl"
        step.ok("--no-check", *arguments, "--trace", path)
        launches = []
        for line in map(json.loads, path.read_text().splitlines()):
            SCHEMA.validate(line)
            if "kernel" in line:
                launches.append((line, []))
            else:
                launches[-1][1].append(line)
        return launches

    return call


def ops(events):
    return [event["op"] for event in events]


# ---- what is in it ----


def test_a_warp_of_the_swizzled_kernel_does_what_its_source_says(tiled_gemm, trace):
    ((launch, events),) = trace(tiled_gemm, "--variant", "swizzle", *ONE_TILE)
    assert launch["kernel"] == "tiled_gemm::swizzled_gemm<__half>" and launch["variant"] == "swizzle"
    assert launch["grid"] == [1, 1, 1] and launch["block"] == [256, 1, 1] and launch["problem"]["k"] == 128
    fill = ["ld.global", "st.shared"] * 8
    step = ["ldmatrix.x4"] * 6 + ["mma.m16n8k16.f16"] * 16
    tile = fill + ["bar.sync"] + 4 * step + ["bar.sync"]
    assert ops(events) == 2 * tile + ["st.global"] * 32
    assert all(event["lanes"] == ALL_LANES for event in events)
    assert all(event["where"].startswith("steps/02_tiled_gemm/") for event in events)


def test_addresses_are_offsets_into_the_buffer_and_into_shared_memory_by_lane(tiled_gemm, trace):
    ((_, events),) = trace(tiled_gemm, "--variant", "swizzle", *ONE_TILE)
    load, store = events[0], events[1]
    chunk, row = [lane % 8 for lane in range(32)], [lane // 8 for lane in range(32)]
    assert load["bytes"] == 16 and load["global"]["buffer"] == "a" and load["global"]["sectors"] == 16
    assert load["global"]["offsets"] == [128 * 2 * r + 16 * c for r, c in zip(row, chunk)]
    assert store["shared"]["first"] == "TensorCoreSmem<__half>::a[0][0]"
    assert store["shared"]["offsets"] == [128 * r + 16 * (c ^ r) for r, c in zip(row, chunk)]
    assert events[2]["global"]["buffer"] == "b"
    assert events[3]["shared"]["first"] == "TensorCoreSmem<__half>::b[0][0]"
    first = next(event for event in events if event["op"] == "ldmatrix.x4")
    assert first["shared"]["offsets"] == [128 * (lane % 16) + 16 * (lane // 16 ^ lane % 8) for lane in range(32)]
    assert (first["shared"]["wavefronts"], first["shared"]["wavefronts_ideal"]) == (4, 4)


def test_copies_groups_and_waits_stand_in_their_order(tiled_gemm, trace):
    ((_, events),) = trace(tiled_gemm, "--variant", "pipeline", *ONE_TILE)
    start = [(event["op"], event.get("operand")) for event in events[:20]]
    copies = [("cp.async.cg", None)] * 8
    commit = [("cp.async.commit_group", None)]
    assert start == copies + commit + copies + commit + [("cp.async.wait_group", 1), ("bar.sync", 0)]
    assert events[9]["shared"]["first"] == "PipelineSmem<__half>::stage[1].a[0][0]"
    assert events[9]["global"]["offsets"][:3] == [128, 144, 160]
    tuned = ops(trace(tiled_gemm, "--variant", "tuned", *ONE_TILE)[0][1])
    at = tuned.index("cp.async.wait_all")
    assert tuned[at + 1] == "bar.sync" and "cp.async.wait_all" not in tuned[at + 1 :]


def test_a_lane_that_copies_only_zeros_has_no_source(tiled_gemm, trace):
    ((_, events),) = trace(tiled_gemm, "--variant", "pipeline", "--m", 2, "--n", 8, "--k", 8)
    first = events[0]
    assert first["op"] == "cp.async.cg" and None not in first["shared"]["offsets"]
    assert [lane for lane, offset in enumerate(first["global"]["offsets"]) if offset is not None] == [0, 8]  # two rows, one chunk of eight
    assert "global" not in events[2]  # rows 32 to 35 of A


def test_lanes_that_part_have_events_of_their_own(naive_mha, trace):
    launches = trace(naive_mha, "--variant", "row_per_thread", "--causal", "--heads", 1, "--seq-q", 32, "--dim", 4)
    loads = [event for launch, events in launches for event in events if "scores" in launch["kernel"] and event["op"] == "ld.global"]
    masks = Counter(event["lanes"] for event in loads)
    assert set(masks) == {f"0x{(0xFFFFFFFF << key) & 0xFFFFFFFF:08x}" for key in range(32)}  # row i reads keys 0 to i
    for event in loads:
        present = [offset is not None for offset in event["global"]["offsets"]]
        assert present == [int(event["lanes"], 16) >> lane & 1 == 1 for lane in range(32)]


def test_all_variants_and_launches_are_in_one_file(naive_mha, trace):
    launches = trace(naive_mha, "--variant", "all", "--heads", 1, "--seq-q", 5, "--dim", 4)
    kernels = [(launch["variant"], launch["kernel"].split("::")[1]) for launch, _ in launches]
    assert ("row_per_thread", "softmax_row_per_thread") in kernels and ("block_softmax", "softmax_block_per_row") in kernels
    assert len({variant for variant, _ in kernels}) > 2
    assert all(events for _, events in launches)


# ---- whether it is right ----


@pytest.mark.parametrize(
    "variant, shape",
    [
        ("shared_tile", ("--m", 32, "--n", 32, "--k", 64)),
        ("tensor_cores", ONE_TILE),
        ("padding", ONE_TILE),
        ("pipeline", ONE_TILE),
        ("tuned", ("--m", 128, "--n", 256, "--k", 128)),
    ],
)
def test_equal_warps_together_do_what_is_counted(tiled_gemm, trace, tmp_path, variant, shape):
    ((launch, events),) = trace(tiled_gemm, "--variant", variant, *shape)
    traced, counted = Counter(), Counter()
    for event in events:
        if "bytes" in event:
            at = event["where"], event["op"].removesuffix(".x4"), event["bytes"]
            traced["requests", *at] += "global" in event or not event["op"].startswith("cp.async")
            traced["sectors", *at] += event.get("global", {}).get("sectors", 0)
            for number in ("wavefronts", "wavefronts_ideal"):
                traced[number, *at] += event.get("shared", {}).get(number, 0)
    report = tiled_gemm.report(tmp_path / "r.json", "--no-check", "--variant", variant, *shape, "--counters")
    (counters,) = report["results"][0]["counters"]
    warps = launch["block"][0] * launch["block"][1] // 32
    for line in counters["lines"]:
        plain = {"load": f"ld.{line['space']}", "store": f"st.{line['space']}"}
        for number in ("requests", "sectors", "wavefronts", "wavefronts_ideal"):
            counted[number, line["where"], plain.get(line["op"], line["op"]), line["bytes"]] += line[number] / warps
    assert traced == counted
    assert counters["exact"]["sass__inst_executed_per_opcode.BAR"] == warps * ops(events).count("bar.sync")
    products = counters["exact"].get("sm__inst_executed_pipe_tensor_op_hmma.sum", 0)
    assert products == warps * ops(events).count("mma.m16n8k16.f16")


def test_no_schedule_changes_what_the_warp_does(naive_mha, tiled_gemm, trace):
    other = ["--sim-seed", 9, "--sim-async", "random", "--sim-workers", 1]
    for step, shape in ((naive_mha, RAGGED_HEADS), (tiled_gemm, RAGGED_PRODUCT)):
        one = [events for _, events in trace(step, "--variant", "all", *shape)]
        assert one == [events for _, events in trace(step, "--variant", "all", *shape, *other)]


def test_tracing_changes_neither_results_nor_counters(naive_mha, tiled_gemm, tmp_path):
    for step, shape in ((naive_mha, RAGGED_HEADS), (tiled_gemm, RAGGED_PRODUCT)):
        plain = step.report(tmp_path / "plain.json", "--variant", "all", *shape, "--counters")
        traced = step.report(tmp_path / "traced.json", "--variant", "all", *shape, "--counters", "--trace", tmp_path / "t.jsonl")
        for one, other in zip(plain["results"], traced["results"], strict=True):
            assert one["counters"] == other["counters"] and one["verdict"] == other["verdict"]


def test_a_trace_needs_no_counters_and_leaves_none(tiled_gemm, trace, tmp_path):
    report = tmp_path / "r.json"
    trace(tiled_gemm, "--variant", "swizzle", *ONE_TILE, "--json", report)
    assert json.loads(report.read_text())["results"][0]["counters"] is None


# ---- the command line ----


def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(tiled_gemm, tmp_path):
    done = tiled_gemm("--trace", tmp_path, "--json", tmp_path / "r.json")
    assert done.returncode == 2 and "--trace" in done.stderr and "is a folder" in done.stderr
    assert not (tmp_path / "r.json").exists()


def test_folders_are_made(tiled_gemm, tmp_path):
    tiled_gemm.ok(*ONE_TILE, "--no-check", "--trace", tmp_path / "new" / "folder" / "t.jsonl")
    assert (tmp_path / "new" / "folder" / "t.jsonl").stat().st_size > 0


# ---- what the pictures are drawn from ----


def test_the_committed_observations_are_what_the_simulator_makes_today(tmp_path):
    traces.write(tmp_path, BIN.parent)
    assert len(list(tmp_path.iterdir())) == 13
    for made in tmp_path.iterdir():
        assert made.read_text() == (ROOT / "results" / "sim" / made.name).read_text(), f"{made.name}: tools/measure/traces.py"


def test_fragments_are_those_of_the_ptx_isa():
    fragments = json.loads((ROOT / "results" / "sim" / "fragments.json").read_text())
    for lane in range(32):
        g, t = lane // 4, lane % 4
        a = [[g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)] for i in range(8)]
        assert fragments["mma.m16n8k16 A"][lane] == a
        assert fragments["mma.m16n8k16 B"][lane] == [[2 * t + i % 2 + 8 * (i // 2), g] for i in range(4)]
        assert fragments["mma.m16n8k16 C"][lane] == [[g + 8 * (i // 2), 2 * t + i % 2] for i in range(4)]
        assert fragments["ldmatrix.x4"][lane] == a
        assert fragments["ldmatrix.x4.trans"][lane] == [[2 * t + i % 2 + 8 * (i // 2 % 2), g + 8 * (i // 4)] for i in range(8)]


def backward_observations(name):
    return json.loads((ROOT / "results" / "sim" / f"06_backward_{name}.json").read_text())


def test_the_roles_of_tuned_128_do_in_a_round_what_its_source_says():
    """Round 2 of 4: of tile 2 of queries, and of what an S-warp has left of tile 1. The mma and their loads, 4 · 4 · 8 a product."""
    expected = {
        "P-warp": [["B1", None, 1], ["S", 2, 176], ["P", 2, 24], ["A2", None, 1], ["dV", 2, 72], ["B3", None, 1], ["dV", 2, 80]],
        "S-warp": [["B1", None, 1], ["dK", 1, 152], ["dQ", 1, 176], ["R", 1, 16], ["dP", 2, 180], ["B2", None, 1], ["dS", 2, 16]],
    }
    for warp, round_2 in expected.items():
        steps = backward_observations("roles")["variants"]["tuned_128"][warp]["steps"]
        begins = [i for i, (what, *_) in enumerate(steps) if what == "B1"]
        found = {}  # copies stand between the mma of a product: its parts are added up
        for what, tile, count in steps[begins[2] : begins[3]]:
            if what == "C":
                assert tile == 3 and count == 2  # of the next tile, one of Q and one of dO
            elif what == "dV":
                found.setdefault((what, tile, len(found)), count)
            else:
                key = (what, tile, None)
                found[key] = found.get(key, 0) + count
        assert [[what, tile, count] for (what, tile, _), count in found.items()] == round_2, warp


def test_no_tile_in_shared_memory_is_written_before_its_last_reader_has_passed_a_barrier():
    for variant, warps in backward_observations("roles")["variants"].items():
        for traced in warps.values():
            barriers, at = [], 0
            for what, _, count in traced["steps"]:
                barriers += [at] if what in ("B0", "B1") else []
                at += count
            for place, spells in traced["places"].items():
                for (*_, end), (_, written, *_) in pairwise(spells):
                    assert written is None or any(end <= barrier < written for barrier in barriers), f"{variant}: {place}"


def test_the_lists_of_the_sparse_masks_are_those_that_their_rules_ask_for():
    """Tiles of 128 queries (row) and 64 keys (tile): [right, full, tiles], the last tile first, the partial ones at both ends."""
    masks = json.loads((ROOT / "results" / "sim" / "07_block_sparse_lists.json").read_text())["masks"]
    for row in range(8):
        own = [2 * row + 1, 2 * row]
        right, full, tiles = masks["band:2, causal"][str(row)]
        assert tiles == own + [2 * row - 1, 2 * row - 2] * (row > 0) and (right, full) == (2, len(tiles) - 2)
        assert masks["sink:1+local:1"][str(row)] == [0, 4 if row else 2, own + [1, 0] * (row > 0)]
        right, full, tiles = masks["sink:40t+local:200t, causal"][str(row)]
        near = [tile for tile in range(2 * row + 1, -1, -1) if 64 * tile + 63 > 128 * row - 200 or tile == 0]
        seen = lambda i, j: j <= i and (j < 40 or i - j < 200)
        for tile in range(16):
            pairs = [seen(i, j) for i in range(128 * row, 128 * row + 128) for j in range(64 * tile, 64 * tile + 64)]
            state = "full" if all(pairs) else "partial" if any(pairs) else "dead"
            place = tiles.index(tile) if tile in tiles else None
            listed = "dead" if place is None else "full" if right <= place < right + full else "partial"
            assert listed == state, (row, tile)
        assert sorted(tiles, reverse=True) == near
    for row in masks["random:0.35"].values():
        assert row[:2] == [0, 6] and row[2] == sorted(row[2], reverse=True)  # 3 of 8 blocks of 128, none cut by an edge


def test_the_order_of_work_begins_with_heavy_heads_and_long_lists_and_parts_hold_what_the_rows_held():
    work = json.loads((ROOT / "results" / "sim" / "07_block_sparse_order.json").read_text())["work"]
    mixed, full_row = work["mixed"], work["full row"]
    assert [head for head, *_ in mixed["items"][:64:16]] == [3, 7, 11, 15]  # the dense heads
    assert all(tiles == 32 for *_, tiles in mixed["items"][:64])
    together = [tiles for head, _, tiles in mixed["items"][-8 * 16 :]]
    assert together == sorted(together, reverse=True)
    for problem in (mixed, full_row):
        held = [sum(tiles for head, first, tiles in problem[kind]) for kind in ("items", "split")]
        assert held[0] == held[1]
    assert mixed["items"] == mixed["split"]  # no row is above four times the mean
    lengths = [tiles for *_, tiles in full_row["items"]]
    assert max(lengths) == 64 and max(tiles for *_, tiles in full_row["split"]) <= -(-4 * sum(lengths) // len(lengths))
    assert len(full_row["split"]) == len(lengths) + 12  # the full row of each head in two parts


def test_blocks_add_to_the_tiles_of_queries_that_they_see_in_order_and_one_tile_late():
    observed = backward_observations("additions")
    tiles, per_block = observed["length"] // observed["queries"], observed["keys"] // observed["queries"]
    for name, blocks in observed["masks"].items():
        for number, block in enumerate(blocks):
            begin = number * per_block if name == "causal" else 0
            assert block == [[2 + tile - begin, tile] for tile in range(begin, tiles)]


@pytest.mark.parametrize("variant", ["tensor_cores", "padding", "swizzle"])
def test_rows_lie_where_they_were_stored(variant):
    """The order in which ldmatrix reads chunks, which the picture relies on, agrees with where the stores put what they had loaded."""
    chunks = json.loads((ROOT / "results" / "sim" / "02_tiled_gemm_banks.json").read_text())["variants"][variant]["chunks"]
    gemm = runpy.run_path(str(ROOT / "tests" / "steps" / "02_tiled_gemm" / "traces.py"))
    load, store = gemm["events_of"](variant, BIN.parent)[:2]
    for source, target in zip(load["global"]["offsets"], store["shared"]["offsets"]):
        row, byte = divmod(source, gemm["TILE_BYTES"] * gemm["K_TILES"])
        assert chunks[row][byte // 16] == target
