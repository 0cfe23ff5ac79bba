"""Each change of the mystery removes what bounds its kernel, by the committed counts: of the rung that makes the change, and of the one before; where no
rung of the step makes it, what it would save."""

from solutions.launches import instructions, plain_loads


def counted(known):
    """`known`: {kernel: what Nsight Compute counted of its launch}"""
    return [
        plain_loads(known["sparse_list"]) < 0.6 * plain_loads(known["sparse_test_per_block"]),  # live_list
        instructions(known["sparse_two_loops"]) < 0.6 * instructions(known["sparse_list"]),  # edge_masks
        instructions(known["merge_parts"]) < 10 * known["merge_parts"].get("launch__grid_size") * 16,  # fewer_blocks: of 16 warps, each issues under 10
        known["merge_parts"].cost["flops"] == 0,
    ]
