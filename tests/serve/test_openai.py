"""The official `openai` client against a server with the reference model. Its own types check the shape of every answer."""

import asyncio, base64, json, math, struct
import jsonschema, openai, pytest
from conftest import ADD, FIND, NO_THINKING, run

ASK = [{"role": "user", "content": "Say these words again: silk, iron, gold."}]
WORDS = "silk, iron, gold."
FREE = [{"role": "user", "content": "Tell me of the sea."}]
TOOLS = [{"type": "function", "function": f} for f in (ADD, FIND)]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 16},
        "age": {"type": "integer", "minimum": 0, "maximum": 200},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def client(server):
    # strict: an answer that is not of the client's own types is an exception
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60, _strict_response_validation=True)


@pytest.fixture(scope="module")
def lenient(server):
    """For answers of OpenAI's own that its client's types do not describe: pieces of text completions, vectors in base64."""
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


@pytest.fixture(scope="module")
def chat(client, model):
    def ask(messages=ASK, **options):
        options.setdefault("extra_body", NO_THINKING)
        return client.chat.completions.create(model=model, messages=messages, **options)

    return ask


def streamed(stream):
    """Text, thinking, calls and reason of each choice of a stream, and the last chunk's usage."""
    out, usage = {}, None
    for chunk in stream:
        usage = chunk.usage or usage
        for c in chunk.choices:
            to = out.setdefault(c.index, {"text": "", "thinking": "", "calls": {}, "pieces": 0, "reason": None})
            to["text"] += c.delta.content or ""
            to["thinking"] += getattr(c.delta, "reasoning_content", None) or ""
            to["reason"] = c.finish_reason or to["reason"]
            to["pieces"] += bool(c.delta.content)
            for call in c.delta.tool_calls or []:
                got = to["calls"].setdefault(call.index, {"id": None, "name": "", "arguments": []})
                got["id"] = call.id or got["id"]
                got["name"] += call.function.name or ""
                got["arguments"] += [call.function.arguments] if call.function.arguments else []
    return out, usage


def test_models(client, model):
    assert client.models.retrieve(model).id == model
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="no-such-model", messages=ASK, max_tokens=1)


def test_chat_is_what_run_says(chat):
    got = chat(temperature=0, max_tokens=40)
    alone = run(ASK[0]["content"])
    assert got.choices[0].message.content == alone["text"] == WORDS
    assert got.choices[0].finish_reason == "stop"
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (alone["prompt_tokens"], alone["generated_tokens"])
    assert got.usage.total_tokens == got.usage.prompt_tokens + got.usage.completion_tokens


def test_drawn_chat_is_what_run_says(chat):
    for seed in (1, 2, 3):
        got = chat(FREE, temperature=1.1, top_p=0.9, seed=seed, max_tokens=48, extra_body=NO_THINKING | {"top_k": 50, "min_p": 0.01})
        alone = run(FREE[0]["content"], "--temp", 1.1, "--top-p", 0.9, "--top-k", 50, "--min-p", 0.01, "--seed", seed, "-n", 48)
        assert got.choices[0].message.content == alone["text"]


def test_streamed_is_not_streamed(chat):
    for options in ({"temperature": 0}, {"temperature": 1.2, "seed": 7}):
        whole = chat(max_tokens=40, **options)
        out, usage = streamed(chat(max_tokens=40, stream=True, stream_options={"include_usage": True}, **options))
        assert out[0]["text"] == whole.choices[0].message.content
        assert out[0]["reason"] == whole.choices[0].finish_reason
        assert out[0]["pieces"] > 2, "the text did not come in pieces"
        assert usage.completion_tokens == whole.usage.completion_tokens
    assert streamed(chat(max_tokens=4, stream=True))[1] is None


def test_thinking(chat):
    got = chat(max_tokens=300, temperature=0, extra_body={"chat_template_kwargs": {"enable_thinking": True}})
    alone = run(ASK[0]["content"], "--think", "-n", 300)
    message = got.choices[0].message
    assert message.reasoning_content and "<think>" not in message.reasoning_content + (message.content or "")
    assert (message.content or "").strip() and (message.content or "").strip() in alone["text"]
    assert got.usage.completion_tokens_details.reasoning_tokens > 0
    out, _ = streamed(chat(max_tokens=300, temperature=0, stream=True, extra_body={"chat_template_kwargs": {"enable_thinking": True}}))
    assert (out[0]["thinking"], out[0]["text"]) == (message.reasoning_content, message.content)


def test_length(chat):
    got = chat(max_completion_tokens=3, temperature=0)
    assert (got.choices[0].finish_reason, got.usage.completion_tokens) == ("length", 3)


