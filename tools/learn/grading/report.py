"""What a grader says: a line for each answer or shape as it comes; or one JSON object at the end, for programs that read it."""

import json
import sys
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Item:
    """One thing that earns a point: an answer, or a kernel at one shape under all schedules."""

    name: str
    right: bool
    hint: str = ""  # why it is wrong


class Report:
    """Collects items. With as_json, stdout gets one JSON object from finish() and nothing else; what is said goes to stderr."""

    def __init__(self, exercise, as_json=False):
        self.exercise, self.as_json, self.items = exercise, as_json, []

    @property
    def passed(self):
        return bool(self.items) and all(item.right for item in self.items)

    def say(self, text):
        print(text, file=sys.stderr if self.as_json else sys.stdout, flush=True)

    def add(self, name, right, shown="", hint=""):
        """An item, and its line: what is shown of it, else its name."""
        self.items.append(Item(name, bool(right), "" if right else hint))
        if not self.as_json:
            self.say(f"{'right' if right else 'wrong'}  {shown or name}")
        return right

    def fail_all(self, names, hint):
        """Nothing could be tried: every item is wrong for the same reason."""
        self.items += [Item(name, False, hint) for name in names]
        self.say(hint)

    def finish(self):
        """Says the verdict; returns the exit status."""
        if self.as_json:
            points = sum(item.right for item in self.items)
            verdict = {"exercise": self.exercise, "passed": self.passed, "points": points, "of": len(self.items)}
            print(json.dumps(verdict | {"items": [asdict(item) for item in self.items]}, indent=2, ensure_ascii=False))
        else:
            self.say("passed" if self.passed else "not yet")
        return 0 if self.passed else 1
