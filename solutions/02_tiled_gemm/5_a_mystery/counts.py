"""Each change of the mystery removes what bounds its kernel, by the committed counts: of the rung that makes the change, and of the one before; where no
rung of the step makes it, what it would save."""

from solutions.launches import instructions, wavefronts


def counted(known):
    """`known`: {kernel: what Nsight Compute counted of its launch}"""
    return [
        wavefronts(known["swizzled_gemm"]) < 0.2 * wavefronts(known["tensor_core_gemm"]),  # swizzle
        instructions(known["addresses_gemm"]) < 0.3 * instructions(known["wide_epilogue_gemm"]),  # addresses
        instructions(known["pipelined_gemm"]) > instructions(known["wide_epilogue_gemm"]),  # and there was nothing of this before
        wavefronts(known["register_tile_gemm"]) < 0.2 * wavefronts(known["shared_tile_gemm"]),  # register_tile
    ]
