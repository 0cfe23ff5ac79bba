"""Each change of the mystery removes what bounds its kernel, by the committed counts: of the rung that makes the change, and of the one before; where no
rung of the step makes it, what it would save."""

from solutions.launches import instructions


def counted(known):
    """`known`: {kernel: what Nsight Compute counted of its launch}"""
    return [
        known["algorithm_1_register_softmax"].seconds > 5 * known["algorithm_1_tensor_cores"].seconds,  # tensor_cores
        instructions(known["algorithm_1_register_softmax"]) > 10 * instructions(known["algorithm_1_tensor_cores"]),
        instructions(known["algorithm_1"]) > 1.5 * instructions(known["algorithm_1_tensor_scores"]),
        instructions(known["finish"]) > 50 * known["finish"].requests(),  # wide_loads
    ]
