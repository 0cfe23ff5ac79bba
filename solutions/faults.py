"""By what CI tests the graders: faults to put into the solutions, half mends of the tasks, and kernels that are right, but lazy.

Each is a piece of a solution or a task, and what stands in its place. Read it when you have solved the exercises: it tells the answers.

These are steps 00 to 07. From step 08 on, solutions/NN_name/faults.py adds those of its step to the tables that TABLES names.
"""

from dataclasses import dataclass

TABLES = ("GIVE_AWAYS", "TASK_SAYS", "FROM_SCRATCH", "RIGHT_FROM_SCRATCH", "LAZY", "WRONG_NUMBERS")

# ---- step 00: plain CUDA that is right, but not what was asked for, or wrong ----

PLAIN_FAULTS = {
    ("1_write_a_vector_kernel", "one block"): ("axpy_kernel<<<(n + threads - 1) / threads, threads>>>", "axpy_kernel<<<1, 32>>>", "the grid|must be"),
    ("1_write_a_vector_kernel", "a thousand blocks"): (
        "axpy_kernel<<<(n + threads - 1) / threads, threads>>>",
        "axpy_kernel<<<1000, threads>>>",
        "1000 blocks are launched where 8 would do",
    ),
    ("1_write_a_vector_kernel", "a constant factor"): ("y[i] = a * x[i]", "y[i] = 1.5f * x[i]", r"y\[\d+\] of"),
    ("1_write_a_vector_kernel", "no tail"): ("(n + threads - 1) / threads", "(n / threads > 0 ? n / threads : 1)", r"y\[\d+\] of"),
    ("1_write_a_vector_kernel", "no guard"): ("if (i < n) ", "", "out-of-bounds"),
    ("1_write_a_vector_kernel", "strided"): (
        "const int i = blockIdx.x * blockDim.x + threadIdx.x;",
        "const int i = threadIdx.x * gridDim.x + blockIdx.x;",
        "do neighbouring lanes",
    ),
    ("1_write_a_vector_kernel", "loop"): (
        "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i]",
        "  if (blockIdx.x == 0)\n    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i]",
        None,  # right, and no more sectors: idle blocks are allowed
    ),
    ("2_write_a_row_maximum", "zero"): ("float mine = -INFINITY;", "float mine = 0;", "the maximum of row"),
    ("2_write_a_row_maximum", "no first barrier"): ("  __syncthreads();  // all partial", "  // all partial", "race|uninitialised"),
    ("2_write_a_row_maximum", "one thread"): (
        "for (int j = thread; j < cols; j += threads)",
        "for (int j = 0; j < cols; ++j)",
        "sectors of 32 bytes are read where",
    ),
    ("2_write_a_row_maximum", "stretches"): (
        "for (int j = thread; j < cols; j += threads)",
        "const int part = (cols + threads - 1) / threads;\n  for (int j = thread * part; j < cols && j < (thread + 1) * part; ++j)",
        "sectors of 32 bytes are read where",
    ),
    ("2_write_a_row_maximum", "second barrier in the if"): (
        "    if (thread < active) partial[thread] = fmaxf(partial[thread], partial[thread + active]);\n    __syncthreads();",
        "    if (thread < active) {\n      partial[thread] = fmaxf(partial[thread], partial[thread + active]);\n      __syncthreads();\n    }",
        "skipped barrier: __syncthreads\\(\\) was reached by some threads",
    ),
    ("2_write_a_row_maximum", "idle threads leave early"): (
        "  float mine = -INFINITY;",
        "  if (thread >= cols) return;\n  float mine = -INFINITY;",
        "skipped barrier|uninitialised",
    ),
    ("2_write_a_row_maximum", "1024 columns at most"): (
        "for (int j = thread; j < cols; j += threads)",
        "for (int j = thread; j < cols && j < 1024; j += threads)",
        "sectors of 32 bytes are read, .* must be|the maximum of row",
    ),
    ("3_a_race_on_device_memory", "lost"): ("atomicAdd(&counts[value], 1)", "counts[value] += 1", "race"),
    ("3_a_race_on_device_memory", "a thousand blocks"): ("histogram<<<(n + threads - 1) / threads,", "histogram<<<1000,", "does the grid follow from the size"),
    ("3_a_race_on_device_memory", "one of four"): ("byte < 4", "byte < 3", "among"),
}

# ---- what neither a task nor its page, before the exercises, may say ----

GIVE_AWAYS = {  # {exercise: what tells its answer}
    "00_first_kernel/3_a_race_on_device_memory": ["atomicAdd(&"],
    "02_tiled_gemm/2_find_the_missing_wait": ["an empty group", "groups count", "count groups"],
    "02_tiled_gemm/3_write_the_b_load": ["lane / 16 * 8 + lane % 8", "lane / 8 % 2", "row / 2 % 4"],
    "03_online_softmax/3_write_the_merge": ["Finish{0.0f", "1.0f / row.l"],
    "04_flash_v1/2_find_the_faults": ["new_factor * pv", "ceil_div(shape.seq_k, Bc)"],
    "05_flash_v2/2_find_the_race": ["has read its rows of Q", "or Q there", "before K overwrites"],
    "05_flash_v2/3_write_the_peeling": ["end_key(first_query)", "first_key(last_query)", "inwards", "outwards"],
    "06_backward/2_find_the_race": ["__threadfence"],
    "07_block_sparse/1_build_the_list": ["__popc", "& -full_lanes"],
    "07_block_sparse/2_a_fault_at_a_lists_end": ["left > 2", "next, left > 1"],
    "07_block_sparse/4_balance_a_bad_mask": ["ceil_div(4 * tiles", "ceil_div(count"],
}

# ---- what a task that is not mended says ----

TASK_SAYS = {}  # {exercise: [(flags, what it says and fails; None: it does not fail)]}

