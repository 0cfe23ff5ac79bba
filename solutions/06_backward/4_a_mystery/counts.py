"""Each change of the mystery removes what bounds its kernel, by the committed counts: of the rung that makes the change, and of the one before; where no
rung of the step makes it, what it would save."""

from solutions.launches import moved, wavefronts


def counted(known):
    """`known`: {kernel: what Nsight Compute counted of its launch}"""
    return [
        moved(known["backward_recompute"]) < 0.1 * moved(known["row_softmax_gradient"]),  # on_chip
        wavefronts(known["gradient_of_keys"], known["gradient_of_queries"]) < 0.1 * wavefronts(known["backward_recompute"]),  # tensor_cores
        wavefronts(known["backward_tuned_128"]) < 0.6 * wavefronts(known["backward_pipeline"]),  # larger_tiles
    ]
