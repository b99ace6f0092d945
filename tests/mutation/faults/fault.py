"""A fault, and the files that it is planted in."""

from __future__ import annotations

from dataclasses import dataclass

LUA, PYTHON = "bucket.lua", "bucket.py"
ROWS, SLOTS = "rows.py", "slots.py"
#: The arguments and the reply of the script. A fault in there is one of the script alone.
CALLS = "stores/redis/script.py"

#: Text, and what is written in its place.
Edit = tuple[str, str]


@dataclass(frozen=True)
class Fault:
    area: str
    name: str
    #: The edits that plant it in the script, and those for the reference.
    lua: tuple[Edit, ...] = ()
    python: tuple[Edit, ...] = ()
    #: Whether clients could tell if both had it; and if not, why.
    both: bool = True
    because: str = ""
    #: Whether planting it once gives it to both, because they share the code or the time.
    alike: bool = False
    #: The module of the reference.
    module: str = PYTHON

    def planted(self) -> dict[str, dict[str, tuple[Edit, ...]]]:
        """Return the edits to make in each file, by where the fault is planted."""
        places: dict[str, dict[str, tuple[Edit, ...]]] = {}
        if self.lua:
            places["script"] = {LUA: self.lua}
        if self.python:
            places["reference"] = {self.module: self.python}
        if self.lua and self.python and self.both:
            places["both"] = {LUA: self.lua, self.module: self.python}
        return places


#: Where what is affordable is taken.
TAKES_PYTHON = 'elif row.role != "held" and allowed and not row.needed:'