# ---- exercise 4 of step 01: each of its five faults alone ----


@dataclass
class Fault:
    right: str  # in the solution, once
    wrong: str  # in its place
    kinds: set  # that the simulator reports of this fault alone
    about: str  # in each report
    lines: tuple  # that the reports name, and no others: the first lines that contain these


FAULTS = {
    "overwrite": Fault(
        right="    __syncthreads();  // everyone has read the keys before these overwrite them\n",
        wrong="",
        kinds={"race"},
        about="Smem::k_tile[",
        lines=("smem.k_tile[j][t] = ", "sum += smem.q[row][t]"),
    ),
    "exchange": Fault(
        right="    __syncwarp();  // the row's lanes have written its part of P before they read each other's\n",
        wrong="",
        kinds={"race", "uninitialised read"},
        about="Smem::p[",
        lines=("smem.p[row][j] = p;", "o_sums[n] += "),
    ),
    "off_by_one": Fault(
        right="first + j < shape.seq_k; j += queries) {\n      const float* v_row",
        wrong="first + j <= shape.seq_k; j += queries) {\n      const float* v_row",
        kinds={"out-of-bounds read"},
        about="past the end of 'v'",
        lines=("smem.v_tile[j][t] = ",),
    ),
    "unwritten": Fault(
        right="for (int t = lane; t < columns; t += row_lanes) smem.q",
        wrong="for (int t = lane; t < shape.dim; t += row_lanes) smem.q",
        kinds={"uninitialised read"},
        about="Smem::q[",
        lines=("sum += smem.q[row][t]",),
    ),
    "divergent": Fault(
        right="  row_max = row_reduce(row_max, Maximum{});",
        wrong="  if (i < shape.seq_q) row_max = row_reduce(row_max, Maximum{});",
        kinds={"deadlock"},
        about="warp 2 lanes 16-31 wait in __syncthreads()",  # warp 2 has the last query, and no other
        lines=("__shfl_xor_sync(", "// everyone has read the keys and values"),
    ),
}

# ---- exercise 3 of step 02: loads that are almost right ----

PLACE = "t ^ row / 2 % 4 * chunk"
LANES = ("lane / 16 * 8 + lane % 8", "lane / 8 % 2 * chunk")

# ---- exercises 2 and 3 of step 03 ----

SOFTMAX_FAULTS = {
    "barrier": ("  __syncthreads();  // the states of all warps are written before any warp merges them\n", ""),
    "factors": ("row = merge_states(row, load(&smem.states[w]));", "row = {fmaxf(row.m, load(&smem.states[w]).m), row.l + load(&smem.states[w]).l};"),
    "empty": ("const float subtracted = device::safe_maximum(m);", "const float subtracted = m;"),
    "empty_by_its_sum": (
        "const float m = fmaxf(a.m, b.m);\n  const float subtracted = device::safe_maximum(m);",
        "if (a.l == 0.0f) return b;\n  if (b.l == 0.0f) return a;\n  const float m = fmaxf(a.m, b.m), subtracted = m;",
    ),
}
MERGE_FAULTS = {
    "one_sided": ("a.l * expf(a.m - subtracted)", "a.l"),
    "not_a_number": ("m == -INFINITY ? 0.0f : m;\n", "m;\n"),
    "row_of_nothing": ("row.m == -INFINITY ? Finish{0.0f, 0.0f} : Finish{-row.m, 1.0f / row.l}", "Finish{-row.m, 1.0f / row.l}"),
    "row_of_nothing_without_shift": (
        "row.m == -INFINITY ? Finish{0.0f, 0.0f} : Finish{-row.m, 1.0f / row.l}",
        "Finish{row.m == -INFINITY ? 0.0f : -row.m, 1.0f / row.l}",
    ),
    "row_of_nothing_by_its_sum_alone": (
        "row.m == -INFINITY ? Finish{0.0f, 0.0f} : Finish{-row.m, 1.0f / row.l}",
        "Finish{-row.m, row.l == 0.0f ? 0.0f : 1.0f / row.l}",
    ),
    # It knows an empty part, and not one of scores that are −∞.
    "empty_by_its_sum": ("const float m = fmaxf(a.m, b.m);\n  const float subtracted = m == -INFINITY ? 0.0f : m;",
                         "if (a.l == 0.0f) return b;\n  if (b.l == 0.0f) return a;\n  const float m = fmaxf(a.m, b.m), subtracted = m;"),
}

# ---- exercise 3 of step 04: {what the grader says, what is right, what is wrong} ----

UPDATE_FAULTS = {
    "without_l": (r"O: row|LSE", "row.l * device::rescale_factor(row.m, row.m_new)", "device::rescale_factor(row.m, row.m_new)"),
    "without_the_old_factor": ("O: row", "row.l * device::rescale_factor(row.m, row.m_new)", "row.l"),
    "without_the_new_factor": ("O: row", "add * pv", "pv"),
    "undivided": ("O: row", " / row.l_new", ""),
    "forgets": ("O: row", "keep * o[t] + ", "(void)keep, "),
}

# ---- kernels from scratch, exercises 4 of steps 02, 03 and 05; and a softmax of step 01 whose NaN nobody would read ----

