"""Nsight Compute: which metrics we ask for, how it is called, and its raw page as a table.

What is kept of a run, in results/DEVICE/ncu_STEP.csv, is CSV in sections: "# shape NAME: …", a line of names, a line of units, a line
for each launch.
"""

import csv
import re
import shutil
import subprocess

csv.field_size_limit(1 << 27)  # what Nsight Compute lists instance by instance makes long fields

# What the simulator counts too (common/run/harness/counters.cpp) comes first.
COUNTERS = [
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts_cache_access.sum",
    "sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum",
    "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access.sum",
    "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum",
    "smsp__inst_executed_op_ldgsts.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm.sum",
    "sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum",
    "smsp__sass_inst_executed_op_ldsm.sum",
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_stsm.sum",
    "sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_stsm.sum",
    "smsp__sass_inst_executed_op_shared_stsm.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
    "smsp__sass_inst_executed_op_global_red.sum",
    "memory_l1_wavefronts_shared",
    "memory_l1_wavefronts_shared_ideal",
    "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed.sum",
    "sass__inst_executed_per_opcode",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "lts__t_sector_hit_rate.pct",
    "l1tex__t_sector_hit_rate.pct",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "gpu__time_duration.sum",
    "sm__cycles_elapsed.avg.per_second",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_dynamic",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__waves_per_multiprocessor",
]

# The states of a warp that does not issue, as sm_90 names them (gmma and warpgroup_arrive are its own).
STALL_REASONS = [
    "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle", "long_scoreboard", "math_pipe_throttle",
    "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected", "short_scoreboard", "sleeping", "tex_throttle",
    "wait", "warpgroup_arrive",
]  # fmt: skip
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
OCCUPANCY_LIMITS = ["registers", "shared_mem", "warps", "blocks", "barriers"]

# What only hardware can say. A name that a chip does not have comes back as "n/a".
DETAILS = [
    "launch__shared_mem_per_block_static",
    "launch__occupancy_limit_warps",
    "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_barriers",
    "sm__maximum_warps_per_active_cycle_pct",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "memory_l2_theoretical_sectors_global_ideal",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    *(STALL.format(reason) for reason in STALL_REASONS),
]
METRICS = [*COUNTERS, *DETAILS]
OPCODES = "sass__inst_executed_per_opcode"
NAMES = ["ID", "Kernel Name", "Block Size", "Grid Size"]  # the columns that say which launch it is

PERMISSION = (
    "Nsight Compute may not read this GPU's counters (ERR_NVGPUCTRPERM). Run it as root, or let everybody read them: write\n"
    "  options nvidia NVreg_RestrictProfilingToAdminUsers=0\n"
    "into /etc/modprobe.d/nvidia-profiling.conf and restart. In a container: start it with --cap-add=SYS_ADMIN."
)


class NcuError(Exception):
    """Nsight Compute could not measure; the text says why, and what helps."""


# ---- to run it ----


def command(program, metrics=METRICS):
    """The call that prints the raw page of every launch of a program as CSV. Clocks are left alone."""
    return [
        "ncu", "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base", "--print-metric-instances", "details",
        "--metrics", ",".join(metrics), *(str(part) for part in program),
    ]  # fmt: skip


def raw_page(output, metrics=METRICS, forward=None, forward_ends=None):
    """The rows of the raw page in ncu's output, header and units first: the metrics asked for, without the runner's own kernel, which
    poisons outputs, and without those that make inputs (tools/measure/shapes.py): of the namespace `forward`, and all up to the last launch
    of the kernel `forward_ends`. (The page repeats some hundred attributes of the device in every row.) Of instances, "12 (BAR: 4; LDG: 8)",
    only the opcodes are kept."""
    table = list(csv.reader(line for line in output.splitlines() if line.startswith('"')))
    if not table:
        return []
    header = table[0]
    columns = [i for i, name in enumerate(header) if name in NAMES or name in metrics]
    whole = {*NAMES, OPCODES}
    rows = [[row[i] if header[i] in whole else row[i].split(" (")[0] for i in columns] for row in table]
    left_out = re.compile(r"fill_words" + (rf"|\b{forward}::\w+[(<]" if forward else ""))
    at = columns.index(header.index("Kernel Name"))
    ends = [i for i, row in enumerate(rows) if forward_ends and re.search(rf"\b{forward_ends}[(<]", row[at])]
    first = 2  # behind header and units
    return [*rows[:first], *(row for row in rows[max([first, *(i + 1 for i in ends)]) :] if not left_out.search(row[at]))]