def test_seeds(chat):
    ask = lambda seed: chat(FREE, temperature=1.5, seed=seed, max_tokens=24).choices[0].message.content
    texts = [ask(s) for s in (1, 1, 2, 3, 4)]
    assert texts[0] == texts[1] and len(set(texts)) > 2


def test_choices(chat):
    options = {"temperature": 1.5, "seed": 11, "max_tokens": 24}
    three = chat(FREE, n=3, **options)
    assert [c.index for c in three.choices] == [0, 1, 2] and len({c.message.content for c in three.choices}) > 1
    # the first is the only one of a request for one, and a stream has the same three
    assert three.choices[0].message.content == chat(FREE, **options).choices[0].message.content
    out, _ = streamed(chat(FREE, n=3, stream=True, **options))
    assert [out[i]["text"] for i in range(3)] == [c.message.content for c in three.choices]


def test_stop(chat):
    got = chat(temperature=0, stop=[" iron", "zebra"])
    assert (got.choices[0].message.content, got.choices[0].finish_reason) == ("silk,", "stop")
    out, _ = streamed(chat(temperature=0, stop="gold", stream=True))
    assert out[0]["text"] == "silk, iron, "


def test_logprobs(chat):
    got = chat(temperature=0, logprobs=True, top_logprobs=3, max_tokens=40)
    tokens = got.choices[0].logprobs.content
    assert b"".join(bytes(t.bytes) for t in tokens).decode() == WORDS
    for t in tokens:
        assert t.logprob <= 0 and len(t.top_logprobs) == 3
        assert t.top_logprobs[0].token == t.token and math.isclose(t.top_logprobs[0].logprob, t.logprob, abs_tol=1e-6)
        assert [x.logprob for x in t.top_logprobs] == sorted((x.logprob for x in t.top_logprobs), reverse=True)
    stream = [t for c in chat(temperature=0, logprobs=True, stream=True) for k in c.choices if k.logprobs for t in k.logprobs.content]
    assert [(t.token, t.logprob) for t in stream] == [(t.token, t.logprob) for t in tokens]


def test_logit_bias(server, chat):
    first = server.post("/tokenize", {"content": "silk"})["tokens"][0]
    assert not chat(temperature=0, logit_bias={str(first): -100}).choices[0].message.content.startswith("silk")
    other = server.post("/tokenize", {"content": "z"})["tokens"][0]
    assert chat(temperature=0, max_tokens=3, logit_bias={str(other): 100}).choices[0].message.content == "zzz"


def test_json_schema(client, model, chat):
    made = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    for seed in range(6):
        got = chat(
            [{"role": "user", "content": "Who is Boris?"}], temperature=1.3, seed=seed, max_tokens=200, response_format=made
        ).choices[0]
        assert got.finish_reason == "stop", got
        jsonschema.validate(json.loads(got.message.content), PERSON)


def test_json_object(chat):
    whole, asked = 0, [{"role": "user", "content": "Mary is 76 years old and lives in Rome.\nWrite the name and age as JSON."}]
    for messages, seed in [(asked, 0), (asked, 1), (FREE, 2), (FREE, 3), (ASK, 4)]:
        got = chat(messages, temperature=0.9, seed=seed, max_tokens=120, response_format={"type": "json_object"}).choices[0]
        if got.finish_reason == "stop":
            assert isinstance(json.loads(got.message.content), dict)
            whole += 1
        else:
            assert got.finish_reason == "length"
    assert whole


def test_grammar(chat):
    got = chat(temperature=1, seed=1, max_tokens=60, extra_body=NO_THINKING | {"grammar": 'start: "yes" | "no, " WORD\nWORD: /[a-z]{1,8}/'})
    text = got.choices[0].message.content
    assert text == "yes" or (text.startswith("no, ") and text[4:].isalpha())


@pytest.mark.parametrize("choice, name", [("required", None), ({"type": "function", "function": {"name": "find_city"}}, "find_city")])
def test_forced_tools(chat, choice, name):
    schemas = {f["name"]: f["parameters"] for f in (ADD, FIND)}
    options = {"tools": TOOLS, "tool_choice": choice, "temperature": 0.8, "seed": 3, "max_tokens": 300}
    whole = chat([{"role": "user", "content": "Where is Paris?"}], **options).choices[0]
    assert whole.finish_reason == "tool_calls" and whole.message.tool_calls
    for call in whole.message.tool_calls:
        assert call.type == "function" and call.id and name in (None, call.function.name)
        jsonschema.validate(json.loads(call.function.arguments), schemas[call.function.name])
    out, _ = streamed(chat([{"role": "user", "content": "Where is Paris?"}], stream=True, **options))
    calls = [out[0]["calls"][i] for i in range(len(out[0]["calls"]))]
    assert [(c["name"], "".join(c["arguments"])) for c in calls] == [
        (c.function.name, c.function.arguments) for c in whole.message.tool_calls
    ]
    assert all(c["id"] for c in calls) and out[0]["reason"] == "tool_calls"
    assert len(calls[0]["arguments"]) > 1, "the arguments came at once"


