"""What a kernel did, and what bounds it: from Nsight Compute or from the simulator, under the same names (tools/measure/profile_step.py)."""
