"""The fenced blocks of a Markdown document, and what its comments say of running them.

A block is run as it stands, unless the line before it is one of these comments, which no reader of the page sees:

    <!-- not run: REASON -->
    <!-- run with: s/TEXT/OTHER TEXT/ -->     may stand several times
    <!-- needs: PATH -->                      not run where the clone has no such path
    <!-- printed: by whom -->                 no command: every line of it is one that the block before printed
"""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^( *)```(\w*)\s*$")
COMMENT = re.compile(r"^ *<!-- (not run|run with|needs|printed): (.*?) -->\s*$")


@dataclasses.dataclass
class Block:
    document: pathlib.Path
    line: int  # of its fence, counted from 1
    language: str
    text: str
    reason_not_run: str = ""
    printed: bool = False  # by the block before

    @property
    def place(self) -> str:
        return f"{self.document.name}:{self.line}"


def replaced(text: str, rules: list[str], place: str) -> str:
    for rule in rules:
        match = re.fullmatch(r"s/(.*?)/(.*?)/", rule)
        if not match or match[1] not in text:
            raise SystemExit(f"{place}: expected s/TEXT/OTHER TEXT/ with a text of the block; found {rule}")
        text = text.replace(match[1], match[2])
    return text


def blocks(document: pathlib.Path) -> list[Block]:
    found: list[Block] = []
    reason, rules, printed = "", [], False
    lines = iter(enumerate(document.read_text().splitlines(), 1))
    for number, line in lines:
        if comment := COMMENT.match(line):
            if comment[1] == "not run":
                reason = comment[2]
            elif comment[1] == "needs":
                reason = "" if (ROOT / comment[2]).exists() else f"{comment[2]} is not there"
            elif comment[1] == "printed":
                printed = True
            else:
                rules.append(comment[2])
            continue
        if "<!--" in line and "-->" not in line and "`" not in line:
            raise SystemExit(f"{document.name}:{number}: expected a comment that ends on its line; found {line}")
        if fence := FENCE.match(line):
            indent, body = len(fence[1]), []
            for _, inner in lines:
                if inner.strip() == "```":
                    break
                body.append(inner[indent:])
            block = Block(document, number, fence[2], "\n".join(body) + "\n", reason, printed)
            block.text = replaced(block.text, rules, block.place)
            found.append(block)
        reason, rules, printed = "", [], False
    return found


def documents(root: pathlib.Path) -> list[pathlib.Path]:
    return [root / "README.md", root / "CONTRIBUTING.md", root / "HACKING.md", *sorted((root / "docs").rglob("*.md"))]
