"""By what CI tests the graders of step 08: solutions/faults.py says what each table is for. It tells the answers."""

GIVE_AWAYS = {
    "08_few_tokens/2_the_permuted_k": ["words.x, words.z", "words.y, words.w", "threadIdx.x % 4 * chunk"],
    "08_few_tokens/3_a_token_is_lost": ["list_pairs - 32", "smem.next"],
}

FROM_SCRATCH = {
    **{
        ("08_few_tokens/2_the_permuted_k", name): (reason, [(right, wrong)])
        for name, reason, right, wrong in (
            ("pairs_of_the_lesson", "C: row", "{{{words.x, words.z}, {words.y, words.w}}}", "{{{words.x, words.y}, {words.z, words.w}}}"),
            ("mma_exchanged", "C: row", "{{{words.x, words.z}, {words.y, words.w}}}", "{{{words.y, words.w}, {words.x, words.z}}}"),
            ("words_exchanged", "C: row", "{{{words.x, words.z}, {words.y, words.w}}}", "{{{words.z, words.x}, {words.w, words.y}}}"),
            ("chunks_of_other_lanes", "C: row", "threadIdx.x % 4 * chunk", "threadIdx.x / 4 % 4 * chunk"),
            ("k_past_the_end", "out-of-bounds read", "is_there && at < k_end", "is_there && k < k_end"),
            ("tokens_past_the_end", "out-of-bounds read", "is_there && at < k_end", "(is_there || true) && at < k_end"),
        )
    },
    **{
        ("08_few_tokens/3_a_token_is_lost", name): (reason, [(right, wrong)])
        for name, reason, right, wrong in (
            ("first_list_alone", "uninitialised read: .* of 'sums'", "next = after;", "next = max(after, routing.pairs());"),
            ("loses_a_round", "uninitialised read: .* of 'sums'", "smem.next = next;", "smem.next = next + 32;"),
            ("a_round_too_many", "out-of-bounds write|race: ", "count <= list_pairs - 32;", "count <= list_pairs;"),
            ("no_barrier_behind_the_list", "race: |uninitialised read: ", "    __syncthreads();  // the list is complete\n", ""),
            ("no_barrier_before_the_next_list", "race: ", "    __syncthreads();  // everyone has read the list and the sums before they are overwritten\n", ""),
        )
    },
}

RIGHT_FROM_SCRATCH = {
    ("08_few_tokens/3_a_token_is_lost", "looks_from_the_start"): [
        ("  for (int next = 0; next < routing.pairs();) {\n", "  for (int skipped = 0, found_all = 1; skipped < found_all; skipped += list_pairs) {\n"),
        ("for (; next < routing.pairs() && count <= list_pairs - 32; next += 32) {", "for (int next = 0; next < routing.pairs(); next += 32) {"),
        (
            "        if (here) smem.pairs[count + __popc(found & lanes_before())] = pair;\n",
            "        const int place = count + __popc(found & lanes_before()) - skipped;\n        if (here && place >= 0 && place < list_pairs) smem.pairs[place] = pair;\n",
        ),
        ("smem.count = count;", "smem.count = min(count - skipped, list_pairs);"),
        ("smem.next = next;", "smem.next = count;"),
        ("next = after;", "found_all = after;"),
    ],
}

LAZY = {
    ("08_few_tokens/2_the_permuted_k", "word_by_word"): (
        "solution",
        "how many neighbouring k",
        [
            (
                "const uint4 words = load_if(is_there && at < k_end, reinterpret_cast<const uint4*>(token + at));",
                """const auto* from = reinterpret_cast<const std::uint32_t*>(token + at);
  const bool inside = is_there && at < k_end;
  const uint4 words = {load_if(inside, from), load_if(inside, from + 1), load_if(inside, from + 2), load_if(inside, from + 3)};""",
            )
        ],
    ),
    ("08_few_tokens/3_a_token_is_lost", "a_longer_list"): ("task", "64 places", [("list_pairs = 64;", "list_pairs = 512;")]),
    ("08_few_tokens/3_a_token_is_lost", "a_list_of_32_ids"): ("solution", "how many pairs does the block have", [("count <= list_pairs - 32;", "count == 0;")]),
}

WRONG_NUMBERS = {
    "08_few_tokens/1_predict_bytes": {
        "thread_per_row_sectors": [200 * 336, (200 + 7) * 336, (200 + 8 * 3) * 336],  # B alone; one token; an idle warp, too
        "warp_per_row_sectors": [200 * 21, 2 * 200 * 21, 200 * 22 * 4],  # B alone; one token; the half turn as a whole one
        "wide_loads_sectors": [200 * 21, 2 * 200 * 21, 74256],  # B alone; one token; those of thread_per_row
        "warp_per_row_requests": [200 * 11, 200 * 10 * 4, 16800],  # B alone; without the half turn; sectors
        "wide_loads_requests": [200 * 2, 200 * 4 * 4, 200 * 4],  # B alone; slots without a lane; one turn
        "wide_loads_bytes": [2 * 8 * 3 * 512, 3 * 8 * 512, 3 * 8 * 3 * 16],  # two blocks; one slot; of a lane
        "tile_bytes": [12 * 2 * 1024, 3 * 12 * 1024, 3 * 12 * 2 * 64],  # one group; one slot; one row
        "fewest_slots": [5, 3, 11],  # rounded down; two groups; one warp
    },
}

TASK_SAYS = {
    "08_few_tokens/3_a_token_is_lost": [
        ([], r"uninitialised read: .* of 'sums' \(.*\n.*\n.*in kernel few_tokens::combine"),
        (["--m", "64", "--experts", "1", "--top", "1"], None),
        (["--m", "65", "--experts", "1", "--top", "1"], ""),
    ],
}
