"""Grades an exercise: tools/learn/grade.py 01 2 builds and runs what you wrote; --solution grades ours instead.

An exercise is a folder steps/NN_name/exercises/N_name; its solution lies in solutions/NN_name/N_name, which a handout lacks.

    answers.json   asks for numbers, which are compared with what the step's executable predicts or the simulator counts
                   (grading/numbers.py), or for names out of a list (mysteries.py); the exercise's grading.py says which
    task.cuh       asks for a kernel, which must pass the checker and the simulator at every shape under several schedules, and count
                   no more than the solution did (kernels.py, and the exercise's grading.py; the solution's counts: counts.json beside the task)
    task.cu        asks for plain CUDA: step 00 (plain.py)

Exit status 0: passed.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tools.learn.grading import kernels, mysteries, numbers, plain, run, table
from tools.learn.grading.report import Report


class NoAnswersError(Exception):
    """A file that holds no list of answers."""


def shown(path):
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def folder_of(step, number, parser):
    folders = list(ROOT.glob(f"steps/{step}_*/exercises/{number}_*"))
    if len(folders) != 1:
        known = ", ".join(sorted(str(f.relative_to(ROOT / "steps")) for f in ROOT.glob("steps/*/exercises/[0-9]_*")))
        parser.error(f"there is no exercise {number} of step {step}; there are: {known}")
    return folders[0]


def read_answers(path):
    """The answers of a file; NoAnswersError where it is no JSON object."""
    try:
        answers = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise NoAnswersError(f"{shown(path)} is not JSON: {error}. Names need quotation marks, and a comma behind each line but the last") from error
    if not isinstance(answers, dict):
        raise NoAnswersError(f"{shown(path)} must have a name for each answer, in braces: {{...}}")
    return answers


def grade_answers(report, path):
    """An item for each answer in a file."""
    is_mystery = table.mystery_of(report.exercise) is not None
    step, name = report.exercise.split("/")
    counts = (ROOT / "steps" / step / "exercises" / name / "exercise.cu").exists()  # a program counts what is asked for
    if counts and (printed := run.build(run.BUILD / "exercises" / f"exercise_{step}_{name}")):
        sys.exit(printed)

    def wanted():
        return mysteries.expected_names(report.exercise) if is_mystery else table.expected_of(report.exercise)

    try:
        answers = read_answers(path)
    except NoAnswersError as error:
        report.fail_all(wanted(), str(error))
        return
    if is_mystery:
        mysteries.grade(report, report.exercise, answers, wanted())
    elif any(answers.values()):
        numbers.grade(report, answers, wanted())
    else:
        report.fail_all(answers or wanted(), f"no answer yet: write them into {shown(path)}")


def grade_program(report, which, quick):
    """Builds and grades a kernel or plain CUDA; quick: at two of its shapes only."""
    exercise = report.exercise
    program, recorded = run.program_of(exercise, which), run.read_counts(exercise)
    sizes = table.sizes_of(exercise)
    if sizes:
        sizes = sizes[: 2 if quick else None]
        names = [" ".join(size) for size in sizes]
    else:
        kernel = table.kernel_of(exercise, quick)
        names = [kernels.shape_name(shape) for shape in kernel.shapes]
    if printed := run.build(program):
        report.fail_all(names, f"It does not compile:\n{printed}")
    elif sizes:
        plain.grade(report, program, sizes, recorded, go_on=report.as_json)
    else:
        kernels.grade(report, program, kernel, recorded, go_on=report.as_json)


def record(folder, exercise):
    """Writes what the solution counts beside the exercise."""
    program = run.program_of(exercise, "solution")
    if printed := run.build(program):
        sys.exit(printed)
    sizes = table.sizes_of(exercise)
    counts = plain.record(program, sizes) if sizes else kernels.record(program, table.kernel_of(exercise))
    if counts:
        (folder / "counts.json").write_text(json.dumps(counts, indent=1) + "\n")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", help="two digits: 01")
    parser.add_argument("number", help="of the exercise: 2")
    parser.add_argument("--solution", action="store_true", help="grade the solution in solutions/")
    parser.add_argument("--quick", action="store_true", help="a kernel: at two of the shapes only, the first and a ragged one")
    parser.add_argument("--json", action="store_true", help="print one JSON object with the points, and try every shape")
    parser.add_argument("--record", action="store_true", help="write what the solution counts to the exercise's counts.json; grade nothing")
    args = parser.parse_args()
    folder = folder_of(args.step, args.number, parser)
    step = folder.parent.parent.name
    exercise = f"{step}/{folder.name}"
    solutions = ROOT / "solutions" / step / folder.name
    if (args.solution or args.record) and not solutions.is_dir():
        sys.exit(f"{solutions.relative_to(ROOT)} is missing: a handout has no solutions")
    if args.record:
        print(f"{exercise}: {len(record(folder, exercise))} shapes recorded")
        return
    report = Report(exercise, args.json)
    if (folder / "answers.json").exists():
        grade_answers(report, solutions / "solution.json" if args.solution else folder / "answers.json")
    else:
        grade_program(report, "solution" if args.solution else "task", args.quick)
    sys.exit(report.finish())


if __name__ == "__main__":
    main()
