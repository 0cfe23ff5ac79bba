"""What step 00 does on the tour: it has no variants, so its program runs as it is."""

PROGRAM = "two kernels in plain CUDA"
