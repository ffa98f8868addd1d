"""Writes jinja_cases.json: templates rendered by Jinja2, set up as transformers sets it up for chat templates.

    python jinja_cases.py (needs the package jinja2)
"""

import json
import os

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise TemplateError(message)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception

MESSAGES = [
    {"role": "system", "content": "  Be brief.\n"},
    {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "image"}, {"type": "text", "text": "this?"}]},
    {"role": "assistant", "content": "<think>\na\nb\n</think>\n\nAnswer", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": {
            "s": "x\"<&>'é\u2028😀\x7f\x01\\/", "n": 1, "x": 1.0, "y": 1e-7, "z": 2.5e20, "big": 2**63, "neg": -5, "t": True, "none": None,
            "list": [1, [], {}, {"k": [None]}]}}}]},
    {"role": "tool", "content": "<tool_response>\nno\n</tool_response>"},
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": None, "reasoning_content": "r"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "", "parameters": {"z": 1, "a": {"b": [1.5, False, "ü"]}}}}]

# A template in the style of the large Qwen models: search for the last real question, content parts, XML tool calls.
LARGE = r"""
{%- set image_count = namespace(value=0) %}
{%- macro render_content(content, count) %}
    {%- if content is string %}
        {{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for item in content %}
            {%- if 'image' in item or item.type == 'image' %}
                {%- if count %}
                    {%- set image_count.value = image_count.value + 1 %}
                {%- endif %}
                {{- '[image ' ~ image_count.value ~ ']' }}
            {%- elif 'text' in item %}
                {{- item.text }}
            {%- else %}
                {{- raise_exception('Unexpected item type in content.') }}
            {%- endif %}
        {%- endfor %}
    {%- elif content is none or content is undefined %}
        {{- '' }}
    {%- else %}
        {{- raise_exception('Unexpected content type.') }}
    {%- endif %}
{%- endmacro %}
{%- if not messages %}
    {{- raise_exception('No messages provided.') }}
{%- endif %}
{%- if tools and tools is iterable and tools is not mapping %}
    {{- '[tools]' }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '[/tools]\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" %}
        {%- set content = render_content(message.content, false)|trim %}
        {%- if not(content.startswith('<tool_response>') and content.endswith('</tool_response>')) %}
            {%- set ns.multi_step_tool = false %}
            {%- set ns.last_query_index = index %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if ns.multi_step_tool %}
    {{- raise_exception('No user query found in messages.') }}
{%- endif %}
{%- for message in messages %}
    {%- set content = render_content(message.content, true)|trim %}
    {%- if message.role == "system" %}
        {%- if not loop.first %}
            {{- raise_exception('System message must be at the beginning.') }}
        {%- endif %}
        {{- '[system]' + content + '\n' }}
    {%- elif message.role == "user" %}
        {{- '[user]' + content + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- set reasoning_content = reasoning_content|trim %}
        {%- if (preserve_thinking is undefined or preserve_thinking is true) or loop.index0 > ns.last_query_index %}
            {{- '[assistant]<think>' + reasoning_content + '</think>' + content }}
        {%- else %}
            {{- '[assistant]' + content }}
        {%- endif %}
        {%- if message.tool_calls and message.tool_calls is iterable and message.tool_calls is not mapping %}
            {%- for tool_call in message.tool_calls %}
                {%- if tool_call.function is defined %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<function=' + tool_call.name + '>\n' }}
                {%- if tool_call.arguments is defined %}
                    {%- for args_name, args_value in tool_call.arguments|items %}
                        {{- '<parameter=' + args_name + '>\n' }}
                        {%- set args_value = args_value | tojson | safe if args_value is mapping or (args_value is sequence and args_value is not string) else args_value | string %}
                        {{- args_value }}
                        {{- '\n</parameter>\n' }}
                    {%- endfor %}
                {%- endif %}
                {{- '</function>' }}
            {%- endfor %}
        {%- endif %}
        {{- '\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}
            {{- '[user]' }}
        {%- endif %}
        {{- '<tool_response>' + content + '</tool_response>' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}
            {{- '\n' }}
        {%- elif loop.last %}
            {{- '\n' }}
        {%- endif %}
    {%- else %}
        {{- raise_exception('Unexpected message role.') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '[assistant]' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- else %}
        {{- '<think>\n' }}
    {%- endif %}
{%- endif %}"""

