"""A kernel's code and what its variant says it needs go together: which devices run what nvcc makes of a file of that name
(cmake/architectures.cmake), and that what runs everywhere is not taken from the objects of newer devices."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import BIN, ROOT, cxx

from tools.machine_code.code_listing import Missing, find_tool, output_of

NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
DEVICES = [80, 86, 89, 90, 100, 120]
FILES = {  # what a file of that name may hold; who runs it
    "any.cu": ("*x = 1;", DEVICES),
    "newer.sm_90.cu": ('asm volatile("red.global.add.v4.f32 [%0], {%1, %1, %1, %1};" ::"l"(x), "f"(1.f) : "memory");', [90, 100, 120]),
    "alone.sm_90a.cu": ('asm volatile("wgmma.fence.sync.aligned;" ::: "memory");', [90]),
}


def architectures(names):
    """{name: what CMake is told for a file of that name}"""
    default = re.search(r"set\(CMAKE_CUDA_ARCHITECTURES ([^\"]+) CACHE", (ROOT / "CMakeLists.txt").read_text())[1]
    script = [f"set(CMAKE_CUDA_ARCHITECTURES {default})", f"include({ROOT}/cmake/architectures.cmake)"]
    script += [f'architectures_of(found steps/06_backward/{name})\nmessage("{name} ${{found}}")' for name in names]
    return script


def architectures_of(names, folder):
    (folder / "script.cmake").write_text("\n".join(architectures(names)))
    done = subprocess.run(["cmake", "-P", folder / "script.cmake"], capture_output=True, text=True, check=True)
    return {name: found.split(";") for name, found in (line.split() for line in done.stderr.splitlines())}


def nvcc_flag(architecture):
    """As CMake's CUDA_ARCHITECTURES are nvcc's flags."""
    number, _, kind = architecture.partition("-")
    code = {"": f"[compute_{number},sm_{number}]", "real": f"[sm_{number}]", "virtual": f"[compute_{number}]"}[kind]
    return f"--generate-code=arch=compute_{number},code={code}"


def runs(device, machine_code, ptx):
    """Machine code runs on devices of its major version from its minor one on, PTX on all later ones; "90a" on 9.0 alone."""
    for name in machine_code:
        number, kind = int(re.match(r"\d+", name)[0]), name.lstrip("0123456789")
        if device == number or (not kind and device // 10 == number // 10 and device >= number):
            return True
    return any(name.isdigit() and device >= int(name) for name in ptx)


def test_a_files_name_says_for_what_it_is_compiled(tmp_path):
    found = architectures_of([*FILES, "another.sm_100a.cu"], tmp_path)
    assert found == {"any.cu": ["80", "90-real"], "newer.sm_90.cu": ["90"], "alone.sm_90a.cu": ["90a-real"], "another.sm_100a.cu": ["100a-real"]}


def test_what_nvcc_makes_of_a_file_runs_where_its_name_says(tmp_path):
    if NVCC is None:
        pytest.skip("no nvcc on this machine: what it makes of a kernel file is not looked at")
    try:
        find_tool("cuobjdump")
    except Missing as missing:
        pytest.skip(f"{missing}: what nvcc makes of a kernel file is not looked at")
    for name, wanted in architectures_of(FILES, tmp_path).items():
        body, devices = FILES[name]
        (tmp_path / name).write_text(f"__global__ void kernel(float* x) {{ {body} }}\n")
        built = tmp_path / (name + ".o")
        flags = [nvcc_flag(architecture) for architecture in wanted]
        done = subprocess.run([NVCC, *flags, "-c", tmp_path / name, "-o", built], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}, {flags}: {done.stderr}"
        machine_code = re.findall(r"\.sm_(\w+)\.cubin", output_of("cuobjdump", "--list-elf", built))
        ptx = re.findall(r"\.sm_(\w+)\.ptx", output_of("cuobjdump", "--list-ptx", built))
        assert [device for device in DEVICES if runs(device, machine_code, ptx)] == devices, f"{name}: {machine_code}, PTX {ptx}"


@pytest.mark.parametrize("step", [path.parent.name for path in sorted(ROOT.glob("steps/*/step.cu"))])
def test_a_step_has_variants_for_one_device_alone_where_it_has_code_of_that_kind(step):
    text = (ROOT / "steps" / step / "step.cu").read_text()
    of_files = {suffix for path in (ROOT / "steps" / step).glob("*.sm_*.cu") for suffix in re.findall(r"\.sm_(\w+)\.cu$", path.name)}
    alone = {f"{number}a" for number in re.findall(r"\bonly\((\d+)\)", text)}
    assert {name for name in of_files if not name.isdigit()} == alone
    newer = set(re.findall(r"\.compute_capability = (\d+)\b", text)) | set(re.findall(r"\(\), (\d+)\)", text)) | set(re.findall(r",\s+(\d\d+)\),\n", text))
    assert {name for name in of_files if name.isdigit()} == newer - {"80"}


# ---- what runs everywhere is launched from an object that runs everywhere ----


def shared_launches(general, newer, kernels):
    """Functions that an object for newer devices has in common with a general one, and that launch a kernel: the linker keeps one of both,
    and if that is the newer one, the general one's kernels are missing on older devices."""
    of_kernel = re.compile("|".join(rf"(?<!\d){len(name)}{name}[IE]" for name in kernels))
    weak = [set(re.findall(r" W (_Z\w+)$", output_of("nm", built), re.MULTILINE)) for built in (newer, *general)]
    shared = sorted(name for name in weak[0] & set().union(*weak[1:]) if not of_kernel.search(name))
    if not shared:
        return set()
    listing = output_of("objdump", "-r", *(f"--section=.text.{name}" for name in shared), newer)
    parts = re.split(r"RELOCATION RECORDS FOR \[\.text\.(\w+)\]", listing)[1:]
    return {name for name, calls in zip(parts[::2], parts[1::2], strict=True) if of_kernel.search(calls)}


