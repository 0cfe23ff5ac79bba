"""By what CI tests the graders of step 09: solutions/faults.py says what each table is for. It tells the answers."""

MERGE, WAVES = "09_decoding/2_merge_two_splits", "09_decoding/3_the_third_wave"
LASTS = "ceil_div(items * splits, places) * (ceil_div(tiles, splits) + 2)"
SEARCH = """  int best = 1;
  for (int splits = 2; splits <= tiles; ++splits) {
    if (lasts(splits) < lasts(best)) best = splits;
  }
  return best;
"""
UNUSED = "  (void)lasts;\n"
TOO_LONG = "They last as long as .* tiles?, where .* would do"

GIVE_AWAYS = {
    MERGE: ["all.m - m", "state.l == 0.0f"],
    WAVES: ["ceil_div(items * splits", "ceil_div(tiles, splits)"],
}

TASK_SAYS = {
    WAVES: [
        ([], "13 items of 24 tiles, room for 24 blocks: 4 splits, so 52 blocks in 3 waves"),
        (["--batch", "1", "--heads", "1", "--kv-heads", "1", "--seq-k", "1"], "room for 1 block: .* in .* waves"),  # there no rule is wrong
    ],
}

FROM_SCRATCH = {
    **{
        (MERGE, name): (reason, [(right, wrong)])
        for name, reason, right, wrong in (
            ("base_e", "O: row", "kept = exp2f(all.m - m), added = exp2f(state.m - m);", "kept = expf(all.m - m), added = expf(state.m - m);"),
            ("lse_in_base_2", "LSE: row", "device::ln_2 * all.m + logf(all.l)", "all.m + log2f(all.l)"),
            ("lse_with_m_in_base_2", "LSE: row", "device::ln_2 * all.m + logf(all.l)", "all.m + logf(all.l)"),
            ("lse_of_no_key", "LSE: row", "any ? device::ln_2 * all.m + logf(all.l) : -INFINITY", "device::ln_2 * fmaxf(all.m, 0.0f) + logf(fmaxf(all.l, 1.0f))"),
            ("what_came_first_without_its_factor", "O: row", "sum[i] = kept * sum[i] + added", "sum[i] = sum[i] + added"),
            ("what_comes_without_its_factor", "O: row", "added * parts[", "parts["),
            ("l_without_factors", "O: row", "kept * all.l + added * state.l", "all.l + state.l"),
            ("divided_early", "O: row", "added * parts[at * dim + lane + 32 * i]", "added * parts[at * dim + lane + 32 * i] / state.l"),
            ("mean_of_the_parts", "O: row", "sum[i] / all.l", "sum[i] / (all.l * splits)"),
            ("two_splits_alone", "O: row|LSE: row", "part < splits; ++part", "part < min(splits, 2); ++part"),
            ("first_split_left_out", "O: row|LSE: row", "int part = 0; part < splits", "int part = 1; part < splits"),
            ("one_split_for_each_tile", "O: row|LSE: row", "part < splits; ++part", "part < min(splits, work.tiles); ++part"),
            ("o_that_was_not_stored", "uninitialised read: .* of 'parts of O'", "    if (state.l == 0.0f) continue;  // it would change nothing, and has no O\n", ""),
            ("ends_at_a_part_without_a_key", "O: row|LSE: row", "continue;", "break;"),
            ("row_without_keys", "O: row .*nan", "any ? sum[i] / all.l : 0.0f", "sum[i] / all.l"),
            ("64_columns", "O: row", "constexpr int lane_columns = dim / 32;", "constexpr int lane_columns = 2;"),
            ("128_columns", "uninitialised read|out-of-bounds|race", "constexpr int lane_columns = dim / 32;", "constexpr int lane_columns = 4;"),
            ("parts_of_another_item", "O: row|LSE: row|uninitialised read", "(std::int64_t{number} * splits + part)", "(std::int64_t{number} + part * work.items)"),
        )
    },
    **{
        (WAVES, name): (reason, [(right, wrong)])
        for name, reason, right, wrong in (
            ("one_wave", TOO_LONG, SEARCH, UNUSED + "  return std::clamp(places / items, 1, tiles);\n"),
            ("one_wave_rounded_up", TOO_LONG, SEARCH, UNUSED + "  return std::min(ceil_div(places, items), tiles);\n"),
            ("one_tile_each", TOO_LONG, SEARCH, UNUSED + "  return tiles;\n"),
            ("waves_alone", TOO_LONG, LASTS, "ceil_div(items * splits, places) + 0 * tiles"),
            ("parts_alone", TOO_LONG, LASTS, "ceil_div(tiles, splits) + 0 * (items + places)"),
            ("tiles_alone", TOO_LONG, "(ceil_div(tiles, splits) + 2)", "ceil_div(tiles, splits)"),
            ("two_for_each_launch", TOO_LONG, "* (ceil_div(tiles, splits) + 2)", "* ceil_div(tiles, splits) + 2"),
            ("waves_rounded_down", TOO_LONG, "ceil_div(items * splits, places) *", "(items * splits / places + 1) *"),
            ("parts_rounded_down", TOO_LONG, "(ceil_div(tiles, splits) + 2)", "(tiles / splits + 2)"),
            ("two_waves_at_most", TOO_LONG, "splits <= tiles; ++splits", "splits <= tiles && items * splits <= 2 * places; ++splits"),
            ("sixteen_at_most", TOO_LONG, "splits <= tiles; ++splits", "splits <= std::min(tiles, 16); ++splits"),
            ("the_exercises_device", TOO_LONG, "ceil_div(items * splits, places)", "ceil_div(items * splits, places > 1 ? 24 : 1)"),
            ("none", "0 splits, and not 1 … 24", SEARCH, UNUSED + "  return std::min(places / items - 1, tiles);\n"),
            ("more_than_tiles", "48 splits, and not 1 … 24", SEARCH, UNUSED + "  return std::max(items, 2 * places);\n"),
        )
    },
}

