"""What the grader expects, and how it comes by that: to be read after your own answer."""

from tools.learn.grading.run import BUILD, counters_of


def expected():
    """What exercise 1 of step 02 asks for: wavefronts of one ldmatrix.x4, and two numbers of the step's own kernels."""
    wavefronts = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm.sum"
    conflicts = "sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum"
    rows = counters_of(BUILD / "exercises" / "exercise_02_tiled_gemm_1_predict_conflicts", "--variant", "all")
    # Not the 128, 144 and 128 with c ^ (r % 8) of the page.
    asked = [f"stride_{stride}" for stride in (48, 64, 80, 96, 112, 160, 192, 256)] + ["swizzled_64", "half_swizzled_128"]
    kernels = {}
    for variant in ("tensor_cores", "swizzle"):
        kernels |= counters_of(BUILD / "bin" / "02_tiled_gemm", "--variant", variant)
    return {
        **{name: rows[name][wavefronts] / rows[name]["smsp__sass_inst_executed_op_ldsm.sum"] for name in asked},
        "tensor_cores_conflicts": kernels["tensor_cores"][conflicts],
        "swizzle_wavefronts": kernels["swizzle"][wavefronts],
    }
