"""Each change of the mystery removes what bounds its kernel, by the committed counts: of the rung that makes the change, and of the one before; where no
rung of the step makes it, what it would save."""

from solutions.launches import instructions, wavefronts


def counted(known):
    """`known`: {kernel: what Nsight Compute counted of its launch}"""
    return [
        wavefronts(known["flash_rows_32"]) < 0.61 * wavefronts(known["flash_addresses"]),  # rows_32
        wavefronts(known["flash_ldmatrix"]) < 0.2 * wavefronts(known["flash_tensor_cores"]),  # ldmatrix
        instructions(known["flash_tensor_cores"]) < 0.1 * instructions(known["flash_scalar"]),  # tensor_cores
        wavefronts(known["flash_tensor_cores"]) < 0.6 * wavefronts(known["flash_scalar"]),
    ]
