"""What the ladder's table says of each rung's machine code (tools/machine_code/disassembly.py rungs).

results/machine_code/NN_name.json holds

    {"step": "05_flash_v2", "arch": "sm_90", "nvcc": "V13.0.88",
     "shapes": {"4k": {"tuned": ["flash_tuned<__half, TunedTile<64>>"], …}},     the kernels of a variant, in the order of their launches
     "kernels": {"flash_tuned<__half, TunedTile<64>>": {
         "file": "12_tuned.cuh",                                                 in which the kernel is written
         "registers": 255, "stack": 0,                                           of each thread; the stack in bytes
         "loop": {"instructions": 820, "HMMA": 256, "LDSM": 72}}}}               one round of the main loop; null without HMMA

Which kernels a variant launches is what it launches in the simulator: at the shapes that shapes.RUNGS_AT names, but smaller, so that no list
of kernels has to be kept. The main loop is the loop with the most HMMA; of several, as one without masks beside others with masks, the one
with the fewest instructions. Its instructions are all that stand in it: those of branches that are seldom taken are counted, and an inner
loop counts once (sass_code.Kernel.tensor_loops).
"""

import collections
import json
import re
import tempfile
from pathlib import Path

from tools.machine_code.code_listing import ROOT, Missing, output_of
from tools.machine_code.sass_plan import short
from tools.measure.shapes import BENCHED, RUNGS_AT

FOLDER = Path("results") / "machine_code"
ARCH = "sm_90"
SMALL = {"--batch": "1", "--heads": "1", "--kv-heads": "1", "--seq-q": "128", "--seq-k": "128", "--m": "128", "--n": "256", "--k": "128",
         "--rows": "1"}  # fmt: skip


def small(arguments):
    """The same shape in the extents that choose a kernel, as the head dim or the length of a row; small in the others."""
    return [SMALL.get(before, word) for before, word in zip([None, *arguments], arguments)]


def launched(reports):
    """{shape: {variant: the kernels that it launches}}, by reports of the simulator with counters: {shape: report}"""
    return {
        shape: {result["variant"]: [short(launch["kernel"]) for launch in result["counters"]] for result in report["results"]}
        for shape, report in reports.items()
    }


def main_loop(kernel):
    """One round of the main loop; None if the kernel has no HMMA in a loop."""
    if not kernel.tensor_loops:
        return None
    counts = min(kernel.tensor_loops, key=lambda counts: (-counts["HMMA"], counts.total()))
    return {"instructions": counts.total(), "HMMA": counts["HMMA"], "LDSM": counts["LDSM"]}


def file_of(kernel, step):
    """The name of the step's file in which a kernel is written: most of its code comes by way of its lines. A file that the step
    shares with later ones lies in common/device/, in the folder of the step's name."""
    folders = (f"steps/{step}/", f"common/device/{step.partition('_')[2]}/")
    outermost = collections.Counter((i.callers or (i.place,))[-1].rpartition(":")[0] for i in kernel.instructions)
    ours = [Path(file).name for file, _ in outermost.most_common() if file.startswith(folders)]
    return ours[0] if ours else None


def record(step, kernels, shapes, nvcc):
    """What is committed of a step: `kernels` of ARCH, {name: Kernel}, those that `shapes` name. Missing if one of them is not there."""
    there = {short(name): kernel for name, kernel in kernels.items()}
    wanted = dict.fromkeys(name for variants in shapes.values() for names in variants.values() for name in names)
    if absent := [name for name in wanted if name not in there]:
        raise Missing(f"{step}: the simulator runs {', '.join(absent)}, which the gpu build does not have: build both from the same sources")
    entries = {
        name: {"file": file_of(there[name], step), "registers": there[name].registers, "stack": there[name].stack, "loop": main_loop(there[name])}
        for name in sorted(wanted)
    }
    return {"step": step, "arch": ARCH, "nvcc": nvcc, "shapes": shapes, "kernels": entries}


def problems_of(committed, fresh):
    """What differs between a committed record, or None, and a fresh one of the same nvcc: [text]"""
    step = fresh["step"]
    where = f"{FOLDER}/{step}.json"
    if committed is None:
        return [f"{where} is missing: make sass STEP={step[:2]} UPDATE=1 writes it"]
    if committed["nvcc"] != fresh["nvcc"]:
        return []  # another compiler may make another number of instructions
    differ = [f"{shape}, {variant}" for shape, variants in fresh["shapes"].items() for variant, names in variants.items()
              if committed["shapes"].get(shape, {}).get(variant) != names]  # fmt: skip
    differ += [f"{shape}, {variant}" for shape, variants in committed["shapes"].items() for variant in variants
               if variant not in fresh["shapes"].get(shape, {})]  # fmt: skip
    differ += [name for name, entry in fresh["kernels"].items() if name in committed["kernels"] and committed["kernels"][name] != entry]
    return [f"{where} is of other code ({'; '.join(differ)}): make sass STEP={step[:2]} UPDATE=1 writes it anew"] if differ else []


def as_json(fresh):
    """One variant, and one kernel, a line."""
    text = lambda value: json.dumps(value, ensure_ascii=False)
    shapes = [
        f"  {text(shape)}: {{\n" + ",\n".join(f"   {text(variant)}: {text(names)}" for variant, names in variants.items()) + "\n  }"
        for shape, variants in fresh["shapes"].items()
    ]
    kernels = [f"  {text(name)}: {text(entry)}" for name, entry in fresh["kernels"].items()]
    fields = [f" {text(key)}: {text(fresh[key])}" for key in ("step", "arch", "nvcc")]
    fields += [f" {text(key)}: {{\n" + ",\n".join(rows) + "\n }" for key, rows in (("shapes", shapes), ("kernels", kernels))]
    return "{\n" + ",\n".join(fields) + "\n}\n"


def nvcc_of(executable, arch):
    """Which nvcc made the code for an architecture: "V13.0.88"."""
    with tempfile.TemporaryDirectory() as folder:
        output_of("cuobjdump", "--extract-elf", f".{arch}.", executable.resolve(), cwd=folder)
        for cubin in sorted(Path(folder).glob("*.cubin")):
            if match := re.search(rb"Cuda compilation tools, release [\d.]+, (V[\d.]+)", cubin.read_bytes()):
                return match[1].decode()
    raise Missing(f"{executable} does not say which nvcc made its code for {arch}")


def commands(step):
    """{shape: arguments of the executable} at which the rungs of a step are compared, small."""
    return {shape: ["--variant", "all", *small(BENCHED[step][shape])] for shape in RUNGS_AT.get(step, [])}


def update_or_compare(fresh, update, root=ROOT):
    """Writes a record, or compares it with the committed one: [what is wrong]"""
    path = root / FOLDER / f"{fresh['step']}.json"
    if not update:
        committed = json.loads(path.read_text()) if path.is_file() else None
        if committed and committed["nvcc"] != fresh["nvcc"]:
            print(f"{fresh['step']}: {FOLDER}/{path.name} was made by nvcc {committed['nvcc']}, this is {fresh['nvcc']}: not compared\n")
        return problems_of(committed, fresh)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_json(fresh))
    return []