ARGS = "messages[2].tool_calls[0].function.arguments"
SNIPPETS = [
    "{{ messages[::-1] | map(attribute='role') | join(',') }}",
    "{{ messages[1:3][0].role }} {{ messages[-1].role }} {{ messages[:-1] | length }} {{ messages[0].content[::2] }}",
    "{{ messages[0].content.strip() }}|{{ messages[0].content | trim }}|{{ messages[0].content.rstrip('\\n.') }}|",
    "{{ messages[2].content.split('</think>')[-1].lstrip('\\n') }}",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a-b-c'.split('-', 1) }}",
    "{{ 'aXbX'.replace('X', '-') }} {{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'Abc'.upper() }} {{ 'abc'.title() }}",
    "{% set ns = namespace(a=1, b='x') %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}{{ ns.b }}",
    "{% for m in messages %}{% if loop.first %}first {% endif %}{{ loop.index0 }}/{{ loop.length }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for m in messages %}{% if m.role == 'tool' %}{% break %}{% endif %}{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.role }} {% endfor %}",
    "{% for k, v in " + ARGS + " | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in " + ARGS + ".items() %}{{ k }}={{ v | tojson }};{% endfor %}",
    "{{ " + ARGS + " | tojson }}",
    "{{ " + ARGS + " | tojson(indent=2) }}",
    "{{ tools | tojson(indent=4) }}|{{ tools | tojson(sort_keys=true, separators=(',', ':')) }}",
    "{{ " + ARGS + ".s | tojson(ensure_ascii=true) }}",
    "{{ " + ARGS + ".list }} {{ tools[0].function.parameters }} {{ " + ARGS + ".none }} {{ true }} {{ 1.0 }} {{ 'x' }}",
    "{{ messages[0] is mapping }} {{ messages is sequence }} {{ messages[1].content is string }} {{ messages is mapping }} {{ 'x' is sequence }} {{ 'x' is iterable }}",
    "{{ nothing is defined }} {{ messages[0].nothing is defined }} {{ none is none }} {{ tools is none }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ nothing is none }}",
    "[{{ nothing }}][{{ messages[0].nothing }}][{{ messages[0]['nothing'] }}][{{ messages[99] }}]{% if messages[0].nothing %}yes{% else %}no{% endif %}{% for x in nothing %}x{% endfor %}",
    "{{ messages[0].get('role') }} {{ messages[0].get('nothing') }} {{ messages[0].get('nothing', 'd') }} {{ messages[0].nothing | default('e') }} {{ messages[5].content | default('f', true) }}",
    "{{ 'role' in messages[0] }} {{ 'nothing' in messages[0] }} {{ 'brief' in messages[0].content }} {{ 3 in [1, 2, 3] }} {{ 3 not in [1] }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | list }}",
    "{{ 7 // 2 }} {{ 7 / 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 'a' ~ 1 ~ none ~ true ~ 1.5 }} {{ 'ab' * 2 }}",
    "{{ 'x' if messages else 'y' }} {{ ('a' if false) }}| {{ [1, 2] + [3] }} {{ {'a': 1, 'b': [true]} }} {{ (1, 'a') }} {{ (1,) }} {{ ['it\\'s', '\\n', 1e20, 1e-7, 2.0, none] }} {{ 1e20 | string }}",
    "{%- macro m(a, b='q') -%} <{{ a }}{{ b }}> {%- endmacro -%}{{ m(1) }}{{ m('z', b=2) }}",
    "{% set x %}  block {{ 1 }} {% endset %}[{{ x }}][{{ x | trim | upper }}]",
    "a\n    {% if true %}\n  b\n    {% endif %}\n\n  {#- comment -#}\n c {{- ' d ' -}} e\n",
    "{{ messages | map(attribute='role') | unique | list }} {{ [3, 1, 2] | sort | first }} {{ [1, 2] | last }} {{ 'a b' | replace(' ', '_') }} {{ 'abc' | length }}",
    "{{ 'é<>&\"' }} {{ 'é<>&\"' | safe }} {{ 'a\\tb' }} {{ \"it's\" }} {{ 'q' | e }}",
    "{{ 'a\\nb' | indent(2) }} {{ 'x' | string }} {{ 12 | string }} {{ '12' | int + 1 }} {{ true | string }} {{ none | string }}",
    "{{ raise_exception('Only so: ' ~ messages[0].role) }}",
    "{{ nothing.x }}",
    "{{ bos_token is defined }}{{ documents is none }}{{ range(3) | list }}{{ dict(a=1) }}",
    "{{ messages[0].content | upper | lower | capitalize }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ not none }} {{ [] or 'z' }} {{ 0 and 1 }}",
    LARGE,
]

cases = []
for template in SNIPPETS:
    for options in [{}] if template is not LARGE else [
        {}, {"enable_thinking": False, "add_generation_prompt": True}, {"preserve_thinking": False, "add_generation_prompt": True}]:
        variables = {"add_generation_prompt": False, **options}
        try:
            expected = {"text": env.from_string(template).render(messages=MESSAGES, tools=TOOLS, documents=None, **variables)}
        except TemplateError as e:
            expected = {"error": type(e).__name__, "message": str(e)}
        except Exception as e:
            expected = {"error": type(e).__name__, "message": str(e)}
        cases.append({"template": template, "variables": variables, "expected": expected})

out = {"messages": MESSAGES, "tools": TOOLS, "cases": cases}
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "jinja_cases.json"), "w", encoding="utf-8") as f:
    json.dump(out, f, ensure_ascii=False, indent=1)
    f.write("\n")