def test_tools_left_out(chat):
    got = chat(tools=TOOLS, tool_choice="none", temperature=0, max_tokens=40).choices[0]
    assert got.message.content == WORDS and not got.message.tool_calls


def test_completions(server, client, lenient, model):
    got = client.completions.create(model=model, prompt=["Call me", "It is a truth"], max_tokens=8, temperature=0, logprobs=2)
    assert [c.index for c in got.choices] == [0, 1]
    for c, prompt in zip(got.choices, ("Call me", "It is a truth")):
        assert c.text == run(prompt, "--raw", "-n", 8)["text"]
        assert len(c.logprobs.tokens) == len(c.logprobs.token_logprobs) and "".join(c.logprobs.tokens) == c.text
    echo = client.completions.create(model=model, prompt="Call me", max_tokens=8, temperature=0, echo=True)
    assert echo.choices[0].text == "Call me" + got.choices[0].text
    stream = lenient.completions.create(model=model, prompt="Call me", max_tokens=8, temperature=0, stream=True)
    assert "".join(c.choices[0].text for c in stream if c.choices) == got.choices[0].text
    ids = server.post("/tokenize", {"content": "Call me", "add_special": True})["tokens"]
    assert client.completions.create(model=model, prompt=ids, max_tokens=8, temperature=0).choices[0].text == got.choices[0].text
    with pytest.raises(openai.BadRequestError) as e:
        client.completions.create(model=model, prompt="a", suffix="b")
    assert e.value.param == "suffix"


def test_embeddings(client, lenient, model):
    texts = ["The whale is white.", "A white whale swims.", "Taxes were paid in March."]
    floats = client.embeddings.create(model=model, input=texts, encoding_format="float").data
    assert [d.index for d in floats] == [0, 1, 2] and len({len(d.embedding) for d in floats}) == 1
    assert all(math.isfinite(x) for d in floats for x in d.embedding) and floats[0].embedding != floats[2].embedding
    # the client asks for base64 where nothing is said; both are the same values, and a text's is its own alone
    alone = lenient.embeddings.create(model=model, input=texts[1]).data[0].embedding
    as_f32 = lambda v: struct.pack(f"<{len(v)}f", *v)
    assert as_f32(alone) == as_f32(floats[1].embedding)
    raw = client.embeddings.with_raw_response.create(model=model, input=texts[1], encoding_format="base64").http_response.json()
    assert base64.b64decode(raw["data"][0]["embedding"]) == as_f32(alone)


def test_tokens(server):
    ids = server.post("/tokenize", {"content": "Call me Ishmael, or Zoë 💥."})["tokens"]
    assert server.post("/detokenize", {"tokens": ids})["content"] == "Call me Ishmael, or Zoë 💥."


RESPONSE = {"max_output_tokens": 40, "temperature": 0, "extra_body": NO_THINKING}


def test_responses(client, model):
    first = client.responses.create(model=model, input=ASK[0]["content"], **RESPONSE)
    assert first.status == "completed" and first.output_text == WORDS and first.usage.output_tokens > 3
    assert client.responses.retrieve(first.id).output_text == WORDS
    assert client.responses.input_items.list(first.id).data[0].content[0].text == ASK[0]["content"]
    question = "Say these words again: letter, evening."
    second = client.responses.create(model=model, input=question, previous_response_id=first.id, **RESPONSE)
    spelled = client.responses.create(
        model=model,
        **RESPONSE,
        input=[
            {"role": "user", "content": ASK[0]["content"]},
            {"role": "assistant", "content": WORDS},
            {"role": "user", "content": question},
        ],
    )
    assert second.output_text == spelled.output_text and second.usage.input_tokens == spelled.usage.input_tokens > first.usage.input_tokens
    assert second.previous_response_id == first.id
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises((openai.NotFoundError, openai.BadRequestError)):
        client.responses.create(model=model, input="x", previous_response_id=first.id, **RESPONSE)