FROM_SCRATCH = {  # {(exercise, name): (what the grader says, [(what stands in the solution, what is put there)])}
    ("01_naive_mha/2_find_the_fault", "rows_without_a_key"): ("O: row .*nan", [("row_sum == 0.0f ? 0.0f : 1.0f / row_sum", "1.0f / row_sum")]),
    ("01_naive_mha/3_share_the_query", "a_column_for_each_thread"): (
        "uninitialised read: .*q_row",
        [("for (int t = threadIdx.x; t < shape.dim; t += scores_threads) smem", "if (const int t = threadIdx.x; t < shape.dim) smem")],
    ),
    ("01_naive_mha/3_share_the_query", "barrier_of_those_that_copy"): (
        "race: |uninitialised read: ",
        [
            (
                "for (int t = threadIdx.x; t < shape.dim; t += scores_threads) smem.q_row[t] = q_row[t];\n  __syncthreads();",
                "if (threadIdx.x < shape.dim) {\n    for (int t = threadIdx.x; t < shape.dim; t += scores_threads) smem.q_row[t] = q_row[t];\n    __syncthreads();\n  }\n  ",
            )
        ],
    ),
    ("02_tiled_gemm/4_write_a_register_tile", "rows_at_multiples_of_16_bytes"): (
        "misaligned|C: row|out-of-bounds read",
        [
            (
                "      smem.a[t][i] = element_or_zero(a, batch, tile.row + i, first + t, shape.m, shape.k);\n",
                """      const float4* four = reinterpret_cast<const float4*>(&a.row(batch, min(tile.row + i, shape.m - 1))[first + t / 4 * 4]);
      const bool inside = tile.row + i < shape.m && first + t / 4 * 4 + 4 <= shape.k;
      const float4 x = inside ? load(four) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      smem.a[t][i] = t % 4 == 0 ? x.x : t % 4 == 1 ? x.y : t % 4 == 2 ? x.z : x.w;
""",
            )
        ],
    ),
    ("02_tiled_gemm/4_write_a_register_tile", "no_barrier_before_the_loads"): (
        "race: |uninitialised read: ",
        [("    __syncthreads();  // both tiles are written before anyone reads them\n", "")],
    ),
    ("02_tiled_gemm/4_write_a_register_tile", "no_barrier_behind_the_loads"): (
        "race: ",
        [("    __syncthreads();  // everyone has read the tiles before the next ones overwrite them\n", "")],
    ),
    ("02_tiled_gemm/4_write_a_register_tile", "rows_and_columns_exchanged"): (
        "C: row",
        [
            (
                "row = thread / 16 * thread_rows, column = thread % 16 * thread_columns;",
                "row = thread % 8 * thread_rows, column = thread / 8 * thread_columns + 4;",
            )
        ],
    ),
    ("02_tiled_gemm/4_write_a_register_tile", "last_k_tile_left_out"): (
        "C: row",
        [("first < shape.k; first += tile_k", "first + tile_k <= shape.k; first += tile_k")],
    ),
    ("02_tiled_gemm/4_write_a_register_tile", "half_of_a"): (
        "C: row",
        [("load4(&smem.a[step][row + 4], &a_frag[4]);", "load4(&smem.a[step][row], &a_frag[4]);")],
    ),
    ("02_tiled_gemm/4_write_a_register_tile", "no_edge"): (
        "out-of-bounds read",
        [("element_or_zero(b, batch, tile.column + i, first + t, shape.n, shape.k)", "b.row(batch, tile.column + i)[first + t]")],
    ),
    ("03_online_softmax/4_split_a_row", "128_columns"): (
        "O: row|uninitialised read",
        [("  for (int t = lane; t < shape.dim; t += 32) {", "  for (int t = lane; t < min(shape.dim, 128); t += 32) {")],
    ),
    ("03_online_softmax/4_split_a_row", "parts_without_factors"): (
        "O: row",
        [("return {m, f_a * a.l + f_b * b.l, f_a * a.o + f_b * b.o};", "return {m, a.l + b.l, (void(f_a), void(f_b), a.o + b.o)};")],
    ),
    ("03_online_softmax/4_split_a_row", "o_without_factors"): ("O: row", [("f_a * a.o + f_b * b.o};", "a.o + b.o};")]),
    ("03_online_softmax/4_split_a_row", "divided_early"): (
        "O: row",
        [("    o_parts[std::int64_t(blockIdx.x) * shape.dim + t] = o;", "    o_parts[std::int64_t(blockIdx.x) * shape.dim + t] = l == 0.0f ? 0.0f : o / l;")],
    ),
    ("03_online_softmax/4_split_a_row", "mean_of_the_parts"): (
        "O: row",
        [
            (
                "state = merge(state, {part.x, part.y, o_parts[at * shape.dim + t]});",
                "state = {merge(state, {part.x, part.y, 0.0f}).m, merge(state, {part.x, part.y, 0.0f}).l, state.o + o_parts[at * shape.dim + t]};",
            )
        ],
    ),
    ("03_online_softmax/4_split_a_row", "two_empty_parts"): (
        "nan",
        [("const float f_a = expf(a.m - subtracted(m)), f_b = expf(b.m - subtracted(m));", "const float f_a = expf(a.m - m), f_b = expf(b.m - m);")],
    ),
    ("03_online_softmax/4_split_a_row", "an_empty_part"): ("nan|NaN", [("const float p = expf(x - subtracted(m));", "const float p = expf(x - m);")]),
    ("03_online_softmax/4_split_a_row", "row_without_keys"): ("nan", [("state.l == 0.0f ? 0.0f : state.o / state.l;", "state.o / state.l;")]),
    ("03_online_softmax/4_split_a_row", "first_part_alone"): ("O: row", [("p < parts; ++p", "p < min(parts, 1); ++p")]),
    ("03_online_softmax/4_split_a_row", "no_mask"): ("O: row|LSE: row", [("shape.visible_keys(query.i)", "shape.seq_k")]),
    ("03_online_softmax/4_split_a_row", "last_part_in_full"): (
        "out-of-bounds read|O: row",
        [("min(part_keys, shape.visible_keys(query.i) - first_key)", "(shape.visible_keys(query.i) > first_key ? part_keys : 0)")],
    ),
    ("03_online_softmax/4_split_a_row", "states_at_one_place"): (
        "race: .* of 'm and l'",
        [("store(&ml[blockIdx.x], make_float2(m, l));", "store(&ml[row], make_float2(m, l));")],
    ),
    ("03_online_softmax/4_split_a_row", "no_syncwarp"): (
        "race: |uninitialised read: ",
        [("  __syncwarp();  // all of P is written before any lane reads it\n", "")],
    ),
    ("03_online_softmax/4_split_a_row", "lse_of_the_last_part"): (
        "LSE: row",
        [("state.m + logf(state.l);", "load(&ml[std::int64_t(row + 1) * parts - 1]).x + logf(state.l);")],
    ),
    ("04_flash_v1/2_find_the_faults", "last_block_left_out"): (
        "O: row|LSE: row",
        [("j < device::ceil_div(shape.seq_k, Bc)", "j < shape.seq_k / Bc")],
    ),
    ("04_flash_v1/2_find_the_faults", "one_block_more"): (
        "warps pass .* barriers",
        [("j < device::ceil_div(shape.seq_k, Bc)", "j <= shape.seq_k / Bc")],
    ),
    ("04_flash_v1/2_find_the_faults", "no_factor"): ("O: row", [("new_factor * pv", "pv")]),
    ("04_flash_v1/2_find_the_faults", "old_factor_for_both"): ("O: row", [("new_factor * pv", "old_factor * pv")]),
    **{
        ("05_flash_v2/3_write_the_peeling", name): (reason, [(right, wrong)])
        for name, reason, right, wrong in (
            ("outwards_too_far", "not for the least work", "(some_end + keys - 1) / keys;", "(some_end + keys) / keys;"),
            ("end_of_the_first_query", "O: row", "some_end = shape.end_key(last_query)", "some_end = shape.end_key(first_query)"),
            ("end_inwards", "O: row", "end = (some_end + keys - 1) / keys;", "end = some_end / keys;"),
            ("always_from_0", "not for the least work", "begin = some_begin / keys, end", "begin = 0 * some_begin, end"),
            ("free_outwards", "O: row|LSE: row", "free_end = shape.end_key(first_query) / keys;", "free_end = (shape.end_key(first_query) + keys - 1) / keys;"),
            ("free_of_the_last_query", "O: row|LSE: row", "free_end = shape.end_key(first_query) / keys;", "free_end = shape.end_key(last_query) / keys;"),
            ("free_begins_outwards", "O: row|LSE: row", "(shape.first_key(last_query) + keys - 1) / keys;", "shape.first_key(last_query) / keys;"),
            ("free_begins_with_the_first_query", "O: row|LSE: row", "(shape.first_key(last_query) + keys - 1)", "(shape.first_key(first_query) + keys - 1)"),
            ("nothing_free", "not for the least work", "if (free_begin >= free_end) return", "if (free_begin >= 0) return"),
            ("one_query_more", "not for the least work|O: row", "first_query + queries - 1;", "first_query + queries;"),
        )
    },
    ("05_flash_v2/4_turn_the_loops", "no_rescale"): ("O: row", [("acc[r][n] = factor * acc[r][n] + pv;", "acc[r][n] += pv;")]),
    ("05_flash_v2/4_turn_the_loops", "l_without_factor"): (
        "O: row|LSE: row",
        [("states[r] = {m, factor * states[r].l + warp_sum(p)};", "states[r] = {m, states[r].l + warp_sum(p)};")],
    ),
    ("05_flash_v2/4_turn_the_loops", "divided_in_every_tile"): (
        "O: row",
        [("acc[r][n] = factor * acc[r][n] + pv;", "acc[r][n] = (factor * acc[r][n] + pv) * device::inverse_sum(states[r].l);")],
    ),
    ("05_flash_v2/4_turn_the_loops", "last_tile_left_out"): (
        "O: row|LSE: row",
        [("first_key < end_key; first_key += tile_keys) {", "first_key + tile_keys <= end_key; first_key += tile_keys) {")],
    ),
    ("05_flash_v2/4_turn_the_loops", "no_barrier_before_the_scores"): (
        "race: |uninitialised read: ",
        [("    __syncthreads();  // K and V, and before the first tile Q, are written before any warp reads them\n", "")],
    ),
    ("05_flash_v2/4_turn_the_loops", "no_barrier_behind_the_tile"): (
        "race: ",
        [("    __syncthreads();  // everyone has read K and V before the next tile overwrites them\n", "")],
    ),
    ("05_flash_v2/4_turn_the_loops", "row_without_keys"): ("nan", [("device::inverse_sum(states[r].l)", "1.0f / states[r].l")]),
    ("05_flash_v2/4_turn_the_loops", "lse_in_base_2"): ("LSE: row", [("device::log_sum_exp(states[r])", "states[r].m + log2f(states[r].l)")]),
}
RIGHT_FROM_SCRATCH = {  # other solutions, which the grader must accept
    ("03_online_softmax/4_split_a_row", "empty_parts_not_stored"): [
        ("for (int t = lane; t < shape.dim; t += 32) {\n    float o = 0.0f;", "for (int t = lane; t < shape.dim && keys > 0; t += 32) {\n    float o = 0.0f;"),
        ("      state = merge(", "      if (part.y > 0.0f) state = merge("),
    ],
    ("05_flash_v2/4_turn_the_loops", "lane_0_alone_stores"): [
        ("    store_if(lane == 0, &lse[row], device::log_sum_exp(states[r]));", "    if (lane == 0) lse[row] = device::log_sum_exp(states[r]);"),
        ("using device::store_if;\n", ""),
    ],
    ("05_flash_v2/4_turn_the_loops", "rows_side_by_side"): [
        ("const int row = warp + r * warps;", "const int row = warp * rows_of_warp + r;"),
        ("const int i = first_row + warp + r * warps;", "const int i = first_row + warp * rows_of_warp + r;"),
    ],
}
WRONG_BLOCKS = {  # exercise 5 of step 05
    "A_h200": [3],  # registers not rounded up to 8
    "B_h200": [3],  # by shared memory alone
    "C_h200": [4],  # by shared memory alone
    "D_h200": [4, 6],  # 128 threads; by shared memory alone
    "tile_h200": ["A", "C", "D"],  # the first with two; the most blocks; the most warps
    "A_99k": [0, 2],  # it does not fit; by registers alone
    "B_99k": [0, 2],  # the same
    "C_99k": [2],  # without the 1,024 bytes
    "D_99k": [3, 4],  # by shared memory alone; 128 threads
    "tile_99k": ["A", "B", "C"],
}

