"""Each change of the mystery removes what bounds its kernel, by the committed counts: of the rung that makes the change, and of the one before; where no
rung of the step makes it, what it would save."""

from solutions.launches import instructions, moved, sectors_a_request


def counted(known):
    """`known`: {kernel: what Nsight Compute counted of its launch}"""
    return [
        instructions(known["wide_loads_softmax"]) < 0.5 * instructions(known["block_per_row_softmax"]),  # wide_loads
        moved(known["vectorised_softmax"]) < 16_384 * 4096 * 2 * 2,  # fuse: x and y are moved once
        sectors_a_request(known["warp_per_row_softmax"]) < 0.1 * sectors_a_request(known["two_pass_softmax"]),  # row_per_warp
    ]
