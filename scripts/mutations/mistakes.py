"""Mistakes of one line, drawn at random: the lines that hold code, and what can go wrong in one.

Comments, the contents of strings, and whatever makes the message of an error are hidden first, so that no mistake is
drawn there. The patterns rely on clang-format's spaces: an operator of two operands stands between blanks.
"""

from __future__ import annotations

import io
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

# Tables that a script has made, what this processor or this build does not compile, and the printing of help.
LEFT_OUT = re.compile(r"src/text/(?:nfc_data|class_runs)\.cpp|src/io/no_npz\.cpp|src/kernels/amx/|tools/attn/(?:help|completions)"
                      r"|src/report/html/page/|src/web/|tools/attn/check/printed/|python/attn/(__main__|_types|_typed_options)\.py")

HIDDEN = "\x01"

# A kind of mistake: what is found in a line, and what stands there instead; \0 is what was found.
OPERAND = r"[\w.:\->]+(?:\([^()]*\)|\[[^\[\]]*\])?"
END = r"(?=\)| &&| \|\||;|$)"  # an operand is the whole of what the operator joins
EITHER_WAY = r"(?<!\bswap\()(?<!\bmin\()(?<!\bmax\()"  # two arguments of these may change places
ARGUMENT = r"([\w.:*&\-\[\]\"\x01]+)"
NAMES = [("min", "max"), ("any_of", "all_of"), ("lower_bound", "upper_bound"), ("front", "back"), ("starts_with", "ends_with"),
         ("floor", "ceil"), ("sin", "cos"), ("find", "rfind"), ("any", "all"), ("startswith", "endswith")]
EITHER: dict[str, list[tuple[str, str]]] = {
    "comparison": [(r" < ", " <= "), (r" < ", " >= "), (r" <= ", " < "), (r" <= ", " > "), (r" > ", " >= "), (r" > ", " <= "),
                   (r" >= ", " > "), (r" >= ", " < "), (r" == ", " != "), (r" != ", " == ")],
    "arithmetic": [(r" \+ ", " - "), (r" - ", " + "), (r" \* ", " / "), (r" / ", " * "), (r" % ", " / "), (r" \+= ", " -= "),
                   (r" -= ", " += "), (r" \*= ", " /= "), (r" << ", " >> "), (r" >> ", " << ")],
    "sign": [(r"(?<=[(,=?:] )-(?=[\w(])|(?<=\()-(?=[\w(])|(?<=return )-(?=[\w(])", "")],
    "term": [(rf" [+-] {OPERAND}(?=[),;\]]|$)", ""), (rf" [*/] {OPERAND}(?=[),;\]]|$)", "")],
    "constant": [(r"(?<![\w.'])(\d+)(?![\w.'])", r"(\1 + 1)"), (r"(?<![\w.'])([1-9]\d*)(?![\w.'])", r"(\1 - 1)"),
                 (r"(?<![\w.'])(\d+\.\d*f?|\d+(?:\.\d*)?e-?\d+f?)(?![\w.'])", r"(1 + 2 * \1)")],
    "name": [(rf"\b{a}(?=\()", b) for pair in NAMES for a, b in (pair, pair[::-1])],
    "arguments": [(rf"(?<=\(){EITHER_WAY}{ARGUMENT}, {ARGUMENT}(?=[,)])", r"\2, \1"),
                  (rf"(?<=, ){ARGUMENT}, {ARGUMENT}(?=[,)])", r"\2, \1")],
}  # fmt: skip
CPP: dict[str, list[tuple[str, str]]] = {
    "arithmetic": [(r" & ", " | "), (r" \| ", " & "), (r" [+-]= ", " = "), (r"\+\+(?=\w)", "--")],
    "logic": [(r" && ", " || "), (r" \|\| ", " && ")],
    "term": [(rf" && !?{OPERAND}{END}", ""), (rf" \|\| !?{OPERAND}{END}", "")],
    "condition": [(r"(?<![\w!])!(?=[\w(])", ""), (r"(\bif |\bif constexpr )\((.*)\)(?= \{$| \w+.*;$|$)", r"\1(!(\2))"),
                  (rf"(?<== )({OPERAND}) \? ({OPERAND}) : ({OPERAND})(?=;)", r"\1 ? \3 : \2")],
    "constant": [(r"\btrue\b", "false"), (r"\bfalse\b", "true")],
    "bound": [(r"(?<=\w\[)(\w+)(?=\])", r"\1 + 1"), (r"\.size\(\)", ".size() - 1"), (r"\.size\(\)", ".size() + 1")],
    "arguments": [(rf"(?<=\{{){ARGUMENT}, {ARGUMENT}(?=[,}}])", r"\2, \1")],
    "option": [(r"\.\w+ = [^,{}()]+, (?=\.)", ""), (r", \.\w+ = [^,{}()]+(?=[,}])", ""), (r", [\w.:]+(?=\))", "")],
    "return": [(r"(?<=\breturn )([^{};]+)(?=;)", "{}")],
}  # fmt: skip
PYTHON: dict[str, list[tuple[str, str]]] = {
    "arithmetic": [(r" [+-]= ", " = ")],
    "logic": [(r" and ", " or "), (r" or ", " and ")],
    "term": [(rf" (?:and|or) (?:not )?{OPERAND}(?=\)|:| and| or|$)", "")],
    "condition": [(r"\bnot (?!in\b)", ""), (r"\bis not None\b", "is None"), (r"\bis None\b", "is not None"), (r" not in ", " in "),
                  (r"((?:^ *| )(?:el)?if )(.+)(?=:$)", r"\1not (\2)")],
    "constant": [(r"\bTrue\b", "False"), (r"\bFalse\b", "True")],
    "bound": [(r"(\b[a-z_]\w*\[)(\w+)(?=\])", r"\1\2 + 1"), (r"(\blen\([\w.]+\))", r"\1 - 1")],
    "option": [(r", \w+=[\w.]+(?=[,)])", ""), (r"(?<=\()\w+=[\w.]+, ", "")],
    "return": [(r"(?<=\breturn )(?!None$)(.+)$", "None")],
}  # fmt: skip