# ---- step 06 ----

SHARES_FAULTS = {  # the first output that is wrong, what is right, what is wrong
    "p_into_dk": ("dK", "return {shape.scale * ds, shape.scale * ds, p}", "return {shape.scale * ds, shape.scale * p, p}"),
    "without_d": ("dQ", "p * (do_v - do_o)", "p * do_v"),
    "scale_twice": ("dK", "shape.scale * ds, shape.scale * ds, p", "shape.scale * ds, shape.scale * shape.scale * ds, p"),
    "dq_without_scale": ("dQ", "return {shape.scale * ds,", "return {ds,"),
    "score_without_scale": ("dQ", "shape.scale * q_k - lse", "q_k - lse"),
    "lse_in_base_2": ("dQ", "expf(shape.scale * q_k - lse)", "exp2f(shape.scale * q_k - lse)"),
    "no_mask": ("d[QK]", "if (j < shape.first_key(i) || j >= shape.end_key(i)) return {0.0f, 0.0f, 0.0f};", "(void)i, (void)j;"),
    "one_key_too_many": ("d[QK]", "j >= shape.end_key(i)", "j > shape.end_key(i)"),
    "no_window": ("d[QK]", "j < shape.first_key(i) || ", ""),
}
COUNT = "    smem.earlier = atomicAdd(&arrived[batch * shape.kv_heads + kv_head], 1);\n"
BARRIER, FENCE = "  __syncthreads();\n", "    __threadfence();\n"
RACE_MENDS = {  # what stands before the branch of thread 0, and inside it
    "barrier_alone": (BARRIER, COUNT),
    "fences_without_barrier": ("", FENCE + COUNT + FENCE),
    "all_fence_without_barrier": ("  __threadfence();\n", COUNT + FENCE),
    "only_the_writer_fences": (BARRIER, FENCE + COUNT),
    "only_the_reader_fences": (BARRIER, COUNT + FENCE),
    "fence_before_the_barrier": ("  if (threadIdx.x == 0) __threadfence();\n" + BARRIER, COUNT + FENCE),
    "another_thread_fences": (BARRIER + "  if (threadIdx.x == 1) __threadfence();\n", COUNT + FENCE),
    "warp_barrier": ("  __syncwarp();\n", FENCE + COUNT + FENCE),
    "fences_of_the_block": (BARRIER, (FENCE + COUNT + FENCE).replace("fence()", "fence_block()")),
    "count_of_the_block": (BARRIER, FENCE + COUNT.replace("atomicAdd(", "atomicAdd_block(") + FENCE),
}

