"""Sums of what Nsight Compute counted of a launch, for the counts.py of the mysteries."""


def moved(launch):
    return launch.sum("dram__bytes_read.sum", "dram__bytes_write.sum")


def wavefronts(*launches):
    return sum(launch.get("memory_l1_wavefronts_shared") for launch in launches)


def instructions(launch):
    return launch.get("smsp__inst_executed.sum")


def plain_loads(launch):
    """Requests of loads that are no cp.async."""
    copies = "sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts_cache_{}.sum"
    return launch.get("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum") - launch.sum(copies.format("access"), copies.format("bypass"))


def sectors_a_request(launch):
    return launch.sectors() / launch.requests()
