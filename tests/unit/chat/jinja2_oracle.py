"""Python's Jinja2 as the oracle of test_jinja2.cpp, set up as Hugging Face's transformers sets it up.

    jinja2_oracle.py cases           prints the conversations, one JSON object a line
    jinja2_oracle.py expressions     prints small templates and their values, one JSON object a line
    jinja2_oracle.py numbers         prints a request that is full of numbers, and what a template is to make of it
    jinja2_oracle.py compare FILE    renders again what FILE says was rendered, one JSON object a line, and prints what differs

It wants Jinja2 and nothing else that Python does not bring.
"""

import datetime
import json
import re
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

# ---- Conversations ----------------------------------------------------------------------------------------------

# A number that must stay as it is written here; json.dumps() would write it again.
RAW = "raw:"


def to_json(value):
    return re.sub(r'"' + RAW + r'([^"]*)"', r"\1", json.dumps(value, ensure_ascii=False))


NUMBERS = [
    *("0", "-0", "-0.0", "1", "1.0", "1.10", "-1.5", "0.1", "1e-7", "1E5", "1e15", "1e16", "1e22", "1e23", "5e-324"),
    *("52.52000659", "1727133797.5", "12345678.9", "0.30000000000000004", "0.0001", "0.00001", "123456789012345680.0"),
    *("1.7976931348623157e308", "2.2250738585072014e-308", "9007199254740993", "1234567", "-9223372036854775808"),
    *("9223372036854775807", "9223372036854775808", "18446744073709551615", "2.5e-5", "100000000000000000000.0"),
]

ODD_TEXTS = [
    "it's \"quoted\" <b>&amp;</b> \\ / \t tab",
    "line one\nline two\r\nline three\n",
    "  spaces around  ",
    "\u00a0\u2003wide spaces around\u3000",
    "Grüße, 日本語, 🏠, e\u0301, \u2028, \u00df, \ufb01",
    "\x1c\x1d control \x01\x7f \x85",
    "{'single': True} {{ braces }} {% tags %}",
    "<think>not mine</think> after",
    "</think>",
    "",
]


def user(content):
    return {"role": "user", "content": content}


def said(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, index=1):
    text = arguments if isinstance(arguments, str) else to_json(arguments)
    return {"id": f"call0000{index}", "type": "function", "function": {"name": name, "arguments": text}}


def result(content, index=1, **more):
    return {"role": "tool", "tool_call_id": f"call0000{index}", "name": "act", "content": content, **more}


def tool(name, properties=None, description="Does something.", **more):
    parameters = {"type": "object", "properties": properties or {}, **more}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def tool_sets():
    plain = {"x": {"type": "string", "description": "A text."}, "n": {"type": "integer", "default": 3}}
    sets = {
        "typed": [tool("act", plain, required=["x"]), tool("look_up", {"ids": {"type": "array", "items": {"type": "number"}}})],
        "untyped": [tool("act", {"x": {"description": "no type"}, "y": {}})],
        "unions": [
            tool("act", {
                "x": {"type": ["string", "null"], "description": "one or none"},
                "y": {"anyOf": [{"type": "integer"}, {"type": "string", "enum": ["a", "b"]}, {"type": "null"}]},
                "z": {"oneOf": [{"type": "object", "properties": {"q": {"type": "boolean"}}}, {"type": "array"}]},
                "w": {"allOf": [{"type": "object"}]},
            }, required=["x", "y"]),
        ],
        "arrays": [tool("act", {"x": {"type": "array"}, "y": {"type": "array", "items": {}}, "z": {"type": "array", "items": {"type": "array"}}})],
        "nested": [
            tool("act", {
                "place": {
                    "type": "object", "description": "Where", "required": ["lat"],
                    "properties": {"lat": {"type": "number"}, "deep": {"type": "object", "properties": {"e": {"enum": [1, "two", None, True, 2.5]}}}},
                    "additionalProperties": False,
                },
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "list": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}, "minItems": 1},
            }, additionalProperties=False),
        ],
        "references": [tool("act", {"x": {"$ref": "#/$defs/X"}}, **{"$defs": {"X": {"type": "string", "title": "An X"}}})],
        "numbers": [tool("act", {f"n{i}": {"type": "number", "default": RAW + n} for i, n in enumerate(NUMBERS)})],
        "constants": [tool("act", {"x": {"const": "only"}, "y": {"type": "boolean", "default": True}, "z": {"type": "string", "nullable": True, "default": None}})],
        "odd texts": [tool("act", {f"p{i}": {"type": "string", "description": t, "enum": [t, "b"]} for i, t in enumerate(ODD_TEXTS)}, description=ODD_TEXTS[0] + ODD_TEXTS[4])],
        "bare": [
            {"type": "function", "function": {"name": "bare", "parameters": {"type": "object", "properties": {}}}},
            {"type": "function", "function": {"name": "described", "description": "Has no arguments.", "parameters": {}}},
        ],
        "odd names": [tool("act", {"items": {"type": "string"}, "keys": {"type": "integer"}, "größe": {"type": "number"}, "a b": {"type": "boolean"}, "get": {"type": "string"}})],
    }
    return sets


