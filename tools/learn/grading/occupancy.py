"""How many blocks a multiprocessor holds at once, from what a block needs: registers, shared memory, threads."""

REGISTER_UNIT = 256  # a warp gets its registers in portions of this: 8 for each lane
SHARED_UNIT = 128  # bytes
SCHEDULERS = 4  # of a multiprocessor; each has a quarter of the registers, and its warps take theirs from there


def round_up(number, unit):
    return -(-number // unit) * unit


def limits(gpu, block):
    """{resource: how many blocks it allows}.

    gpu: what docs/machine/h200.json says of one multiprocessor; block: its threads (a multiple of 32), the registers of a thread, and its
    bytes of shared memory. Each block costs some shared memory more than it asks for: the system's part, which is what a multiprocessor
    has beyond the most that one block may ask for.
    """
    warps = block["threads"] // 32
    of_warp = round_up(32 * block["registers"], REGISTER_UNIT)
    system = gpu["shared_bytes_per_multiprocessor"] - gpu["shared_bytes_per_block"]
    return {
        "registers": gpu["registers_per_multiprocessor"] // SCHEDULERS // of_warp * SCHEDULERS // warps,
        "shared_mem": gpu["shared_bytes_per_multiprocessor"] // round_up(block["shared_bytes"] + system, SHARED_UNIT),
        "warps": gpu["threads_per_multiprocessor"] // block["threads"],
        "blocks": gpu["blocks_per_multiprocessor"],
    }


def blocks(gpu, block):
    return min(limits(gpu, block).values())