def compiled(rules: dict[str, list[tuple[str, str]]]) -> dict[str, list[tuple[re.Pattern[str], str]]]:
    return {kind: [(re.compile(found), instead) for found, instead in EITHER.get(kind, []) + rules.get(kind, [])]
            for kind in EITHER | rules}


PATTERNS = {".cpp": compiled(CPP), ".hpp": compiled(CPP), ".py": compiled(PYTHON)}

CPP_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
MESSAGE = re.compile(r"\b(?:fail|wrong|Error|Refused|\w*Error|throw|raise)\b ?[\w:.]*(?=\()")
# A statement that may be left out: an assignment, a call, a jump, or such a thing under a condition. A name that is not
# there is a mistake that C++'s compiler finds.
STATEMENT = {
    ".py": re.compile(r"[\w.\[\]]+(?:\(| [-+*/|]= )|\w+[.\[][\w.\[\]]* = |raise\b|continue$|break$|del "),
    "": re.compile(r"[\w.:\->\[\]()*]+(?:\(| [-+*/|&]?= )[^{]*;$|\w+(?:\.|->)\w|(?:break|continue);$|(?:\+\+|--)\w|throw |if \(.*;$"),
}


def blank(text: str) -> str:
    return re.sub(r"[^\n]", HIDDEN, text)


def hidden_messages(text: str) -> str:
    """Without what is between the parentheses of a call that makes an error."""
    parts, at = [], 0
    for found in MESSAGE.finditer(text):
        if found.end() < at:
            continue
        depth, end = 0, found.end()
        while end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
            if depth == 0:
                break
        parts += [text[at:found.end() + 1], blank(text[found.end() + 1:end - 1])]
        at = end - 1
    return "".join(parts) + text[at:]


def hidden_cpp(text: str) -> str:
    def hide(found: re.Match[str]) -> str:
        token = found[0]
        return blank(token) if token.startswith("/") else token[0] + blank(token[1:-1]) + token[-1]

    return hidden_messages(CPP_TOKEN.sub(hide, text))


def hidden_python(text: str) -> str:
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    result = list(text)
    previous = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        begin, end = starts[token.start[0] - 1] + token.start[1], starts[token.end[0] - 1] + token.end[1]
        comment = token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and previous in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT))
        if comment:
            result[begin:end] = blank(text[begin:end])
        elif token.type == tokenize.STRING or token.type == getattr(tokenize, "FSTRING_MIDDLE", -1):
            result[begin + 1:end - 1] = blank(text[begin + 1:end - 1])
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            previous = token.type
    return hidden_messages("".join(result))