@pytest.mark.parametrize("keyword, found", [("", 1), ("static ", 0)])
def test_a_launch_that_two_objects_share_is_found(tmp_path, keyword, found):
    (tmp_path / "launch.h").write_text(
        "template <class T> void kernel(T* x) { *x = 1; }\nvoid run(void (*)(float*));\n"
        f"template <class T> {keyword}void launch() {{ run(kernel<T>); }}\n"
    )
    for name in ("general", "newer"):
        (tmp_path / f"{name}.cpp").write_text(f'#include "launch.h"\nvoid {name}() {{ launch<float>(); }}\n')
        subprocess.run([cxx(), "-fPIC", "-c", f"{name}.cpp"], cwd=tmp_path, check=True)
    assert len(shared_launches([tmp_path / "general.o"], tmp_path / "newer.o", {"kernel"})) == found


@pytest.mark.parametrize("step", sorted({path.parent.name for path in ROOT.glob("steps/*/*.sm_*.cu")}))
def test_no_launch_of_a_step_is_shared_with_an_object_for_newer_devices(step):
    objects = sorted((BIN.parent / "steps" / "CMakeFiles").glob(f"step_{step}*.dir/**/*.o"))
    newer = [path for path in objects if re.search(r"\.sm_\w+\.cu\.o$", path.name)]
    assert newer and len(objects) > len(newer)
    sources = [*ROOT.glob("common/device/**/*.cuh"), *(ROOT / "steps" / step).glob("*.cu*")]
    kernels = {name for path in sources for name in re.findall(r"__global__\s+void\s+(?:__launch_bounds__\([^()]*\)\s+)?(\w+)\(", Path(path).read_text())}
    assert len(kernels) > 5
    general = [path for path in objects if path not in newer]
    assert {path.name: shared_launches(general, path, kernels) for path in newer} == {path.name: set() for path in newer}
