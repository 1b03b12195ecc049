"""A file's text to a plan: the receivers, and with them everything else that the file says."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from tocsin_detectors.rulefile.problems import Problems, nearest
from tocsin_detectors.rulefile.tree import Mapping as Tree
from tocsin_detectors.rulefile.tree import Node, Scalar, describe, read_tree
from tocsin_detectors.rulefile.values import Reading
from tocsin_detectors.texts import Language
from tocsin_service.delivery.files.plan import Plan
from tocsin_service.delivery.files.policies import POLICY_KEYS, read_policy
from tocsin_service.delivery.files.routes import read_routes
from tocsin_service.delivery.making import KINDS, Described, Given, Kind

__all__ = ["read"]

MOST_RECEIVERS = 50
MOST_ROUTES = 200
NAME = re.compile(r"[a-z0-9-]{1,40}")


def read(text: str, problems: Problems, folder: Path, made: Collection[str], others: Collection[str]) -> Plan:
    """The plan of a file; empty where something is wrong, which ``problems`` tell then.

    Args:
        text: of the file.
        problems: where they are noted.
        folder: where files with secrets are looked for.
        made: names of receivers that there are anyway.
        others: names of receivers that there may be; routes may lead to them.
    """
    tree, reading = read_tree(text, problems), Reading(problems)
    root = None if tree is None else reading.mapping(tree, "a file of receivers", ("version", "receivers", "routes"))
    if root is None:
        return Plan()
    if "version" in root.entries:
        reading.version(root)
    found: list[Described] = []
    names: dict[str, int | None] = dict.fromkeys(made)  # with their lines; also those of receivers that are wrong
    for node in _items(reading, root, "receivers", MOST_RECEIVERS):
        written = reading.mapping(node, "a receiver")
        name = None if written is None else _name(reading, written, names)
        if written is not None and name is not None:
            names[name] = written.line
            described = _receiver(reading, written, name, folder)
            found += [] if described is None else [described]
    routes = read_routes(reading, _items(reading, root, "routes", MOST_ROUTES), {*names, *others})
    return Plan(tuple(found), tuple(routes))


def _items(reading: Reading, root: Tree, key: str, most: int) -> tuple[Node, ...]:
    node = root.entries.get(key)
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return ()
    items = reading.sequence(node, key)
    if len(items) > most:
        reading.problems.add(node.line, f"{key}: {len(items)} of them; at most {most} are read")
        return ()
    return items


def _name(reading: Reading, written: Tree, taken: Mapping[str, int | None]) -> str | None:
    node = written.entries.get("name")
    if node is None:
        reading.problems.add(written.line, "a receiver needs a `name`, by which routes call it")
        return None
    name = node.text if isinstance(node, Scalar) else ""
    if not NAME.fullmatch(name):
        reading.problems.add(
            node.line, f"name has to be 1 to 40 of a-z, 0-9 and -, such as team-chat, not {describe(node)}"
        )
        return None
    if name in taken:
        first = taken[name]
        who = "the settings make a receiver" if first is None else f"the one in line {first} is already"
        reading.problems.add(node.line, f"{who} called {name!r}; give this one another name")
        return None
    return name


def _receiver(reading: Reading, written: Tree, name: str, folder: Path) -> Described | None:
    noted = len(reading.problems.found)
    reading.mapping(written, name, (*KINDS, "name", "lang", *POLICY_KEYS))
    kinds = [kind for kind in KINDS if kind in written.entries]
    if len(kinds) != 1:
        has = f"; it has {' and '.join(kinds)}: make it {len(kinds)}" if kinds else ""
        reading.problems.add(written.line, f"{name} needs one of {', '.join(KINDS)}: where to tell it{has}")
        return None
    kind = kinds[0]
    options = _options(reading, written.entries[kind], f"{name}: {kind}", KINDS[kind], folder)
    policy, lang = read_policy(reading, written, name, kind), None
    if "lang" in written.entries:
        lang = reading.value(written.entries["lang"], Language, f"{name}: lang")
    wrong = len(reading.problems.found) > noted
    return None if wrong else Described(name, kind, options, policy, lang, written.line)


def _options(reading: Reading, node: Node, what: str, kind: Kind, folder: Path) -> dict[str, Given]:
    written, problems = reading.mapping(node, what), reading.problems
    if written is None:
        return {}
    keys = {name: name for name, option in kind.options.items() if not option.secret}
    keys |= {f"{name}_file": name for name, option in kind.options.items() if not option.public}
    found: dict[str, Given] = {}
    for key, value in written.entries.items():
        line, name = written.lines[key], keys.get(key)
        if name is None and key in kind.options:
            problems.add(line, f"{what}: {key} is a secret; put it into a file and write {key}_file: PATH")
            found[key] = ""
        elif name is None:
            problems.add(line, f"{what} has no {key!r}; {nearest(key, keys)}")
        elif name in found:
            problems.add(line, f"{what}: {name} is given twice, here and as a file; keep one")
        elif (text := reading.value(value, str, f"{what}: {key}")) is not None:
            found[name] = folder / text if key != name else _plain(reading, line, what, kind, name, text)
        else:
            found[name] = ""
    if frozenset(found) - kind.optional not in kind.forms:
        forms = (" and ".join(sorted(_key(kind, one) for one in form)) for form in kind.forms)
        problems.add(written.line, f"{what} needs {', or '.join(forms)}")
    return found


def _key(kind: Kind, name: str) -> str:
    return f"{name}_file" if kind.options[name].secret else name


def _plain(reading: Reading, line: int, what: str, kind: Kind, name: str, text: str) -> str:
    option = kind.options[name]
    try:
        option.check(text)
    except ValueError as error:
        reading.problems.add(line, f"{what}: {name} {error}")
    else:
        if not option.public and re.search(r"//[^/]*@|[?#]", text):
            reading.problems.add(
                line, f"{what}: {name} seems to hold a password; put it into a file and write {name}_file: PATH"
            )
    return text