RIGHT_FROM_SCRATCH = {
    (MERGE, "maximum_first"): [
        (
            "  for (int part = 0; part < splits; ++part) {\n",
            """  for (int part = 0; part < splits; ++part) {
    all.m = fmaxf(all.m, load(&states[(std::int64_t{number} * splits + part) * item_rows + row]).m);
  }
  for (int part = 0; part < splits; ++part) {
""",
        ),
        ("kept = exp2f(all.m - m), added", "kept = 1.0f, added"),
    ],
    (MERGE, "four_columns_at_a_time"): [
        (
            "    for (int i = 0; i < lane_columns; ++i) sum[i] = kept * sum[i] + added * parts[at * dim + lane + 32 * i];\n",
            """    float more[lane_columns];
    const float* from = &parts[at * dim + lane * lane_columns];
    if constexpr (lane_columns == 4) {
      const float4 four = load(reinterpret_cast<const float4*>(from));
      more[0] = four.x, more[1] = four.y, more[2] = four.z, more[3] = four.w;
    } else {
      const float2 two = load(reinterpret_cast<const float2*>(from));
      more[0] = two.x, more[1] = two.y;
    }
    for (int i = 0; i < lane_columns; ++i) sum[i] = kept * sum[i] + added * more[i];
""",
        ),
        (
            "  for (int i = 0; i < lane_columns; ++i) store(&o_row[lane + 32 * i], from_float<__half>(any ? sum[i] / all.l : 0.0f));\n",
            """  const float inverse = any ? 1.0f / all.l : 0.0f;
  std::uint32_t words[lane_columns / 2];
  for (int w = 0; w < lane_columns / 2; ++w) words[w] = device::packed<__half>(sum[2 * w] * inverse, sum[2 * w + 1] * inverse);
  if constexpr (lane_columns == 4) {
    store(reinterpret_cast<uint2*>(&o_row[4 * lane]), make_uint2(words[0], words[1]));
  } else {
    store(reinterpret_cast<std::uint32_t*>(&o_row[2 * lane]), words[0]);
  }
""",
        ),
    ],
    (WAVES, "lengths"): [
        (
            SEARCH,
            """  int best = 1;
  for (int length = tiles; length > 0; --length) {
    if (const int splits = ceil_div(tiles, length); lasts(splits) < lasts(best)) best = splits;
  }
  return best;
""",
        )
    ],
}

LAZY = {
    (MERGE, "reads_parts_again"): (
        "solution",
        "is each part read once",
        [
            (
                "sum[i] = kept * sum[i] + added * parts[at * dim + lane + 32 * i];",
                "sum[i] = kept * sum[i] + added * 0.5f * parts[at * dim + lane + 32 * i] + added * 0.5f * load(&parts[at * dim + lane + 32 * i]);",
            )
        ],
    ),
    (MERGE, "neighbouring_columns_one_by_one"): (
        "solution",
        "do neighbouring lanes (read|store) neighbours",
        [
            ("parts[at * dim + lane + 32 * i]", "parts[at * dim + lane * lane_columns + i]"),
            ("o_row[lane + 32 * i]", "o_row[lane * lane_columns + i]"),
        ],
    ),
    (MERGE, "every_lane_has_every_column"): (
        "solution",
        "do neighbouring lanes read neighbours",
        [
            ("lane_columns = dim / 32;", "lane_columns = dim;"),
            ("const int lane = threadIdx.x;", "const int lane = 0, thread = threadIdx.x;"),
            ("parts[at * dim + lane + 32 * i]", "parts[at * dim + lane + i]"),
            ("store(&o_row[lane + 32 * i],", "if (i % 32 == thread) store(&o_row[lane + i],"),
            ("if (lane == 0) {", "if (thread == 0) {"),
        ],
    ),
    (WAVES, "the_most_splits"): ("solution", "which number writes the fewest parts", [("lasts(splits) < lasts(best)", "lasts(splits) <= lasts(best)")]),
}

WRONG_NUMBERS = {
    "09_decoding/1_predict_time": {
        "kv_bytes": [245760000, 2 * 491520000, 5 * 491520000],  # K alone; fp32; once for each query head
        "least_microseconds": [55.98, 223.9, 115.65, 0.11196],  # K alone; fp32; at the rate of a copy; milliseconds
        "items": [40, 1600, 100, 15040],  # sequences; query heads; rows packed over key/value heads; tiles
        "whole_rows_blocks": [264, 320, 132, 107],  # the room; one item each; one block on an SM; its busiest block has three
        "whole_rows_tiles": [47, 46, 92, 57, 48],  # one item; rounded down; all tiles over 264 blocks; 128 keys a tile
        "split_kv_splits": [16, 47, 34, 264],  # one block on an SM; as many as tiles; a second wave; over one item
        "parts_bytes": [2162688, 686400, 337920, 135168],  # 16 rows; with m and l; fp16; one row
        "cluster_keys": [449, 512, 496, 8 * 128, 993],  # a tile for every block; whole tiles; one too few; the tile of tuned
        "way_of_40": ["rows", "cluster", "Stream", "stream_k"],
        "way_of_33": ["stream", "cluster", "whole_rows"],
        "way_of_3": ["rows", "stream"],
        "cluster_of_3": [8, 2, 5, 96],  # the largest; half; as many as there is room for; blocks
    },
}