# ---- step 07 ----

LIST_FAULTS = {  # what the grader says, what is right, what is wrong
    "first_tile_first": ("its tiles are", "__popc(full_lanes & before)", "__popc(full_lanes & ~before) - 1"),
    "lanes_up_to_this": ("its tiles are|race: |out-of-bounds write: ", "(1u << lane) - 1;", "(2u << lane) - 1;"),
    "forgets_earlier_rounds": ("right, full and left are", "full_before |= full_lanes != 0;", "full_before = false;"),
    "all_partial_ones_right": ("right, full and left are", "full_before ? 0 : partial_lanes & up_to_full", "(void(up_to_full), partial_lanes)"),
    "lane_0_alone": ("right, full and left are", "list.full += __popc(full_lanes);", "list.full += full_lanes & 1;"),
    "partial_as_full": ("right, full and left are", "__ballot_sync(all_lanes, state == full)", "__ballot_sync(all_lanes, state != dead)"),
    "another_heads_mask": ("right, full and left are", "head / shape.heads, head % shape.heads,", "head / shape.heads, 0,"),
    "rows_at_one_place": ("race: .* of 'tiles'", "TileList list{row * most,", "TileList list{0,"),
    "rows_that_are_not": ("out-of-bounds write: .* of 'lists'", "  if (row >= sizes.rows) return;\n", ""),
}
COPY, MORE, AFTER = "at + 2);", "next >= 0,", "next = a.tile_after();"
COPY_OF_THE_LIST, COPY_LEFT_OUT = "at + 2, left > 2 ? 4 : 0);", ("if (threadIdx.x == 0) ptx::", "if (threadIdx.x == 0 && left > 2) ptx::")
WALK_MENDS = {  # what the grader says, what stands for what
    "use_alone": ("out-of-bounds read: .* of 'tiles'", [(MORE, "left > 1,")]),
    "size_0_alone": ("not for the least work", [(COPY, COPY_OF_THE_LIST)]),
    "stays_inside": ("not for the least work", [(COPY, "at + min(2, left - 1));")]),
    "one_too_far": ("(out-of-bounds|uninitialised) read: .* of 'tiles'", [(COPY, "at + 2, left > 1 ? 4 : 0);"), (MORE, "left > 1,")]),
    "one_too_few": ("O: row", [(COPY, "at + 2, left > 3 ? 4 : 0);"), (MORE, "left > 1,")]),
    "none_at_the_end": ("O: row", [(COPY, COPY_OF_THE_LIST), (MORE, "left > 2,")]),
    "an_old_index": ("uninitialised read: .*after|not for the least work", [COPY_LEFT_OUT]),
}
RIGHT_MENDS = {
    "guarded": [(COPY, COPY_OF_THE_LIST), (AFTER, "next = left > 1 ? a.tile_after() : -1;")],
    "left_out": [COPY_LEFT_OUT, (AFTER, "next = left > 1 ? a.tile_after() : -1;")],
}
BALANCE_FAULTS = {
    "never": ("a block visits .* times the mean", "return max(1, device::ceil_div(count, limit));", "return limit > 0 && count > 0 ? 1 : 1;"),
    "rounded_down": ("a block visits .* times the mean", "max(1, device::ceil_div(count, limit))", "max(1, count / limit)"),
    "limit_rounded_down": ("fewer would do", "max(1, device::ceil_div(4 * tiles, rows))", "max(1, 4 * tiles / rows)"),
    "limit_of_the_mean": ("no balance needs more than", "device::ceil_div(4 * tiles, rows)", "device::ceil_div(tiles, rows)"),
    "always_two": ("no balance needs more than", "max(1, device::ceil_div(count, limit))", "(void(limit), void(count), 2)"),
    "no_part": ("a row has 0 parts", "max(1, device::ceil_div(count, limit))", "device::ceil_div(count, limit)"),
    "first_part_alone": ("O: row", "p < parts;", "p < min(parts, 1);"),
    "o_without_factors": ("O: row", "sum = merged.first * sum + merged.second * o[p * o_stride];", "sum += o[p * o_stride];"),
    "l_without_factors": ("O: row", "row = merged.state;", "row = {merged.state.m, row.l + part.y};"),
    "divided_early": ("O: row", "merged.second * o[p * o_stride]", "merged.second * o[p * o_stride] * device::inverse_sum(part.y)"),
    "rows_of_nothing": ("element 0 is nan where no key is seen", "device::inverse_sum(row.l)", "1.0f / row.l"),
    "base_2": ("LSE: row", "device::log_sum_exp(row)", "row.m + log2f(row.l)"),
}

