"""What the grader expects, and how it comes by that: to be read after your own answer."""

from tools.learn.grading.run import BUILD, results_of
from tools.measure.profiling import ncu


def expected():
    """What exercise 3 of step 06 asks for, of a causal shape with grouped heads and ragged lengths."""
    shape = ["--heads", "2", "--kv-heads", "1", "--seq-q", "136", "--seq-k", "184", "--dim", "32", "--dtype", "fp16", "--causal", "--no-check"]

    def counted(variant, *kernels):
        """The counters of these kernels, in launch order."""
        (result,) = results_of(BUILD / "bin" / "06_backward", "--variant", variant, *shape, "--counters").values()
        return [kernel for kernel in result["counters"] if ncu.base_name(kernel["kernel"]) in kernels]

    def total(kernels, metric):
        return sum(kernel["exact"][metric] for kernel in kernels)

    red, red_sectors = "smsp__sass_inst_executed_op_global_red.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum"
    writers, readers = ("probabilities", "row_products", "row_softmax_gradient"), ("over_queries", "over_keys")
    standard = counted("standard", *writers, *readers)
    written = 32 * total(standard[:3], "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum")
    # The three kernels behind them read P or dS by a warp an element, which all lanes share. No other load has 4 bytes.
    loads = [line for kernel in standard[3:] for line in kernel["lines"] if (line["space"], line["op"], line["bytes"]) == ("global", "load", 4)]
    recompute, one_kernel = counted("recompute", "backward_recompute"), counted("one_kernel", "backward_one_kernel")
    return {
        "standard_written_bytes": written,
        "standard_read_bytes": written * 2 // 3 + 4 * sum(line["requests"] for line in loads),  # row_softmax_gradient reads all of P and dP
        "recompute_added_bytes": 32 * total(recompute, red_sectors),
        "one_kernel_tiles": total(one_kernel, "sass__inst_executed_per_opcode.BAR") // (3 * 4),  # of each: three barriers, four warps
        "one_kernel_red": total(one_kernel, red),
        "fragment_order_red": total(counted("fragment_order", "backward_one_kernel"), red),
        "keys_32_added_bytes": 32 * total(counted("keys_32", "backward_keys_32"), red_sectors),
        "two_kernels_mma": total(counted("two_kernels", "gradient_of_keys", "gradient_of_queries"), "sm__inst_executed_pipe_tensor_op_hmma.sum"),
    }
