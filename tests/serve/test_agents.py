"""Loops as agents run them: tools, several turns, streams. The reference model is no assistant, so calls are forced; what is tested is the
way there and back."""

import json
import anthropic, jsonschema, openai
from conftest import ADD, FIND, NO_THINKING

TOOLS = {f["name"]: f for f in (ADD, FIND)}
# Results long enough for states between them to be worth keeping.
OPENING = 24  # tokens of an answer's opening, with its empty thinking
MORE = " Nothing else is known of it, and nobody has asked for more than this: the rest of the line is here so that the turn is no short one."
DO = {"add": lambda a, b: f"The sum is {a + b}.{MORE}", "find_city": lambda city, unit: f"{city} is 3 {unit}s from here.{MORE}"}
SYSTEM = "You help with sums and cities. " + "Use a tool where one fits; never guess. " * 12


def stream_turn(client, messages, **options):
    """One streamed turn: the assistant's message as it is sent back, and its usage."""
    message, usage = {"role": "assistant", "content": ""}, None
    stream = client.chat.completions.create(
        model="m",
        messages=messages,
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=200,
        temperature=0.7,
        seed=1,
        **options,
    )
    for chunk in stream:
        usage = chunk.usage or usage
        for c in chunk.choices:
            message["content"] += c.delta.content or ""
            for d in c.delta.tool_calls or []:
                calls = message.setdefault("tool_calls", [])
                if d.index == len(calls):
                    calls.append({"id": d.id, "type": "function", "function": {"name": d.function.name, "arguments": ""}})
                calls[d.index]["function"]["arguments"] += d.function.arguments or ""
    return message, usage


