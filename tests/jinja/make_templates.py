#!/usr/bin/env python3
"""Makes data/templates.json: templates, conversations, and what transformers makes of them; null where it raises.

    pip install transformers jinja2
    tests/jinja/make_templates.py
"""

import json
import os

from transformers.utils.chat_template_utils import _compile_jinja_template

TURN = "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}"
ASK = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
CHATS = {
    "ChatML with a beginning": "{{ bos_token }}{% for m in messages %}" + TURN + "{% endfor %}" + ASK,
    "ChatML with a default": "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nPut \\'it\\' into \"\\\\boxed{}\".<|im_end|>\\n' }}{% endif %}" + TURN + "{% endfor %}" + ASK,
    "thoughts left out": "{% for m in messages %}{% if m['role'] == 'assistant' %}"
    "{% set c = m['content'].split('</think>')[-1].lstrip('\\n') %}{{ '<|im_start|>assistant\\n' + c + '<|im_end|>\\n' }}"
    "{% else %}" + TURN + "{% endif %}{% endfor %}" + ASK,
    "turns": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set before = messages[0]['content'] + '\\n\\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set before = '' %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% endif %}"
    "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
    "{{ '<start_of_turn>' + role + '\\n' + (before if loop.first else '') }}"
    "{{ m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}",
}
CONVERSATIONS = [
    ["user", "What is attention?"],
    ["system", "Be brief. ", "user", " \u00a0two\nlines \t\x1f", "assistant", "<think>\nwell\n</think>\n\nyes", "user", ""],
    ["user", "a", "assistant", " b </think> c</think>\n\n d ", "user", "größer 注意"],
    ["user", "a", "user", "b"],
    ["assistant", "a"],
]
# One a subject of the language.
SNIPPETS = [
    # white space
    "  {% if true %}\n a\n  {%- endif %}\n b {{- 'c' -}}  d\n\n",
    " {%+ if true %} x {% endif +%}\n y {# note #}\nz\n {#- more -#} \n w",
    "a\r\nb\rc\n\n",
    # scopes
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(n=0) %}{% for i in 'abc' %}{% set ns.n = ns.n + loop.index %}{% endfor %}{{ ns.n }}",
    "{% if true %}{% set y = 2 %}{% endif %}{{ y }}",
    "{% macro m(a, b=a, *c) %}{% endmacro %}",
    "{% macro m(a, b=a) %}{{ a }}-{{ b }}-{{ x }}{% endmacro %}{% set x = 5 %}{{ m(1) }}{{ m(1, b=2) }}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    # blocks that macros call, and arguments of a list and of a dict
    "{% macro m(a) %}[{{ caller(a, b=2) }}{{ caller is defined }}]{% endmacro %}"
    "{% call(x, b=7, c=x) m(1) %}{{ x }}{{ b }}{{ c }}{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{{ caller }}{% endmacro %}{{ m() }}{{ m(caller='x') }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}",
    "{% macro m() %}{{ caller(1) }}{% endmacro %}{% call m() %}a{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}a{% call m() %}b{{ caller is defined }}{% endcall %}{% endcall %}",
    "{% macro f(n) %}{% set c = caller() %}{% if n > 0 %}{% call f(n - 1) %}<{{ n }}{{ c }}>{% endcall %}{% else %}{{ c }}"
    "{% endif %}{% endmacro %}{% call f(3) %}end{% endcall %}",
    "{% call 'a' %}{% endcall %}",
    "{% call 'a'.upper() | lower %}{% endcall %}",
    "{% for x in 'ab' %}{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ x }}{{ loop.index }}{% break %}{% endcall %}{% endfor %}",
    "{% set x = 1 %}{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ x }}{% set x = 2 %}{{ x }}{% endcall %}{{ x }}",
    "{% macro m(a, b=2, c=3) %}{{ a }}{{ b }}{{ c }} {% endmacro %}{{ m(*[1]) }}{{ m(1, *'xy') }}{{ m(*[1], c=5) }}"
    "{{ m(c=5, *(1, 4)) }}{{ m(*[], **{'a': 1}) }}{{ m(1, **{}) }}{{ m(*missing, a=0) }}{{ m(**{'c': 7, 'a': 8}) }}",
    "{% macro m(a, b=2) %}{% endmacro %}{{ m(*[1, 2, 3]) }}",
    "{% macro m(a, b=2) %}{% endmacro %}{{ m(a=1, **{'a': 1}) }}",
    "{% macro m(a, b=2) %}{% endmacro %}{{ m(**{1: 1}) }}",
    "{% macro m(a, b=2) %}{% endmacro %}{{ m(**missing) }}",
    "{% macro m(a, b=2) %}{% endmacro %}{{ m(*[1], 2) }}",
    "{% macro m(a, b=2) %}{% endmacro %}{{ m(*1) }}",
    "{% if false %}{{ m(a=1, a=2) }}{% endif %}",
    "{% if false %}{{ m(**{}, a=2) }}{% endif %}",
    "{{ [1, 2] | join(*['-']) }}{{ missing | default(**{'default_value': 3}) }}{{ 4 is divisibleby(*[2]) }}{{ range(*[2, 4]) | list }}",
    "{{ -1 | abs }}{{ -2.5 | abs }}{{ true | abs }}{{ [1, -3] | map('abs') | list }}",
    "{{ 'a' | abs }}",
    "{{ range is callable }}{{ 'a'.upper is callable }}{{ missing is callable }}{{ 'a' is callable }}{{ [] is callable }}",
    "{{ 'a1' is lower }}{{ 'aB' is lower }}{{ '1' is lower }}{{ 'A1' is upper }}{{ '' is upper }}{{ none is upper }}",
    "{{ ' 1 2  3 4  '.split(none, 0) }}{{ ' 1 2  3 4  '.split(none, 2) }}{{ ' 1 2 '.split(maxsplit=2) }}{{ ' '.split(none, 0) }}",
    "{% for m in messages %}{{ given }}{% endfor %}{% set given = 1 %}{{ given }}",
    "{% macro m() %}{{ given }}{% endmacro %}{{ m() }}{% set given = 1 %}{{ m() }}",
    "{% if false %}{% set given = 1 %}{% endif %}{{ given }}",
    "{% set x %} a {% endset %}[{{ x }}]{% set x | trim | upper %} b {% endset %}[{{ x }}]",
    "{% filter upper %}a{{ 'b' }}{% endfilter %}{% generation %}c{% endgeneration %}",
    # loops
    "{% for a in [1, 2, 3] %}{{ loop.index }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.previtem }}"
    "{{ loop.nextitem }}{{ loop.length }} {% endfor %}",
    "{% for a in [1, 2, 3, 4] if a is even %}{{ a }}{{ loop.length }}{% else %}none{% endfor %}",
    "{% for a in [] %}x{% else %}none{% endfor %}{% for a in missing %}x{% else %}none{% endfor %}",
    "{% for a, b in {'x': 1, 'y': 2}.items() %}{{ a }}{{ b }}{% endfor %}{% for a, b in [[1]] %}{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% break %}",
    # expressions
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 10000000000000000.0 }} {{ 0.00001 }} {{ 0.1 + 0.2 }}",
    "{{ 1 < 2 < 3 }} {{ 3 > 2 == 2 }} {{ not 1 in [2] }} {{ 'a' ~ 1 ~ none ~ 2.0 }} {{ 'ab' * 2 }} {{ [1] + [2] }}",
    "{{ 'größer'[1:3] }} {{ 'größer'[::-1] }} {{ [1, 2, 3][-2:] }} {{ 'abc'[5] }} {{ 'größer' | length }}",
    "{{ [1, 'a', \"it's\", none, true, 1.0, (1,), {'k': [2]}] }} {{ 'q\\'\"\\n\\u00e9\\x07' | list }}",
    "{{ {'a': 1}.items() | list }} {{ {'a': 1}.get('b') }} {{ {'items': 1}['items'] }} {{ {'b': 1}.b }} {{ {}.c }}",
    "{% set d = {range(3): 'r', (1,): 't'} %}{{ range(5) in d }}{{ range(0, 3, 1) in d }}{{ (0, 1, 2) in d }}{{ d[range(3)] }}"
    "{{ d[range(9)] }}|",
    "{% set n = namespace() %}{% set d = {n: 'n'} %}{{ n in d }}{{ namespace() in d }}{{ d[n] }}{{ d.values() in d }}"
    "{{ ([1] | map('string')) in d }}{% for i in [1] %}{{ loop in d }}{% endfor %}",
    "{{ [1] in {} }}",
    "{{ {}.keys() in {} }}",
    "{{ missing }}{{ missing is defined }}{{ missing | default('d') }}{{ missing or 'e' }}{{ 'x' if missing }}",
    "{{ missing.a }}",
    "{{ missing + 1 }}",
    "{{ messages.append(1) }}",
    "{{ 'a' + 1 }}",
    "{{ 1 / 0 }}",
    # filters, tests, methods
    "{{ {'b': 'é<', 'a': [1, 2.5, none, true]} | tojson }} {{ [1, {'a': []}] | tojson(indent=2) }}",
    "{{ {'b': 1, 'a': 'é'} | tojson(ensure_ascii=true, separators=(',', ':'), sort_keys=true) }}",
    "{{ ['b', 'A', 'c'] | sort | join(',') }} {{ [3, 1] | max }} {{ [] | first }} {{ 'abc' | last }} {{ {'b': 1, 'A': 2} | dictsort }}",
    "{{ messages | map(attribute='role') | join('|') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{{ messages | map('length') | list }} {{ [1, 2, 3] | select('odd') | list }} {{ [1, none] | reject('none') | list }}",
    "{{ 'a\\nb\\n\\nc' | indent(2) }} {{ 'ÀB' | capitalize }} {{ 'grön Ω' | upper }}",
    "{{ 'GPT4 Correct ' + messages[0]['role'].title() }} {{ 'hello world-it' | title }} {{ 'a_b c-d'.title() }}",
    "{{ '<b>' | e }} {{ ('<a>' | safe) + '<b>' }} {{ '42' | int + 1 }} {{ 'x' | int(3) }} {{ '2.5' | float }}",
    "{{ 'a' is string }}{{ {} is mapping }}{{ {} is sequence }}{{ 1 is number }}{{ true is number }}{{ true is integer }}"
    "{{ missing is sequence }}{{ none is none }}{{ 3 is divisibleby 3 }}{{ 'a' is in 'abc' }}",
    "{{ ' a b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'abc'.replace('b', 'x') }}",
    "{{ 'abc'.startswith(('x', 'ab')) }} {{ 'xxaxx'.strip('x') }} {{ '{} {x} {{}}'.format('a', x=1) }} {{ '%s %d%%' % ('a', 7) }}",
    "{{ [3, 1, 2] | reverse | list }} {{ 'abc' | reverse }} {{ [3, 1] | min }} {{ ['b', 'A'] | min }} {{ [2, 3] | sum }} "
    "{{ [{'a': 2}, {'a': 5}] | sum(attribute='a', start=1) }} {{ ['b', 'a', 'B', 'b'] | unique | list }} {{ 'ÀB' | lower }}",
    "{{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='content') | list }} "
    "{{ messages | selectattr('name') | list | length }} {{ messages | rejectattr('name') | list | length }} "
    "{{ [0, 1, ''] | select | list }} {{ [0, 1, ''] | reject | list }}",
    "{{ 'abab' | replace('a', 'x') }} {{ 'abab' | replace('a', 'x', 1) }} {{ '  a ' | trim }}| {{ 'xxaxx' | trim('x') }} {{ 7 | string }} "
    "{{ 'x' | float(1.5) }} {{ 2.9 | int }} {{ [1, 2] | first }} {{ [1, 2] | last }} {{ 'a' | safe }}",
    "{{ {'b': 1, 'A': 2} | dictsort(by='value') }} {{ {'b': 1, 'A': 2} | dictsort(true) }} {{ {'b': 1, 'A': 2} | dictsort(reverse=true) }} "
    "{{ ['b', 'A', 'c'] | sort(reverse=true) }} {{ ['b', 'A', 'c'] | sort(case_sensitive=true) }}",
    "{{ 'abcab'.count('ab') }} {{ 'abc'.endswith('bc') }}{{ 'abc'.endswith(('x', 'y')) }} {{ 'abcab'.find('ab') }} {{ 'abcab'.rfind('ab') }} "
    "{{ 'abc'.find('x') }} {{ 'ÀB'.lower() }} {{ 'ÀB'.capitalize() }} {{ 'ab'.upper() }}",
    "{{ 'xxaxx'.lstrip('x') }} {{ 'xxaxx'.rstrip('x') }} {{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ ' a '.strip() }}| {{ 'abc'.removeprefix('a') }} "
    "{{ 'abc'.removeprefix('b') }} {{ 'abc'.removesuffix('c') }} {{ 'abc'.removesuffix('b') }} {{ 'a\\nb\\r\\nc'.splitlines() }}",
    "{{ ' a  b '.rsplit() }} {{ 'a,b,c'.rsplit(',') }} {{ {'a': 1, 'b': 2}.keys() | list }} {{ {'a': 1, 'b': 2}.values() | list }} "
    "{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b', 3) }}",
    "{{ true is boolean }}{{ 1 is boolean }}{{ 'a' is iterable }}{{ 1 is iterable }}{{ [] is mapping }}{{ missing is undefined }}"
    "{{ none is undefined }}{{ 1.0 is float }}{{ 1 is float }}{{ 1 is integer }}{{ 1.0 is integer }}{{ 2 is even }}{{ 2 is odd }}"
    "{{ 4 is divisibleby 3 }}{{ false is false }}{{ 0 is false }}{{ 1 is string }}{{ 'a' is sequence }}{{ 1 is sequence }}{{ 1.5 is number }}",
    "{{ [{'n': 'b', 'i': 1}, {'n': 'B', 'i': 2}, {'n': 'a', 'i': 3}] | unique(attribute='n') | map(attribute='i') | list }} "
    "{{ [{'n': 'b'}, {'n': 'A'}] | sort(attribute='n') | list }} {{ [{'n': 'b'}, {'n': 'a'}] | max(attribute='n') }} "
    "{{ [{'n': 'b'}, {'n': 'a'}] | min(attribute='n') }} {{ [{'n': 'b'}, {'n': 'a'}] | join('-', attribute='n') }}",
    "{{ 'a' | nothing_such }}",
    "{% if false %}{{ 'a' | nothing_such }}{% endif %}b",
    "{{ strftime_now('%d %b %Y') | length }} {{ dict(a=1) }} {{ range(3) | list }}",
    # limits that the sandbox has, too
    "{{ range(1000000) | list }}",
    "{{ ''.__class__ }}{{ ''.__class__.mro }}",
    "{% set x = namespace(_a=1) %}",
]


def main():
    cases = []

    def add(template, messages, ask=False, **options):
        given = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": ask, **options}
        try:
            text = _compile_jinja_template(template).render(**given, bos_token="<s>")
        except Exception:  # Jinja's, the sandbox's or Python's own: the template cannot be rendered
            text = None
        conversation = {k: v for k, v in given.items() if k not in ("tools", "documents")}
        cases.append({"template": template, "conversation": conversation, "text": text})

    for template in CHATS.values():
        for words in CONVERSATIONS:
            messages = [{"role": r, "content": c} for r, c in zip(words[::2], words[1::2])]
            add(template, messages, ask=True)
    for snippet in SNIPPETS:
        messages = [{"role": "user", "content": "a"}, {"role": "tool", "content": "b", "name": "n"}]
        add(snippet, messages, given="given")
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "templates.json"), "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")  # a case a line


main()
