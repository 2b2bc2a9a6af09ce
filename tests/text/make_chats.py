#!/usr/bin/env python3
"""Makes data/chats.json: chat templates of the forms that attn knows, and what Jinja makes of conversations.

    pip install jinja2
    tests/text/make_chats.py
"""

import json
import os

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

TURN = "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}"
ASK = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
HEADER = "'<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>'"
ANSWER = "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
GEMMA = (
    "{% for m in rest %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% endif %}"
    "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
    "{{ '<start_of_turn>' + role + '\\n' + (before if loop.first else '') }}"
    "{{ m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
TEMPLATES = {
    "ChatML": f"{{% for m in messages %}}{TURN}{{% endfor %}}{ASK}",
    "ChatML with a default": "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou answer.\\nBriefly.<|im_end|>\\n' }}{% endif %}" + TURN + "{% endfor %}" + ASK,
    "ChatML with thoughts": "{% for m in messages %}{% if m['role'] == 'assistant' %}"
    "{% set c = m['content'].split('</think>')[-1].lstrip('\\n') %}{{ '<|im_start|>assistant\\n' + c + '<|im_end|>\\n' }}"
    "{% else %}" + TURN + "{% endif %}{% endfor %}" + ASK,
    "Llama 3": "{% for m in messages %}{% set c = " + HEADER + " %}{% if loop.first %}{% set c = bos_token + c %}"
    "{% endif %}{{ c }}{% endfor %}" + ANSWER,
    "Llama 3.1": '{{ bos_token }}{% set date_string = "26 Jul 2024" %}'
    "{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'] | trim %}{% set rest = messages[1:] %}"
    "{% else %}{% set s = '' %}{% set rest = messages %}{% endif %}"
    "{{ '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\nToday Date: ' }}"
    "{{ date_string + '\\n\\n' + s + '<|eot_id|>' }}{% for m in rest %}{{ " + HEADER + " }}{% endfor %}" + ANSWER,
    "Gemma 2": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}{% set rest = messages %}{% set before = '' %}" + GEMMA,
    "Gemma 3": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set before = messages[0]['content'] + '\\n\\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set before = '' %}{% set rest = messages %}{% endif %}" + GEMMA,
}
CONVERSATIONS = [
    ["user", "What is attention?"],
    ["system", "Be brief. ", "user", " \u00a0two\nlines \t\x1f", "assistant", "<think>\nwell\n</think>\n\nyes", "user", ""],
    ["user", "a", "assistant", " b </think> c</think>\n\n d ", "user", "größer 注意"],
    ["user", "a", "user", "b"],
    ["assistant", "a"],
]


def refuse(message):
    raise TemplateError(message)


def main():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    cases = []
    for name, template in TEMPLATES.items():
        bos = "<bos>" if name.startswith("Gemma") else "<|begin_of_text|>"
        for words in CONVERSATIONS:
            messages = [{"role": r, "content": c} for r, c in zip(words[::2], words[1::2])]
            for ask in (True, False):
                try:
                    text = environment.from_string(template).render(
                        messages=messages, add_generation_prompt=ask, bos_token=bos
                    )
                except TemplateError:
                    text = None
                cases.append({"template": template, "name": name, "messages": words, "ask": ask, "text": text})
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "chats.json"), "w") as file:
        json.dump(cases, file, indent=0)


main()
