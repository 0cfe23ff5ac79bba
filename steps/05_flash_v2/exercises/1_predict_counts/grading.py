"""What the grader expects, and how it comes by that: to be read after your own answer."""

from tools.learn.grading.run import BUILD, counters_of


def expected():
    """What exercise 1 of step 05 asks for, of one head with 256 queries and keys and rows of 64 elements."""
    shape = ["--heads", "1", "--seq-q", "256", "--dim", "64", "--no-check"]

    def counted(variant, *mask):
        (counters,) = counters_of(BUILD / "bin" / "05_flash_v2", "--variant", variant, *shape, *mask).values()
        return counters

    pipeline, registers = counted("pipeline"), counted("registers")
    mma = "sm__inst_executed_pipe_tensor_op_hmma.sum"
    return {
        "copied_bytes": 32 * pipeline["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"],
        "ldmatrix_pipeline": pipeline["smsp__sass_inst_executed_op_ldsm.sum"],
        "ldmatrix_registers": registers["smsp__sass_inst_executed_op_ldsm.sum"],
        "mma": registers[mma],
        "causal_mma": counted("registers", "--causal")[mma],
        "causal_window_64_mma": counted("registers", "--causal", "--window", "64")[mma],
        "barriers_registers": registers["sass__inst_executed_per_opcode.BAR"],
    }
