"""Chat templates of released models, rendered by attn as transformers renders them, or refused where it raises."""

import json
import random
import struct
import sys

import jinja_oracle
import pytest
from packages import ROOT

sys.path.insert(0, str(ROOT / "tests" / "text"))
from hostile import drawn_seed  # noqa: E402

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2.5}}}
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": 'Adds "two" numbers.',
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "the first"},
                "b": {"type": "number", "enum": [1, 2.5]},
            },
            "required": ["a", "b"],
        },
    },
}
CONVERSATIONS = {
    "no system": [{"role": "user", "content": "What is attention?"}],
    "system with signs": [
        {"role": "system", "content": "Put 'it' into \"\\boxed{}\" {{ or }} {% so %} <b>."},
        {"role": "user", "content": "größer 注意 & 1 < 2"},
    ],
    "three turns": [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "<think>\nwell\n</think>\n\ntwo"},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": "four"},
        {"role": "user", "content": "five"},
    ],
    "blanks": [{"role": "user", "content": " \u00a0two\nlines \t\x1f\n"}],
    "empty": [{"role": "user", "content": ""}],
    "tool": {
        "tools": [TOOL],
        "messages": [
            {"role": "user", "content": "1 + 2.5?"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdef123", **CALL}]},
            {"role": "tool", "name": "add", "tool_call_id": "abcdef123", "content": "3.5"},
            {"role": "assistant", "content": "It is 3.5."},
            {"role": "user", "content": "Thanks"},
        ],
    },
}


def templates_of(folder):
    """(name, template) of each .jinja, and of each GGUF file that has one."""
    for file in sorted((folder / "templates").glob("*.jinja")):
        yield file.stem, file.read_text(encoding="utf-8")
    for file in sorted(folder.glob("*.gguf")):
        data = file.read_bytes()
        key = b"tokenizer.chat_template" + struct.pack("<I", 8)  # a string, which the gguf package reads far slower
        at = data.find(key) + len(key)
        if at >= len(key):
            (size,) = struct.unpack_from("<Q", data, at)
            yield file.stem, data[at + 8 : at + 8 + size].decode()


def with_options(conversation, **options):
    given = conversation if isinstance(conversation, dict) else {"messages": conversation}
    return {**given, **options}


def compare(cases, lacking=0.0):
    """cases: (name, template, conversation). Returns how many were rendered, and how many both refuse. `lacking`: the
    share that may be refused for want of the interpreter, which names what it lacks."""
    rendered = refused = lacks = 0
    wrong = []
    answers = jinja_oracle.attn_answers([(template, conversation) for _, template, conversation in cases])
    assert len(answers) == len(cases)
    for (name, template, conversation), answer in zip(cases, answers):
        text, error = jinja_oracle.transformers_text(template, conversation)
        if text and " at 0x" in text and "error" in answer:  # an address, which is another every time
            text = None
        if text is None and "error" in answer:
            refused += 1
        elif text is not None and answer.get("text") == text:
            rendered += 1
        elif lacking and "a template of what attn has of Jinja" in answer.get("error", ""):
            lacks += 1
        else:
            wrong.append(f"{name}\n  template: {template[:2000]!r}\n  there: {text if error is None else error!r}\n  here:  {answer}")
    assert not wrong, f"{len(wrong)} of {len(cases)} differ:\n" + "\n".join(wrong[:20])
    assert lacks <= lacking * len(cases), f"{lacks} of {len(cases)} are refused for want of the interpreter"
    return rendered, refused


def test_templates_of_released_models(llama_cpp_models):
    templates = list(templates_of(llama_cpp_models))
    assert len(templates) >= 70
    cases = []
    for name, template in templates:
        for about, conversation in CONVERSATIONS.items():
            for ask in (True, False):
                given = with_options(conversation, add_generation_prompt=ask)
                cases.append((f"{name}, {about}, {ask}", template, given))
                if about == "three turns":
                    more = {"enable_thinking": False, "date_string": "01 Feb 2030", "thinking": True}
                    cases.append((f"{name}, {about}, {ask}, options", template, {**given, **more}))
    rendered, refused = compare(cases)
    print(f"{rendered} rendered alike, {refused} refused by both")
    assert rendered > 0.8 * len(cases)