# ---- kernels whose result is right, and which do not do what was asked for: by the counters ----

ROW_TREE = """  for (int live = softmax_threads / 2; live > 0; live /= 2) {
    if (thread < live) smem.partial[thread] = fmaxf(smem.partial[thread], smem.partial[thread + live]);
    __syncthreads();  // this level is written before the next reads it
  }
"""
ROW_CHAIN = """  if (thread == 0) {
    for (int other = 1; other < softmax_threads; ++other) smem.partial[0] = fmaxf(smem.partial[0], smem.partial[other]);
  }
  __syncthreads();
"""
LDMATRIX = """  const int row = first_row + lane / 16 * 8 + lane % 8;
  ptx::ldmatrix_x4(frag, &b[row][place(row, step + lane / 8 % 2 * chunk)]);
"""
BY_WORDS = """  for (int i = 0; i < 4; ++i) {
    const int row = first_row + i / 2 * 8 + lane / 4;
    frag[i] = load(reinterpret_cast<const std::uint32_t*>(&b[row][place(row, step + i % 2 * chunk) + lane % 4 * 2]));
  }
"""
ONLINE = "for (int j = thread; j < shape.cols; j += threads) row = merge_states(row, {x_row[j], 1.0f});"
TWO_LOOPS = """for (int j = thread; j < shape.cols; j += threads) row.m = fmaxf(row.m, x_row[j]);
  for (int j = thread; j < shape.cols; j += threads) row.l += expf(x_row[j] - device::safe_maximum(row.m));"""
PARTS = "for (int j = begin + lane; j < end; j += 32) mine = merge(mine, {x_row[j], 1.0f});"
PARTS_TWICE = """for (int j = begin + lane; j < end; j += 32) mine.m = fmaxf(mine.m, x_row[j]);
  for (int j = begin + lane; j < end; j += 32) mine.l += mine.m == -INFINITY ? 0.0f : expf(x_row[j] - mine.m);"""
COLUMNS = "for (int t = threadIdx.x % 32; t < dim; t += 32) {"
STRETCHES = """const int lane = threadIdx.x % 32, part = (dim + 31) / 32;
  for (int t = lane * part; t < min(dim, (lane + 1) * part); ++t) {"""