def test_responses_cut(client, model):
    got = client.responses.create(model=model, input=ASK[0]["content"], **RESPONSE | {"max_output_tokens": 2})
    assert got.status == "incomplete" and got.incomplete_details.reason == "max_output_tokens"


def test_responses_streamed(client, model):
    events = list(client.responses.create(model=model, input=ASK[0]["content"], stream=True, **RESPONSE))
    kinds = [e.type for e in events]
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed"
    assert [e.sequence_number for e in events] == list(range(events[0].sequence_number, events[0].sequence_number + len(events)))
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == WORDS == events[-1].response.output_text
    # the client's own accumulator takes it too
    with client.responses.stream(model=model, input=ASK[0]["content"], **RESPONSE) as stream:
        assert stream.get_final_response().output_text == WORDS


def test_responses_tools(client, model):
    tools = [{"type": "function", "strict": True, **f} for f in (ADD, FIND)]
    options = RESPONSE | {"tools": tools, "tool_choice": {"type": "function", "name": "add"}, "max_output_tokens": 200}
    got = client.responses.create(model=model, input="What is 3 plus 4?", **options)
    call = next(o for o in got.output if o.type == "function_call")
    jsonschema.validate(json.loads(call.arguments), ADD["parameters"])
    events = list(client.responses.create(model=model, input="What is 3 plus 4?", stream=True, **options))
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments and len(deltas) > 1
    after = client.responses.create(
        model=model,
        previous_response_id=got.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "7"}],
        **options | {"tool_choice": "auto"},
    )
    assert after.status in ("completed", "incomplete") and after.usage.input_tokens > got.usage.input_tokens


def test_responses_schema(client, model):
    form = {"format": {"type": "json_schema", "name": "person", "strict": True, "schema": PERSON}}
    options = RESPONSE | {"max_output_tokens": 200, "temperature": 1.1, "extra_body": NO_THINKING | {"seed": 1}}
    got = client.responses.create(model=model, input="Who is Boris?", text=form, **options)
    jsonschema.validate(json.loads(got.output_text), PERSON)


@pytest.mark.parametrize(
    "options, field",
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 7}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 10**6}, "n"),
        ({"max_tokens": -3}, "max_tokens"),
        ({"stop": 5}, "stop"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"top_logprobs": 99, "logprobs": True}, "top_logprobs"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages"),
        ({"stream": "yes"}, "stream"),
        ({"seed": "x"}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}}, "response_format"),
    ],
)
def test_wrong_fields_are_named(chat, options, field):
    with pytest.raises(openai.BadRequestError) as e:
        chat(options.get("messages", ASK), **{k: v for k, v in options.items() if k != "messages"})
    assert e.value.status_code == 400 and e.value.type == "invalid_request_error"
    assert field in (e.value.param or ""), (e.value.param, e.value.body)


def test_unknown_fields_are_ignored(chat):
    assert (
        chat(temperature=0, user="u", extra_body=NO_THINKING | {"no_such_field": {"a": [1]}, "prediction": None}).choices[0].message.content
        == WORDS
    )


def test_too_long(chat):
    with pytest.raises(openai.BadRequestError) as e:
        chat([{"role": "user", "content": "word " * 9000}])
    assert "4096" in str(e.value)


def test_keys(keyed):
    at = keyed.url + "/v1"
    for key in ("wrong", "secret-on", "secret-one2"):
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=at, api_key=key, max_retries=0).models.list()
    for key in ("secret-one", "secret-two"):
        assert openai.OpenAI(base_url=at, api_key=key, max_retries=0).models.list().data
    assert keyed.get("/health")[0] == 200


def test_foreign_hosts(server):
    for fields in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
        status, _, body = server.request("POST", "/v1/chat/completions", {"messages": ASK}, fields)
        assert status == 403 and json.loads(body)["error"]["message"], fields


def test_many_at_once(server, model, chat):
    """Answers drawn side by side are those drawn alone."""
    prompts = [
        [{"role": "user", "content": f"Say these words again: {w}."}] for w in ("silk, iron", "letter", "evening, summer, gold", "boat")
    ] * 3
    options = [{"temperature": 1.2, "seed": i, "max_tokens": 30, "extra_body": NO_THINKING} for i in range(len(prompts))]
    alone = [chat(p, **o).choices[0].message.content for p, o in zip(prompts, options)]

    async def together():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
            ask = lambda p, o: client.chat.completions.create(model=model, messages=p, **o)
            return [r.choices[0].message.content for r in await asyncio.gather(*(ask(p, o) for p, o in zip(prompts, options)))]

    assert asyncio.run(together()) == alone
