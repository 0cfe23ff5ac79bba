"""The measured ceilings of a device (docs/machine/), and quantities with their units."""

import json

MMA_CYCLES = 6.1  # of a scheduler, for an mma.sync.m16n8k16 on an H100 or H200: docs/ceilings.md
DEVICES = ("h200", "h100")  # whose results are committed: those of the first count where a step was measured on both


def measured_on(root, step):
    """The device on which a step's committed profile was made; the first of DEVICES where there is none."""
    return next((device for device in DEVICES if (root / "results" / device / f"ncu_{step}.csv").is_file()), DEVICES[0])


def machine(root, name):
    """docs/machine/NAME.json."""
    return json.loads((root / "docs" / "machine" / f"{name}.json").read_text())


def machine_of(root, device):
    """(name, ceilings) of the device that nvidia-smi or a report calls so; None where nobody measured it."""
    for path in sorted((root / "docs" / "machine").glob("*.json")):
        known = json.loads(path.read_text())
        if known["device"] in device or device in known["device"]:
            return path.stem, known
    return None


def floor_seconds(cost, dtype, ceilings):
    """The least time of a kernel, by its operations and its compulsory bytes (an entry of `kernels` in docs/result.schema.json)."""
    arithmetic = "fp32_flops_per_second" if dtype == "fp32" else "mma_sync_flops_per_second"
    moved = cost["bytes_read"] + cost["bytes_written"]
    return max(moved / ceilings["copy_bytes_per_second"]["value"], cost["flops"] / ceilings[arithmetic]["value"])


def quantity(value, unit, digits=3):
    """A number with an SI prefix: quantity(4.25e12, "B/s") is "4.25 TB/s"."""
    for factor, prefix in [
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (1, ""),
        (1e-3, "m"),
        (1e-6, "µ"),
        (1e-9, "n"),
    ]:
        if abs(value) >= factor:
            return f"{value / factor:.{digits}g} {prefix}{unit}"
    return f"{value:g} {unit}"