# ---- templates drawn at random: what is covered is the language, and not the templates of a list

TEXTS = ["", "a", "Ab c", " two  words ", "größer 注意", "x,y,,z", "<b> & 'q' \"d\"", "line\nline\n\n", "12", "-3.50", "%s|%d", "{}-{x}"]
VARIABLES = {
    "s": "Hello, World",
    "e": "",
    "u": " ÄÖ ß ﬁ\u00a0 ",
    "n": 7,
    "f": 2.5,
    "yes": True,
    "nothing": None,
    "items": [3, 1, 2],
    "words": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": [1, {"c": None}], "items": "own", "x y": 2.0},
    "rows": [{"k": "x", "v": 2}, {"k": "Y", "v": 1}, {"k": "x", "v": None}, {}],
    "deep": [[1, 2], (3, 4), {}],
}
NAMES = [*VARIABLES, "missing", "messages"]
FILTERS = [
    "trim", "upper", "lower", "title", "length", "capitalize", "string", "list", "first", "last", "int", "float",
    "tojson", "e", "safe", "items", "dictsort", "sort", "unique|list", "reverse|list", "sum", "max", "min",
    "join", "join(', ')", "default('z')", "default('z', true)", "d(1)", "replace('l', 'L')",
    "indent", "indent(2, true)", "indent(first=true, blank=true)", "tojson(indent=2)", "tojson(ensure_ascii=true)",
    "tojson(sort_keys=true, separators=(',', ':'))", "map('upper')|list", "map(attribute='k')|list",
    "select|list", "reject('odd')|list", "selectattr('k')|list",
    "selectattr('k', 'equalto', 'x')|list", "rejectattr('v', 'none')|list", "sort(reverse=true)",
    "sort(attribute='k')",
    "int(5)", "trim('a ')", "trim(1)", "count", "sum(attribute='v')", "sum(start='')", "join(attribute='k')", "string|length", "list|tojson",
    "abs", "join(*[', '])", "d(**{'default_value': 1})", "max(attribute='v')", "dictsort(reverse=true)", "dictsort(by='value')", "unknown_filter",
]  # fmt: skip
TESTS = [
    "defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean",
    "true", "false", "odd", "even", "divisibleby 3", "in [1, 'a']", "in s", "equalto 7", "eq('a')", "gt 1", "lt(2)",
    "callable", "lower", "upper", "divisibleby(*[2])",
]  # fmt: skip
METHODS = [
    "strip()", "lstrip()", "rstrip('d ')", "split()", "split(',')", "split(' ', 1)", "split(none, 1)", "split(maxsplit=2)", "rsplit(',', 1)", "upper()",
    "lower()", "title()", "capitalize()", "replace('l', '')", "startswith('H')", "endswith(('d', 'z'))", "find('o')",
    "rfind('o')", "count('l')", "join(words)", "format(1, x='y')", "splitlines()", "removeprefix('He')",
    "removesuffix('d')", "items()|list", "keys()|list", "values()|list", "get('a')", "get('zz', 3)",
    "append(1)", "pop()", "zfill(6)", "a", "b.c", "k", "items", "nope", "format", "items()", "keys()",
]  # fmt: skip
SUBSCRIPTS = ["0", "-1", "1:", ":-1", "::2", "::-1", "1:3", "-2::-1", "'a'", "'items'", "5", "true", "none", "1:'a'", "n"]