def test_openai_loop(server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    tools = [{"type": "function", "function": f} for f in TOOLS.values()]
    messages = [{"role": "system", "content": SYSTEM}]
    before, turn, reread = None, None, []
    for question, plan in (
        ("What is 3 plus 4?", ["add", None]),
        ("Where is Paris? How far is that?", ["find_city", "add", None]),
        ("Thank you.", [None]),
    ):
        messages.append({"role": "user", "content": question})
        for step, name in enumerate(plan):
            choice = {"type": "function", "function": {"name": name}} if name else "none"
            # the tools stay in the prompt where none may be called
            options = (
                {"tools": tools, "tool_choice": choice} if name else {"tools": tools, "tool_choice": "auto", "logit_bias": NO_CALL(server)}
            )
            message, usage = stream_turn(client, messages, extra_body=NO_THINKING, **options)
            messages.append(message)
            assert bool(message.get("tool_calls")) == bool(name), message
            for call in message.get("tool_calls", []):
                f = call["function"]
                assert f["name"] == name
                arguments = json.loads(f["arguments"])
                jsonschema.validate(arguments, TOOLS[f["name"]]["parameters"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": DO[f["name"]](**arguments)})
            if before:
                cached = usage.prompt_tokens_details.cached_tokens
                reread.append((usage.prompt_tokens, cached, before.prompt_tokens, before.completion_tokens))
                # Within a turn what was in the last prompt is kept, but for the opening of its answer where the template does not write
                # the answer again as it was. With a new question it leaves out the empty thinking behind the last one: what was before
                # that is kept.
                assert cached >= (before if step else turn).prompt_tokens - OPENING, reread
            if step == 0:
                turn = usage
            before = usage
    assert len(reread) == 5
    # where the answer is written again as it was, its tokens are kept too
    assert any(cached >= prompt + answer - 3 for _, cached, prompt, answer in reread), reread


def NO_CALL(server):
    """Forbids the first token of a call."""
    ids = server.post("/tokenize", {"content": "<tool_call>", "parse_special": True})["tokens"]
    return {str(ids[0]): -100}


def test_anthropic_loop(server):
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    tools = [{"name": f["name"], "description": f["description"], "input_schema": f["parameters"]} for f in TOOLS.values()]
    messages, before = [{"role": "user", "content": "What is 3 plus 4?"}], None
    for name in ("add", "find_city", "add"):
        with client.messages.stream(
            model="m",
            system=SYSTEM,
            messages=messages,
            tools=tools,
            tool_choice={"type": "tool", "name": name},
            max_tokens=200,
            extra_body={"temperature": 0.7, "seed": 2},
        ) as stream:
            got = stream.get_final_message()
        calls = [b for b in got.content if b.type == "tool_use"]
        assert got.stop_reason == "tool_use" and [c.name for c in calls][0] == name
        messages.append(
            {
                "role": "assistant",
                "content": [b.model_dump(exclude_none=True, include={"type", "text", "id", "name", "input"}) for b in got.content],
            }
        )
        results = []
        for c in calls:
            jsonschema.validate(c.input, TOOLS[c.name]["parameters"])
            results.append({"type": "tool_result", "tool_use_id": c.id, "content": DO[c.name](**c.input)})
        messages.append({"role": "user", "content": results})
        total = got.usage.input_tokens + got.usage.cache_read_input_tokens
        if before:
            assert got.usage.cache_read_input_tokens >= before - OPENING, (got.usage, before)
        before = total


def test_responses_loop(server):
    """The server keeps the conversation: each turn sends its own items only."""
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    tools = [{"type": "function", "strict": True, **f} for f in TOOLS.values()]
    items, last, before = [{"role": "user", "content": "What is 3 plus 4?"}], None, 0
    for name in ("add", "find_city"):
        with client.responses.stream(
            model="m",
            instructions=SYSTEM,
            input=items,
            previous_response_id=last,
            tools=tools,
            tool_choice={"type": "function", "name": name},
            max_output_tokens=200,
            extra_body=NO_THINKING | {"temperature": 0.7, "seed": 2},
        ) as stream:
            got = stream.get_final_response()
        call = next(o for o in got.output if o.type == "function_call")
        arguments = json.loads(call.arguments)
        jsonschema.validate(arguments, TOOLS[name]["parameters"])
        assert got.usage.input_tokens_details.cached_tokens >= before - OPENING
        items, last, before = (
            [{"type": "function_call_output", "call_id": call.call_id, "output": DO[name](**arguments)}],
            got.id,
            got.usage.input_tokens,
        )


def test_langchain(server):
    from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    from pydantic import BaseModel, Field

    @tool
    def add(a: int, b: int) -> int:
        """Adds two whole numbers."""
        return a + b

    class City(BaseModel):
        """A city."""

        name: str = Field(max_length=12)
        people: int = Field(ge=0, le=10**7)

    llm = ChatOpenAI(
        base_url=server.url + "/v1", api_key="none", model="m", temperature=0, max_retries=0, max_tokens=200, extra_body=NO_THINKING
    )
    ask = [SystemMessage("Be brief."), HumanMessage("Say these words again: silk, iron, gold.")]
    whole = llm.invoke(ask)
    assert whole.content and whole.usage_metadata["output_tokens"] > 3
    assert "".join(c.content for c in llm.stream(ask)) == whole.content
    calls = llm.bind_tools([add], tool_choice="add").invoke([HumanMessage("What is 3 plus 4?")])
    assert calls.tool_calls and calls.tool_calls[0]["name"] == "add"
    results = [ToolMessage(str(add.invoke(c["args"])), tool_call_id=c["id"]) for c in calls.tool_calls]
    assert llm.bind_tools([add]).invoke([HumanMessage("What is 3 plus 4?"), calls, *results]) is not None
    city = llm.with_structured_output(City, method="json_schema", strict=True).invoke("Name a city.")
    assert isinstance(city, City)
    vectors = OpenAIEmbeddings(base_url=server.url + "/v1", api_key="none", model="m", check_embedding_ctx_length=False).embed_documents(
        ["a whale", "a tax"]
    )
    assert len(vectors) == 2 and vectors[0] != vectors[1]