SUM_OF_KEYS = """    float pv = 0.0f;
    for (int c = 0; c < keys; ++c) pv += p[c] * v[c][t];
    o[t] = (keep * o[t] + add * pv) / row.l_new;
"""
KEY_BY_KEY = """    o[t] *= keep / row.l_new;
    for (int c = 0; c < keys; ++c) o[t] += add * p[c] * v[c][t] / row.l_new;
"""
WALK_BEGINS, WALK_ENDS = "  // Calls visit(", "}\n\n}  // namespace exercise"
ONE_LANE = """  if (lane != 0) return;
  TileList list{row * most, 0, 0, 0};
  for (int place = 0; place < 3; ++place) {
    bool full_before = false;
    for (int tile = states.tiles.end - 1; tile >= states.tiles.begin; --tile) {
      const TileState state = states.of(tile);
      full_before |= state == full;
      const int of_tile = state == full ? 1 : state == partial ? (full_before ? 2 : 0) : 3;
      if (of_tile != place) continue;
      tiles[list.first + list.right + list.full + list.left] = tile;
      ++(place == 0 ? list.right : place == 1 ? list.full : list.left);
    }
  }
  store(reinterpret_cast<int4*>(&lists[row]), make_int4(list.first, list.right, list.full, list.left));
"""
PART_OF_ROW = "    const float2 part = device::load(reinterpret_cast<const float2*>(&states[p * state_stride]));\n"
LOOKS_AGAIN = (
    PART_OF_ROW
    + """    for (int again = 0; again < parts; ++again) {
      if (device::load(reinterpret_cast<const float2*>(&states[again * state_stride])).x + o[again * o_stride] > 1e30f) return {};
    }
"""
)
WHOLE_ROW = [  # the block of part 0 takes the whole row, and the others have nothing to do
    ("  const int first_key = part * part_keys;\n", "  if (part > 0) return;\n"),
    ("min(part_keys, shape.visible_keys(query.i) - first_key);", "shape.visible_keys(query.i);"),
    (
        "  float x = -INFINITY;\n  if (lane < keys) x = score(shape, q.row(query.batch, query.head, query.i), k.row(query.batch, kv_head, first_key + lane));\n",
        "  float x = -INFINITY;\n  for (int c = lane; c < keys; c += 32) x = fmaxf(x, score(shape, q.row(query.batch, query.head, query.i), k.row(query.batch, kv_head, c)));\n",
    ),
    (
        "  const float p = expf(x - subtracted(m));\n  float l = p;\n",
        "  float l = 0.0f;\n  for (int c = lane; c < keys; c += 32) l += expf(score(shape, q.row(query.batch, query.head, query.i), k.row(query.batch, kv_head, c)) - m);\n",
    ),
    ("  smem.p[lane] = p;\n", "  (void)smem;\n"),
    (
        "o += smem.p[c] * v.row(query.batch, kv_head, first_key + c)[t];",
        "o += expf(score(shape, q.row(query.batch, query.head, query.i), k.row(query.batch, kv_head, c)) - m) * v.row(query.batch, kv_head, c)[t];",
    ),
    ("p < parts; ++p", "p < min(parts, 1); ++p"),
]
LAZY = {  # {(exercise, name): (what it starts from, what the grader says, [(what stands there, what is put there)])}
    ("01_naive_mha/2_find_the_fault", "chain"): ("solution", "a tree of halves is enough", [(ROW_TREE, ROW_CHAIN)]),
    ("01_naive_mha/2_find_the_fault", "whole_row"): (
        "solution",
        "must not read a row more often",
        [("for (int j = thread; j < shape.seq_k; j += softmax_threads) row_max", "for (int j = 0; j < shape.seq_k; ++j) row_max")],
    ),
    ("01_naive_mha/3_share_the_query", "never_reads_the_copy"): (
        "solution",
        "where is the staged copy of Q used",
        [("dot += smem.q_row[t]", "dot += q_row[t]")],
    ),
    ("01_naive_mha/3_share_the_query", "one_thread_copies"): (
        "solution",
        "from global memory, where",
        [("for (int t = threadIdx.x; t < shape.dim; t += scores_threads)", "for (int t = threadIdx.x == 0 ? 0 : shape.dim; t < shape.dim; ++t)")],
    ),
    ("01_naive_mha/4_five_reports", "barriers"): (
        "solution",
        "who must wait for whom",
        [("    __syncwarp();  // the row's lanes", "    __syncthreads();\n    __syncthreads();  // the row's lanes")],
    ),
    ("02_tiled_gemm/2_find_the_missing_wait", "waits_for_all"): (
        "task",
        "ends the pipeline",
        [("ptx::cp_async_wait_group<stages - 2>();", "ptx::cp_async_wait_group<0>();")],
    ),
    ("02_tiled_gemm/3_write_the_b_load", "by_words"): ("solution", "come by ldmatrix", [(LDMATRIX, BY_WORDS)]),
    ("03_online_softmax/2_find_the_fault", "three_pass"): ("solution", "reads a row twice", [(ONLINE, TWO_LOOPS)]),
    ("03_online_softmax/3_write_the_merge", "three_pass"): ("solution", "a row is read twice", [(PARTS, PARTS_TWICE)]),
    ("04_flash_v1/2_find_the_faults", "q_from_global"): (
        "solution",
        "moves O once",
        [("dot += smem.q[r][t] * smem.k[lane][t]", "dot += q.row(batch, head, i)[t] * smem.k[lane][t]")],
    ),
    ("04_flash_v1/3_write_the_update", "key_by_key"): ("solution", "each element of O (read|written) once", [(SUM_OF_KEYS, KEY_BY_KEY)]),
    ("04_flash_v1/3_write_the_update", "stretches"): ("solution", "neighbouring columns|each element of O", [(COLUMNS, STRETCHES)]),
    ("04_flash_v1/3_write_the_update", "one_lane"): (
        "solution",
        "each element of O|neighbouring columns",
        [(COLUMNS, "for (int t = threadIdx.x % 32 == 0 ? 0 : dim; t < dim; ++t) {")],
    ),
    ("05_flash_v2/2_find_the_race", "barrier_in_the_loop"): (
        "solution",
        "it stands before the main loop",
        [("    scores<__half", "    __syncthreads();\n    scores<__half")],
    ),
    ("05_flash_v2/2_find_the_race", "one_after_the_other"): (
        "task",
        "both stages are filled",
        [
            ("  copy_tile(tiles.end - 2);\n", ""),
            ("cp_async_wait_group<1>();  // this", "cp_async_wait_group<0>();  // this"),
            ("copy_tile(j - 2)", "copy_tile(j - 1)"),
        ],
    ),
    ("06_backward/2_find_the_race", "one_more_barrier"): (
        "solution",
        "pass .* barriers",
        [("  __syncthreads();  // everyone's", "  __syncthreads();\n  __syncthreads();  // everyone's")],
    ),
    ("07_block_sparse/1_build_the_list", "one_lane"): ("solution", "32 (lanes|tiles)", [((WALK_BEGINS, WALK_ENDS), ONE_LANE)]),
    ("07_block_sparse/4_balance_a_bad_mask", "looks_again"): ("solution", "is each part read once", [(PART_OF_ROW, LOOKS_AGAIN)]),
    ("02_tiled_gemm/4_write_a_register_tile", "two_loads_for_each"): (
        "solution",
        "12 words in three accesses",
        [("acc[i][j] += a_frag[i] * b_frag[j];", "acc[i][j] += load(&smem.a[step][row + i]) * load(&smem.b[step][column + j]);")],
    ),
    ("02_tiled_gemm/4_write_a_register_tile", "a_for_each_column"): (
        "solution",
        "12 words in three accesses",
        [
            (
                "        for (int j = 0; j < thread_columns; ++j) acc[i][j] += a_frag[i] * b_frag[j];\n",
                "        for (int j = 0; j < thread_columns; ++j) acc[i][j] += load(&smem.a[step][row + i]) * b_frag[j];\n",
            )
        ],
    ),
    ("02_tiled_gemm/4_write_a_register_tile", "scalar_loads"): (
        "solution",
        "12 words in three accesses",
        [
            (
                "      load4(&smem.b[step][column], &b_frag[0]);\n",
                "      for (int j = 0; j < thread_columns; ++j) b_frag[j] = load(&smem.b[step][column + j]);\n",
            )
        ],
    ),
    ("02_tiled_gemm/4_write_a_register_tile", "without_shared_memory"): (
        "solution",
        "neighbouring lanes along k",
        [("acc[i][j] += a_frag[i] * b_frag[j];", "acc[i][j] += element_or_zero(a, batch, tile.row + row + i, first + step, shape.m, shape.k) * b_frag[j];")],
    ),
    ("02_tiled_gemm/4_write_a_register_tile", "lanes_along_the_rows"): (
        "solution",
        "neighbouring lanes along k",
        [
            (
                "    const int t = thread % tile_k;  // 16 lanes along k: coalesced\n    for (int i = thread / tile_k; i < block_rows; i += threads / tile_k) {",
                "    for (int e = thread; e < block_rows * tile_k; e += threads) {\n      const int t = e / block_rows, i = e % block_rows;",
            )
        ],
    ),
    ("03_online_softmax/4_split_a_row", "one_block_does_all"): ("solution", "the states of all parts must be stored", WHOLE_ROW),
    ("03_online_softmax/4_split_a_row", "one_lane_stores"): (
        "solution",
        "neighbouring lanes read neighbours",
        [("for (int t = threadIdx.x; t < shape.dim; t += 32) {", "for (int t = 0; threadIdx.x == 0 && t < shape.dim; ++t) {")],
    ),
    ("05_flash_v2/4_turn_the_loops", "o_in_every_tile"): (
        "solution",
        "O and LSE once",
        [
            (
                "        acc[r][n] = factor * acc[r][n] + pv;\n",
                "        acc[r][n] = factor * acc[r][n] + pv;\n        if (t < shape.dim) o.row(batch, head, first_row + row)[t] = acc[r][n] * device::inverse_sum(states[r].l);\n",
            )
        ],
    ),
    ("05_flash_v2/4_turn_the_loops", "tiles_of_8_queries"): (
        "solution",
        "K and V once for 32 queries",
        [("constexpr int rows_of_warp = 4,", "constexpr int rows_of_warp = 1,")],
    ),
    ("05_flash_v2/4_turn_the_loops", "q_from_global_memory"): (
        "solution",
        "K and V once for 32 queries",
        [("dot += smem.q[row][t] * smem.k[lane][t];", "dot += q.row(batch, head, first_row + row)[t] * smem.k[lane][t];")],
    ),
    ("05_flash_v2/4_turn_the_loops", "all_tiles_of_keys"): (
        "solution",
        "K and V once for 32 queries",
        [("const int end_key = shape.visible_keys(end_row - 1);", "const int end_key = shape.seq_k;")],
    ),
    ("05_flash_v2/4_turn_the_loops", "version_1"): ("task", "O and LSE once", []),
}