def conversations():
    """Names and messages; some have tools."""
    arguments = {"x": "text", "n": 3}
    turns = [user("a"), said("b"), user("c")]
    called = [user("a"), said(None, tool_calls=[call("act", arguments)]), result("done")]
    yield "one question", [user("Hello there")]
    yield "system", [{"role": "system", "content": "Be brief."}, user("Hello")]
    yield "turns", turns
    yield "system and turns", [{"role": "system", "content": "Be brief.\n"}, *turns, said("d"), user("e")]
    yield "call", called
    yield "call and answer", [*called, said("It is done."), user("And now?")]
    yield "call with text", [user("a"), said("I will look.", tool_calls=[call("act", arguments)]), result("done")]
    yield "call with reasoning", [
        user("a"), said("I look.", reasoning_content="They want a look.", tool_calls=[call("act", arguments)]), result("done"),
        said("Done.", reasoning_content="Fine."), user("b"),
    ]
    yield "parallel calls", [
        user("a"), said(None, tool_calls=[call("act", arguments), call("look_up", {"ids": [1, 2]}, 2)]), result("one"), result("two", 2),
    ]
    yield "two rounds", [
        *called, said(None, tool_calls=[call("act", {"x": "again"}, 2)]), result('{"temperature": 21.50, "ok": true}', 2), said("21.5"), user("Thanks"),
    ]
    yield "no arguments", [user("a"), said(None, tool_calls=[call("act", {})]), result("")]
    yield "numbers", [user("a"), said(None, tool_calls=[call("act", {f"n{i}": RAW + n for i, n in enumerate(NUMBERS)})]), result("52.52000659")]
    yield "nested arguments", [
        user("a"), said(None, tool_calls=[call("act", {"o": {"p": [1, 2.5, None, True, "x", {"q": []}], "r": {}}, "n": None, "t": True, "f": False})]),
        result('[1, 2]'),
    ]
    yield "odd arguments", [user("a"), said(None, tool_calls=[call("act", {f"p{i}": t for i, t in enumerate(ODD_TEXTS)})]), result("ok")]
    yield "odd names in arguments", [user("a"), said(None, tool_calls=[call("act", {"items": "i", "keys": 1, "größe": 1.5, "a b": True})]), result("ok")]
    yield "reasoning", [user("a"), said("b", reasoning_content="because"), user("c"), said("d", reasoning_content="\nand so\n"), user("e")]
    yield "reasoning in text", [user("a"), said("<think>\nwhy\n</think>\n\nb"), user("c")]
    for i, text in enumerate(ODD_TEXTS[:-1]):
        yield f"odd text {i}", [{"role": "system", "content": text}, user(text), said(text, reasoning_content=text), user(text)]
        yield f"odd result {i}", [user(text), said(text, tool_calls=[call("act", {"x": text})]), result(text)]
    yield "empty texts", [{"role": "system", "content": ""}, user(""), said(""), user("x")]
    yield "parts", [user([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]), said([{"type": "text", "text": "b"}]), user("c")]
    long = "".join(f"{i:07x} Grüße\n" for i in range(64 * 1024 // 16))
    yield "long", [user(long), said("b", tool_calls=[call("act", {"x": long})]), result("c")]


def cases():
    sets = tool_sets()
    for name, messages in conversations():
        with_calls = any(m.get("tool_calls") for m in messages)
        yield {"name": name, "messages": messages, **({"tools": sets["typed"]} if with_calls else {})}
    for name, tools in sets.items():
        yield {"name": f"tools: {name}", "messages": [{"role": "system", "content": "Help."}, user("Hello")], "tools": tools}
    some = [*dict(conversations())["reasoning"]]
    called = [*dict(conversations())["call with reasoning"]]
    for kwargs in ({"enable_thinking": False}, {"enable_thinking": True}, {"reasoning_effort": "high"}, {"preserve_reasoning": False},
                   {"thinking": True}, {"tools_in_user_message": False}, {"custom_tools": None}, {"budget": 512, "thinking_budget": 0}):
        yield {"name": f"arguments: {json.dumps(kwargs)}", "messages": some, "tools": sets["typed"], "kwargs": kwargs}
        yield {"name": f"arguments and calls: {json.dumps(kwargs)}", "messages": called, "tools": sets["typed"], "kwargs": kwargs}
    yield {"name": "finished turns", "messages": some[:2], "cue": False}
    yield {"name": "to be continued", "messages": [user("a"), said("so far")]}


def numbers():
    """A request that is full of numbers, and what is to be printed."""
    raw = {f"n{i}": RAW + n for i, n in enumerate(NUMBERS)}
    values = json.loads(to_json(raw))
    source = (
        "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{% set a = c.function.arguments %}{{ a | tojson }}"
        "{% for k, v in a.items() %}{{ k }}={{ v }};{% endfor %}{% endfor %}{% endfor %}"
        "{% for t in tools or [] %}{{ t.function.parameters.properties | tojson }}{% endfor %}{{ values | default({}) | tojson }}"
    )
    pairs = "".join(f"{name}={value};" for name, value in values.items())
    messages = [user("a"), said(None, tool_calls=[call("act", raw)]), result("c")]
    expected = "a" + json.dumps(values) + pairs + "c" + json.dumps(values) + json.dumps(values)
    texts = {"messages": to_json(messages), "tools": to_json([tool("act", raw)]), "kwargs": to_json({"values": raw})}
    return {"source": source, **texts, "expected": expected}


# What templates are made of, over VALUES.
EXPRESSIONS = r"""
{{ n }}|{{ -n }}|{{ n + 1 }}|{{ n * 2.5 }}|{{ n / 2 }}|{{ 7 // 2 }}|{{ -7 // 2 }}|{{ -7 % 3 }}|{{ 7.5 % 2 }}|{{ 7 % -3 }}
{{ big + 1 }}|{{ big * 1 }}|{{ big > big - 1 }}|{{ big == big - 1 }}|{{ 9007199254740993 }}|{{ u64 }}|{{ u64 == u64 }}|{{ u64 > big }}
{{ 1.0 }}|{{ 1e3 if false else 0.1 + 0.2 }}|{{ 1 / 3 }}|{{ 100000000000000000000.0 }}|{{ 3.0 | int }}|{{ 3 | float }}|{{ '4' | int }}|{{ '4.7' | int }}|{{ '4x' | int }}|{{ ' 12 ' | int }}|{{ 'x' | int(5) }}
{{ '1.50' | float }}|{{ 'nope' | float }}|{{ true | int }}|{{ -3 | abs }}|{{ 2 == 2.0 }}|{{ 1 == true }}|{{ '1' == 1 }}
{{ none }}|{{ true }}|{{ missing }}|{{ [] }}|{{ {} }}|{{ (1,) }}|{{ [none, true, 1.5, 'a'] }}|{{ {'k': [1, {'x': none}]} }}
{{ 'a' ~ 1 ~ none ~ missing ~ [1] ~ 2.50 ~ true }}|{{ 'ab' * 3 }}|{{ [1] + [2] }}
{{ texts }}|{{ words }}|{{ object }}
{{ texts | tojson }}|{{ object | tojson(indent=2) }}|{{ object | tojson(sort_keys=true) }}|{{ texts | tojson(ensure_ascii=true) }}|{{ object | tojson(separators=(',', ':')) }}|{{ [] | tojson(indent=4) }}
{{ n | tojson }}|{{ none | tojson }}|{{ true | tojson }}|{{ floats | tojson }}|{{ floats }}|{{ floats | join(' ') }}
{% for f in floats %}{{ f }} {{ f | string }} {{ f | tojson }} {{ f ~ '' }};{% endfor %}
{{ 1 in [1, 2] }}|{{ [1] in [[1], 2] }}|{{ ['string', 'null'] in ['string'] }}|{{ missing in ['a'] }}|{{ missing in (1, 2) }}|{{ missing in {} }}|{{ none in [none] }}|{{ 'a' in missing }}|{{ 'k' in {'k': 1} }}|{{ 'b' not in 'abc' }}|{{ 1.0 in [1] }}
{{ wide | trim }}|{{ wide.strip() }}|{{ wide.lstrip() }}|{{ wide.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'éaé'.strip('é') }}|{{ ' a ' | trim }}
{{ city | length }}|{{ city[0] }}|{{ city[-1] }}|{{ city[1:3] }}|{{ city[::-1] }}|{{ city[:-2] }}|{% for c in city %}{{ c }},{% endfor %}|{{ city | upper == 'X' }}|{{ 'abc' | upper }}|{{ 'abc def' | title }}|{{ 'ABC' | capitalize }}
{{ 'a b  c '.split() }}|{{ 'a b  c '.split(' ') }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'a,b,c'.rsplit(',', 1) }}|{{ ''.split() }}|{{ '  a  b '.split(none, 1) }}|{{ 'x'.split('</think>')[-1] }}
{{ 'aaaa'.replace('a', 'b', 2) }}|{{ 'aaa' | replace('a', 'b') }}|{{ 'é'.replace('', '-') }}|{{ 'aaa' | replace('a', 'b', 1) }}
{{ none | default('d') }}|{{ missing | default('d') }}|{{ '' | default('d') }}|{{ '' | default('d', true) }}|{{ none | default('d', true) }}|{{ object | default('d') }}|{{ 0 | d('x', boolean=true) }}|{{ missing | default }}
{{ object.length }}|{{ object['items'] is defined }}|{{ object.items() | list }}|{{ {'items': 5}['items'] }}|{{ {'keys': 1}.keys() | list }}|{{ object.tojson is defined }}|{{ {}['items'] is defined }}|{% if {}['items'] %}callable{% endif %}|{{ {}.get('x') }}|{{ {}.get('x', 3) }}
{{ words | selectattr('t', 'defined') | list }}|{{ words | selectattr('t') | list }}|{{ words | selectattr('t', 'equalto', 'b') | list }}|{{ words | rejectattr('t', 'in', ['b', 'c']) | list }}|{{ words | map(attribute='t') | list }}|{{ words | map(attribute='t', default='-') | list }}|{{ words | selectattr('o.p', 'eq', 1) | list }}
{{ [1, 0, none, 'a'] | select | list }}|{{ [1, 2, 3, 4] | select('odd') | list }}|{{ [1, 'a'] | reject('string') | list }}|{{ [1, 2, 3] | select('gt', 1) | list }}|{{ [1, 2, 3] | reject('le', 2) | list }}|{{ [1, 2] | select('==', 2) | list }}|{{ [1, 'a', none] | select('!=', 'a') | list }}
{{ ['b', 'A', 'b', 'a'] | unique | list }}|{{ [3, 1, 2] | sort }}|{{ ["b", "A", "a"] | sort }}|{{ ["b", "A"] | sort(case_sensitive=true) }}|{{ ["b", "A"] | min }}|{{ [3, 1, 2] | sort(reverse=true) }}|{{ [1, 2] | reverse | list }}|{{ [1, none, 'x', 2.5] | join('-') }}|{{ [3, 1] | min }}|{{ [3, 1] | max }}|{{ [1, 2] | first }}|{{ [1, 2] | last }}
{% set x = 1 %}{% for i in [1, 2, 3] %}{{ x }}{% set x = x + 1 %}{% endfor %}|{{ x }}
{% for i in [1, 2, 3] %}{% if i == 2 %}two{% continue %}{% endif %}{{ i }}{% else %}none{% endfor %}|{% for i in [1, 2] %}{% if true %}a{% if i == 2 %}b{% break %}{% endif %}{% endif %}c{% endfor %}|{% for i in [1] %}{% continue %}{% else %}none{% endfor %}|{% for i in [] %}x{% else %}none{% endfor %}
{% for k, v in object | dictsort %}{{ k }}={{ v }};{% endfor %}|{% for k in object %}{{ k }};{% endfor %}|{% for a in [1, 2, 3] if a > 1 %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.previtem }}{{ loop.length }};{% endfor %}
{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }}|{{ m(1, b=3) }}|{{ m(none) }}|{{ m([1]) }}
{{ object is mapping }}|{{ object is iterable }}|{{ object is sequence }}|{{ 'a' is sequence }}|{{ 1 is iterable }}|{{ missing is iterable }}|{{ true is number }}|{{ true is integer }}|{{ 1.5 is float }}|{{ none is none }}|{{ true is sameas true }}|{{ 1 is sameas true }}|{{ m is defined }}|{{ [] is string }}|{{ 5 is divisibleby(5) }}|{{ 'a' is in ['a'] }}
{{ 'yes' if missing else 'no' }}|{{ 'yes' if 0.0 else 'no' }}|{{ 'yes' if [] else 'no' }}|{{ 'yes' if {'a': 1} else 'no' }}|{{ 'x' if false }}|{{ missing or 'other' }}|{{ none and 1 }}|{{ not none }}
{{ 'line
next' | indent(2) }}|{{ 'a

b' | indent(2, true) }}|{{ 'a
' | indent(2) }}|{{ 'a

b' | indent(2, false, true) }}
{{- '
' }}{%- if true %} a {%- endif %} b {# comment #} c {%- set y %} in {% endset %}{{ y }}
{{ 'a' < 'b' }}|{{ 1 < 2.5 }}|{{ 'x' == 'x' and 'y' != 'z' }}|{{ 1 <= 1 }}|{{ [1, 2][0] }}|{{ [1, 2][-1] }}|{{ [1, 2, 3][1:] }}|{{ (1, 2, 3)[:2] }}|{{ [1, 2][5] is defined }}
"""

VALUES = {
    "n": 7, "big": 9007199254740993, "u64": 18446744073709551615, "city": "Zürich🏠", "wide": ODD_TEXTS[3],
    "texts": ODD_TEXTS, "floats": [json.loads(n) for n in NUMBERS],
    "words": [{"t": "b", "o": {"p": 1}}, {"t": "a"}, {"u": 1}, {"t": None}],
    "object": {"b": 1, "a": [1.0, None], "length": {"c": True}, "Z": "x"},
}


def expressions():
    for line in EXPRESSIONS.strip().split("\n"):
        for i, part in enumerate(line.split("|{{ ")) if line.startswith("{{ ") else [(0, line)]:
            yield {"source": part if i == 0 else "{{ " + part, "values": to_json(VALUES)}


# ---- Jinja2 as in transformers ----------------------------------------------------------------------------------
#
# But for two filters, where the engine does not change a client's text and Jinja2 does:
#
# - `safe` marks nothing. Jinja2 turns all that is added to a string that is "safe" into HTML: quotes of JSON become &#34;
#   in the prompts of meetkai-functionary-medium-v3.1.
# - `indent` breaks lines at \n alone. Python's splitlines() knows others, and \n takes their place: U+2028, U+0085.


class GenerationTag(jinja2.ext.Extension):
    """{% generation %} only marks what it surrounds."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_unchanged"), [], [], body).set_lineno(line)

    @staticmethod
    def _unchanged(caller):
        return caller()


class Raised(jinja2.exceptions.TemplateError):
    """By a template's raise_exception()."""


def raise_exception(message):
    raise Raised(message)


def indent(text, width=4, first=False, blank=False):
    margin = width if isinstance(width, str) else " " * width
    lines = text.split("\n")
    rest = [margin + line if line or blank else line for line in lines[1:]]
    return "\n".join([(margin if first else "") + lines[0], *rest])


class LenientUndefined(jinja2.ChainableUndefined):
    __call__ = lambda self, *args, **kwargs: self


class LenientEnvironment(jinja2.sandbox.SandboxedEnvironment):
    """Where Jinja2 refuses a template and the engine prints it, this is what it prints.

    - What is undefined may have attributes and be called, as with Jinja2's own ChainableUndefined.
    - Added to a string, what is undefined or None counts as "".
    - Lists may be changed: transformers' sandbox has no append().
    - tojson takes what map() and select() give.
    """

    intercepted_binops = frozenset(["+"])

    def call_binop(self, context, operator, left, right):
        if isinstance(left, str) and (right is None or isinstance(right, jinja2.Undefined)):
            return left
        if isinstance(right, str) and (left is None or isinstance(left, jinja2.Undefined)):
            return right
        return super().call_binop(context, operator, left, right)


def environment(lenient):
    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys,
                          default=list if lenient else None)

    extensions = [GenerationTag, jinja2.ext.loopcontrols]
    options = {"trim_blocks": True, "lstrip_blocks": True, "extensions": extensions}
    if lenient:
        made = LenientEnvironment(undefined=LenientUndefined, **options)
    else:
        made = jinja2.sandbox.ImmutableSandboxedEnvironment(**options)
    made.filters["tojson"] = tojson
    made.filters["safe"] = str
    made.filters["indent"] = indent
    made.globals["raise_exception"] = raise_exception
    return made


class Oracle:
    def __init__(self, lenient):
        self.environment = environment(lenient)
        self.compiled = {}

    def render(self, source, context, now):
        """The text, and what went wrong, one of them None."""
        self.environment.globals["strftime_now"] = datetime.datetime.fromtimestamp(now).strftime
        try:
            if source not in self.compiled:
                self.compiled[source] = self.environment.from_string(source)
            return self.compiled[source].render(**context), None
        except Exception as error:  # whatever a template does
            return None, error


# ---- Comparison -------------------------------------------------------------------------------------------------


def difference(record, text, error):
    """One line, or None."""
    ours, what = record["text"], record["error"]
    if isinstance(error, Raised):
        refused = what is not None and what.endswith(f"Jinja Exception: {error}")
        return None if refused else f"Jinja2 has raise_exception({str(error)!r}), the engine {what or ours!r}"
    if error is not None:
        return None if what is not None else f"Jinja2 refuses it, the engine does not: {type(error).__name__}: {error}"
    if what is not None:
        return f"the engine refuses it, Jinja2 does not: {what}"
    if ours == text:
        return None
    at = next((i for i, (a, b) in enumerate(zip(ours, text)) if a != b), min(len(text), len(ours)))
    return f"at {at}: the engine has {ours[max(0, at - 40):at + 60]!r}, Jinja2 {text[max(0, at - 40):at + 60]!r}"


def compare(path):
    strict, lenient, sources, counts = Oracle(False), Oracle(True), {}, {"compared": 0, "lenient": 0, "refused": 0, "differ": 0}
    with open(path, encoding="utf-8", newline="\n") as lines:
        for line in lines:
            record = json.loads(line)
            if "context" not in record:
                sources[record["template"]] = record["source"]
                continue
            given = sources[record["template"]], record["context"], record["now"]
            text, error = strict.render(*given)
            if error is not None and not isinstance(error, Raised) and record["error"] is None:
                text, error = lenient.render(*given)
                counts["lenient"] += 1
            what = difference(record, text, error)
            counts["compared"] += 1
            counts["refused"] += error is not None and what is None
            if what is None:
                continue
            counts["differ"] += 1
            print(f"{record['template']}: {record['case']}: {what}")
    print(", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    if sys.argv[1] == "expressions":
        for expression in expressions():
            print(json.dumps(expression))
    elif sys.argv[1] == "numbers":
        print(json.dumps(numbers()))
    elif sys.argv[1] == "cases":
        for case in cases():
            texts = {key: case[key] and to_json(case[key]) for key in ("messages", "tools", "kwargs") if key in case}
            print(json.dumps({**case, **texts}))
    else:
        compare(sys.argv[2])
