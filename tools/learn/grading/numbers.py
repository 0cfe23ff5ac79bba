"""Grades answers that are numbers, or names of a short list: answers.json against what the simulator counts."""

import math
from fractions import Fraction

TOLERANCE = 0.02  # of rates and times; counts must be exact
TELLING = (2, 3, 4, 5, 6, 8, 10, 12, 16, 32, 64, 128)  # factors that say what was forgotten: a head, a byte, a lane
NEAR = Fraction(1, 1000)
MEASURED_BANDWIDTH = 4.25e12  # bytes/s of a copy on an H200, read plus written: what the exercises divide by
SMALL = 100  # of a smaller number a factor would give the answer away


def is_number(answer):
    """Whether JSON gave a number that can be compared; true and NaN are none."""
    return isinstance(answer, int) and not isinstance(answer, bool) or isinstance(answer, float) and math.isfinite(answer)


def is_right(answer, expected):
    if isinstance(expected, str):
        return answer == expected
    tolerance = 0 if expected == round(expected) else TOLERANCE
    return is_number(answer) and abs(Fraction(answer) - Fraction(expected)) <= tolerance * abs(Fraction(expected))


def hint_of(answer, expected):
    """Where a wrong answer lies, without the right one."""
    if isinstance(expected, str):
        return "" if isinstance(answer, str) else "this must be a name, in quotation marks"
    if answer is None:
        return "no answer yet"
    if not is_number(answer):
        return "this must be a number"
    if answer == 0:
        return "no answer yet"
    ratio = Fraction(answer) / Fraction(expected)
    if ratio < 0:
        return "it cannot be negative"
    for factor in TELLING:
        if min(abs(answer), abs(expected)) < SMALL:
            break
        if abs(ratio / factor - 1) < NEAR:
            return f"{factor} times the right number"
        if abs(ratio * factor - 1) < NEAR:
            return f"the right number is {factor} times as large"
    if Fraction(4, 5) < ratio < Fraction(5, 4):
        return "near, but this must be exact" if expected == round(expected) else f"near, but more than {TOLERANCE:.0%} away"
    return "too large" if ratio > 1 else "too small"


def grade(report, answers, expected_numbers):
    """Compares each answer: an item each."""
    for name, expected in expected_numbers.items():
        answer = answers.get(name)
        right = is_right(answer, expected)
        hint = "" if right else hint_of(answer, expected)
        report.add(name, right, f"{name}: {answer}" + (f"  ({hint})" if hint else ""), hint)
    for name in answers.keys() - expected_numbers.keys():
        report.say(f"{name}: nothing of this name was asked for")
    return report.passed