# ---- numbers that forget something ----

WRONG_NUMBERS = {  # {exercise: {answer: [what is wrong there]}}
    "06_backward/3_predict_bytes": {
        "standard_written_bytes": [2 * 12 * 136 * 184 // 2, 600576 // 2, 600576 / 3],  # one head; fp16; one matrix
        "standard_read_bytes": [5 * 200192, 4 * 200192],  # without the mask; a read of dP left out
        "recompute_added_bytes": [2 * 6 * 136 * 32 * 4],  # without the mask
        "one_kernel_tiles": [18, 8],  # without the mask; one head
        "one_kernel_red": [16 * 32, 16 * 32 * 4],  # of a thread; at dim 64
        "fragment_order_red": [1024],
        "keys_32_added_bytes": [16 * 64 * 32 * 4, 12 * 64 * 32 * 4],  # tiles of 64 keys; without the mask
        "two_kernels_mma": [16 * 4 * 80, 7168 / 4],  # five products; one warp
    },
}
WRONG_TILES = {  # of exercise 3 of step 07
    "band_tiles": [20, 7, 13],  # not causal; blocks; the last row's second tile left out
    "sink_tiles": [24, 9],
    "tokens_tiles": [12, 8, 20],  # as one query sees them; blocks; all
    "dense_tiles": [32, 10],
    "mma": [34816 // 4, 34816 // 2, 80 * 512],  # one warp; 16 rows a warp; all dense
    "list_bytes": [4 * 68, 4 * 68 + 16 * 4, 68 + 16 * 16],  # without rows; of one head; bytes
    "p": [68 / 128, 68, 0.5],  # of a launch that is not causal
    "saves_least_of_197": ["band", "sink", "causal", "Tokens", 0],
    "its_p": [0.43, 0.75, 1],  # pairs; the others
}