def hidden(path: str, text: str) -> str:
    """The text with blanks of its own kind in place of what is no code; as long, line by line."""
    return hidden_python(text) if path.endswith(".py") else hidden_cpp(text)


def code_lines(path: str, text: str) -> list[int]:
    """The numbers, from 0, of the lines that hold code and are compiled here."""
    numbers, elsewhere, types = [], [], None
    for number, line in enumerate(hidden(path, text).split("\n")):
        bare = line.strip(" \x01")
        if not path.endswith(".py") and bare.startswith("#"):
            if bare.startswith("#if"):
                elsewhere.append(bool(re.search(r"__aarch64__|_WIN32|__APPLE__|ATTN_STD_THREADS|__clang__|EMULATED", bare)))
            elif bare.startswith("#else"):
                elsewhere[-1] = not elsewhere[-1]
            elif bare.startswith("#endif"):
                elsewhere.pop()
            continue
        indent = len(line) - len(line.lstrip(" "))
        if types is not None and bare and indent <= types:
            types = None
        if path.endswith(".py") and bare.startswith("if TYPE_CHECKING"):
            types = indent
        if path.endswith(".py") and re.match(r"(?:from|import)\b", bare):
            continue
        if re.search(r"\w", bare) and not any(elsewhere) and types is None:
            numbers.append(number)
    return numbers


def whole_statement(path: str, lines: list[str], number: int) -> bool:
    """Whether the line is a statement that begins and ends in it."""
    line = lines[number].strip(" " + HIDDEN)
    if any(line.count(a) != line.count(b) for a, b in ("()", "[]", "{}")):
        return False
    before = next((bare for each in reversed(lines[:number]) if (bare := each.rstrip(" " + HIDDEN))), "")
    if path.endswith(".py"):
        return bool(STATEMENT[".py"].match(line)) and line[-1] not in ",:([{" and before[-1:] not in ",([{+-*/"
    return line.endswith(";") and bool(STATEMENT[""].match(line)) and before[-1:] in ";{}:)"


def expand(instead: str, found: re.Match[str], line: str) -> str:
    """The text that stands there instead; groups are what the line itself has, with its strings."""
    return re.sub(r"\\(\d)", lambda group: line[found.start(int(group[1])):found.end(int(group[1]))], instead)


def mistakes(path: str, text: str, number: int) -> dict[str, list[str]]:
    """The mistakes that a line can have: by kind, the line as it would then be."""
    lines, masked = text.split("\n"), hidden(path, text).split("\n")
    line, found = lines[number], {}
    for kind, rules in PATTERNS[Path(path).suffix].items():
        made = [line[:m.start()] + expand(instead, m, line) + line[m.end():]
                for pattern, instead in rules for m in pattern.finditer(masked[number])]
        made = [m for m in dict.fromkeys(made) if m != line]
        if made:
            found[kind] = made
    if whole_statement(path, masked, number):
        found["deletion"] = [re.match(r"\s*", line)[0] + ("pass" if path.endswith(".py") else ";")]
    return found


def sources(root: Path, folders: list[str]) -> list[str]:
    paths = sorted(str(p.relative_to(root)) for folder in folders for p in (root / folder).rglob("*")
                   if p.suffix in (".cpp", ".hpp", ".py") and p.is_file())
    return [path for path in paths if not LEFT_OUT.match(path)]


def draw(root: Path, folders: list[str], seed: int) -> Iterator[tuple[str, int, str, str]]:
    """Mistakes without end: the file, the line's number from 0, the kind, and the line as it would then be. Every line
    of code is as likely as another; of its mistakes every kind is."""
    texts = {path: (root / path).read_text() for path in sources(root, folders)}
    lines = [(path, number) for path, text in texts.items() for number in code_lines(path, text)]
    chance, drawn = random.Random(seed), set()
    while len(drawn) < len(lines):
        path, number = lines[chance.randrange(len(lines))]
        found = mistakes(path, texts[path], number)
        if not found:
            continue
        kind = chance.choice(sorted(found))
        after = chance.choice(found[kind])
        if (path, number, after) not in drawn:
            drawn.add((path, number, after))
            yield path, number, kind, after
