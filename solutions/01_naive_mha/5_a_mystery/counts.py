"""Each change of the mystery removes what bounds its kernel, by the committed counts: of the rung that makes the change, and of the one before; where no
rung of the step makes it, what it would save."""

from solutions.launches import moved, sectors_a_request


def counted(known):
    """`known`: {kernel: what Nsight Compute counted of its launch}"""
    return [
        sectors_a_request(known["pv_coalesced"]) < 0.2 * sectors_a_request(known["pv_uncoalesced"]),  # neighbouring_lanes
        known["softmax_block_per_row"].cost["bytes_read"] > 1e9 and moved(known["softmax_block_per_row"]) > 2e9,  # on_chip: S and P, nothing else
        known["scores_coalesced"].sum("lts__t_sectors_op_read.sum") * 32 > 300 * known["scores_coalesced"].cost["bytes_read"],  # share_a_tile
    ]