class Writer:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def one(self, *choices):
        return self.random.choice(choices)

    def literal(self):
        kind = self.random.randrange(7)
        if kind == 0:
            return str(self.random.randint(-3, 9))
        if kind == 1:
            return self.one("1.0", "2.5", "0.1", "0.0000001", "100000.0", "12345678901234567890.5")
        if kind < 4:
            text = self.random.choice(TEXTS).replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
            return f"'{text}'"
        if kind == 4:
            return "[" + ", ".join(self.expression(3) for _ in range(self.random.randrange(4))) + "]"
        if kind == 5:
            return "{" + ", ".join(f"{self.one(*'ab', 'n')!r}: {self.expression(3)}" for _ in range(self.random.randrange(3))) + "}"
        return self.one("true", "false", "none", "True", "None", "()", "(1,)", "(1, 'b')", "range(3)|list")

    def expression(self, depth=0):
        kind = self.random.randrange(11 if depth < 4 else 2)
        inner = lambda: self.expression(depth + 1)  # noqa: E731
        if kind == 0:
            return self.literal()
        if kind == 1:
            return self.random.choice(NAMES)
        if kind == 2:
            return f"{inner()} {self.one('+', '-', '*', '/', '//', '%', '~', '~', '+')} {inner()}"
        if kind == 3:
            return f"({inner()} {self.one('==', '!=', '<', '<=', '>', '>=', 'in', 'not in')} {inner()})"
        if kind == 4:
            return f"({inner()} {self.one('and', 'or')} {inner()})"
        if kind == 5:
            return f"({inner()} if {inner()}{self.one('', ' else ' + inner())})"
        if kind == 6:
            return f"({inner()})|{self.random.choice(FILTERS)}"
        if kind == 7:
            return f"({inner()} is {self.one('', 'not ')}{self.random.choice(TESTS)})"
        if kind == 8:
            return f"({inner()}).{self.random.choice(METHODS)}"
        if kind == 9:
            return f"({inner()})[{self.random.choice(SUBSCRIPTS)}]"
        return self.one("not ", "-", "+") + inner()

    def tag(self, text):
        return "{%" + self.one("", "", "-", "+") + f" {text} " + self.one("", "", "-", "+") + "%}"

    def body(self, depth, loop=False):
        return "".join(self.statement(depth + 1, loop) for _ in range(self.random.randint(1, 3)))

    def statement(self, depth=0, loop=False):
        kind = self.random.randrange(12 if depth < 3 else 4)
        blank = self.one("", " ", "\n", "  \n ", "\n\n", "\ttext ", "注")
        name = self.one("x", "y", "s", "n", "ns.x", "loop")
        if kind < 2:
            return blank + "{{" + self.one("", "-") + f" {self.expression(2)} " + self.one("", "-") + "}}"
        if kind == 2:
            return blank + self.one("{# note #}", "{#- {{ x }} -#}")
        if kind == 3:
            return blank + self.tag(f"set {name} = {self.expression(2)}")
        if kind == 4:
            more = self.one("", self.tag(f"elif {self.expression(2)}") + self.body(depth, loop), self.tag("else") + self.body(depth, loop))
            return blank + self.tag(f"if {self.expression(2)}") + self.body(depth, loop) + more + self.tag("endif")
        if kind < 7:
            over = self.one("items", "words", "d", "d.items()", "rows", self.expression(2))
            condition = self.one("", "", f" if {self.expression(3)}", " if x")
            target = self.one("x", "x", "x, y") if over != "d.items()" else "x, y"
            told = "{{ loop." + self.one("index", "index0", "revindex", "first", "last", "length", "previtem", "nextitem") + " }}"
            # attn asks the condition of all items first, Jinja of those that a break leaves: it may fail for the others.
            stop = "" if condition else self.one("", "", "", self.tag("if loop.index > 1") + self.tag(self.one("break", "continue")) + self.tag("endif"))
            other = self.one("", self.tag("else") + "none")
            return f"{blank}{self.tag(f'for {target} in {over}{condition}')}{told}{stop}{self.body(depth, True)}{other}{self.tag('endfor')}"
        if kind == 7:
            given = self.one("", "a", "a, b=2", "a=s, b=a")
            call = self.one("m()", "m(1)", f"m({self.expression(3)}, b=3)", "m(b=1)", "m(1, 2, 3)", "m(c=1)",
                            "m(*items[:1])", "m(1, **{'b': s})", "m(b=1, *words[1:2])", "m(**d)", "m(*[1], 2)", "m(caller=upper)")  # fmt: skip
            inside = self.one("", "", "{{ caller() }}", "{{ caller(b, 1) }}", "{% if caller %}{{ caller(x) }}{% endif %}")
            macro = f"{blank}{self.tag(f'macro m({given})')}[{{{{ a }}}}|{{{{ b }}}}]{inside}{self.body(depth)}{self.tag('endmacro')}"
            if self.one(True, False):
                return f"{macro}{{{{ {call} }}}}"
            takes = self.one("", "", "(x)", "(y, x=2)")
            return f"{macro}{self.tag(f'call{takes} {call}')}<{{{{ x }}}}>{self.one('', '{{ caller() }}')}{self.body(depth)}{self.tag('endcall')}"
        if kind == 8:
            return blank + self.tag(f"set {self.one('x', 'y', 's')}{self.one('', '|upper', '|trim|length')}") + self.body(depth) + self.tag("endset") + "{{ x }}"
        if kind == 9:
            return blank + self.tag(f"filter {self.one('upper', 'trim|upper', 'indent(2)')}") + self.body(depth) + self.tag("endfilter")
        if kind == 10:
            return blank + self.tag(f"set ns = namespace(x={self.expression(3)})") + self.body(depth, loop) + "{{ ns.x }}"
        return blank + self.tag("generation") + self.body(depth) + self.tag("endgeneration")

    def calls(self):
        """Macros in one another, called with every kind of argument, by {{ }} and by the tag call."""
        one = lambda: self.one("1", "s", "n", "'x'", "[1, 2]", "missing", "x", "a", "caller", "caller()", "caller(1)", "caller(a, b=2)")  # noqa: E731
        given = lambda: ", ".join(self.one(one(), one(), "b=1", "a=s", "c=2", "*[1]", "*words", "*'ab'", "*x", "*[]", "**{}", "**{'b': 3}", "**{'c': n}", "**d", "**none", "**{'caller': s}")  # noqa: E731
                                  for _ in range(self.one(0, 1, 1, 2, 3)))  # fmt: skip
        takes = lambda: self.one("", "()", "(a)", "(a, b=7)", "(a, b=n)", "(a=1, b=2)")  # noqa: E731

        def body(depth):
            all = ""
            for _ in range(self.one(1, 2, 3)):
                name = self.one("m", "m", "k", "caller")
                kind = self.random.randrange(7 if depth < 3 else 2)
                if kind < 2:
                    all += self.one("{{ a }}|", "{{ b }}|", "{{ x }}|", f"{{{{ {one()} }}}}", "{{ caller is defined }}", "{{ m is callable }}")
                elif kind == 2:
                    all += f"{{{{ {name}({given()}) }}}}"
                elif kind == 3:
                    all += f"{{% call{takes()} {name}({given()}) %}}<{body(depth + 1)}>{{% endcall %}}"
                elif kind == 4:
                    all += f"{{% macro {self.one('m', 'k')}{self.one('()', '(a)', '(a, b=2)', '(a, b=a)', '(b=x)')} %}}[{body(depth + 1)}]{{% endmacro %}}"
                elif kind == 5:
                    all += f"{{% for x in {self.one('words', 'items', '[1]')} %}}{body(depth + 1)}{{% endfor %}}"
                else:
                    all += f"{{% set {self.one('x', 'a', 'b')} = {one()} %}}{body(depth + 1)}"
            return all

        return f"{{% macro m(a, b=1) %}}({{{{ a }}}}{self.one('', '{{ caller() }}', '{{ caller(a) }}')}){{% endmacro %}}{body(0)}"


@pytest.mark.parametrize("kind", ["expression", "statement", "calls"])
def test_random_templates(kind):
    seed = drawn_seed()
    writer = Writer(seed)
    conversation = {"messages": [{"role": "user", "content": "hi"}], **json.loads(json.dumps(VARIABLES))}
    count = {"expression": 1500, "statement": 700, "calls": 1500}[kind]
    cases = []
    for i in range(count):
        if kind == "expression":
            template = "{{ " + writer.expression() + " }}"
        else:
            template = writer.calls() if kind == "calls" else writer.body(0)
        cases.append((f"seed {seed}, {kind} {i}", template, conversation))
    rendered, refused = compare(cases, lacking=0.1)
    print(f"{rendered} rendered alike, {refused} refused by both")
    assert rendered > 0.05 * count