def call(arguments, cwd):
    """Runs ncu; returns its exit status, its standard output, and what it and the program complained about."""
    if shutil.which("ncu") is None:
        raise NcuError("there is no ncu on PATH: install Nsight Compute (package cuda-nsight-compute), or take --source sim")
    done = subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, errors="replace", check=False)
    output = done.stdout + done.stderr
    if "ERR_NVGPUCTRPERM" in output:
        raise NcuError(PERMISSION)
    errors = [line for line in output.splitlines() if line.startswith("==ERROR==")]
    return done.returncode, done.stdout, errors + [line for line in done.stderr.splitlines()[-5:] if not line.startswith("==")]


def run(program, cwd, **inputs):
    """[{column: text}, …] of every launch of a program, as raw_page has them; NcuError where that fails. Metrics that ncu refuses are left
    out."""
    metrics = METRICS
    while True:
        status, output, errors = call(command(program, metrics), cwd)
        rows = launches(raw_page(output, metrics, **inputs))
        if status == 0 and rows:
            return rows
        accepted = [metric for metric in metrics if not any(metric.split(".")[0] in line for line in errors)]
        if len(accepted) == len(metrics):
            raise NcuError(f"ncu measured no kernel (exit status {status}):\n  " + "\n  ".join(errors))
        metrics = accepted


def keep(program, path, cwd):
    """Writes ncu's full report of a program."""
    full = ["ncu", "--clock-control", "none", "--set", "full", "--force-overwrite", "--export", str(path.resolve())]
    status, _, errors = call([*full, *(str(part) for part in program)], cwd)
    if status != 0:
        raise NcuError(f"ncu wrote no report (exit status {status}):\n  " + "\n  ".join(errors))


# ---- to read what it said ----


def launches(table):
    """[{column: text}, …] from rows with the header first; the row of units has no ID."""
    return [dict(zip(table[0], row)) for row in table[1:] if row[0]] if table else []


def sections(text):
    """{shape: [{column: text}, …]} of a kept CSV, in launch order."""
    parts = re.split(r"^# shape (.+?):.*\n", text, flags=re.MULTILINE)
    return {name: launches(list(csv.reader(body.splitlines()))) for name, body in zip(parts[1::2], parts[2::2])}


def measured(path):
    """The same of a file."""
    return sections(path.read_text())


def number(text):
    """ "1,024" as 1024; None for what is not a whole number."""
    digits = text.replace(",", "")
    return int(digits) if digits.isdigit() else None


def real(text):
    """ "1,024.5" as 1024.5; None for what is no number, "n/a" for example."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def instances(text):
    """ "22,030 (BAR: 12; LDG: 8,192)" as {"BAR": 12, "LDG": 8192}."""
    found = {}
    for part in text.partition("(")[2].rstrip(")").split(";"):
        name, _, count = part.partition(":")
        if number(count.strip()) is not None:
            found[name.strip()] = number(count.strip())
    return found


def product(extents):
    """ "(12, 2, 1)" as 24."""
    total = 1
    for extent in extents.strip("()").split(","):
        total *= int(extent)
    return total


def base_name(kernel):
    """ "naive_mha::linear(int, int)" as "linear", "void step::gemm<(int)64>(float *)" as "gemm"."""
    for brackets in (r"\([^()]*\)", r"<[^<>]*>"):  # from the inside out
        while re.search(brackets, kernel):
            kernel = re.sub(brackets, "", kernel)
    return re.search(r"(\w+)\W*$", kernel).group(1)


def values(row):
    """All numbers of a launch by the simulator's names for them; opcodes as sass__inst_executed_per_opcode.OPCODE."""
    found = {name: real(text) for name, text in row.items() if name not in {*NAMES, OPCODES} and real(text) is not None}
    for extents, name in [("Grid Size", "launch__grid_size"), ("Block Size", "launch__block_size")]:
        if extents in row:
            found[name] = product(row[extents])
    counts = instances(row.get(OPCODES, ""))
    found.update({f"{OPCODES}.{opcode}": count for opcode, count in counts.items()})
    if counts:  # an opcode that is not listed was not executed
        found.update({f"{OPCODES}.{opcode}": counts.get(opcode, 0) for opcode in ("BAR", "SHFL", "FFMA", "FADD", "FMUL", "HMMA")})
    return found
