// One answer in the making: the request, and its pieces put into a message.

import { ApiError, chat } from "./api.js";
import { asPrompt } from "./files.js";
import { requestFields, systemPrompt } from "./settings.js";

// The messages of a conversation as the API takes them, without answers that never came.
function wire(messages) {
  const system = systemPrompt();
  const said = messages.filter((message) => message.role === "user" || message.content || message.reasoning);
  const turns = said.map((message) => {
    if (message.role === "user") return { role: "user", content: asPrompt(message) };
    const reasoning = message.reasoning ? { reasoning_content: message.reasoning } : {};
    return { role: "assistant", content: message.content, ...reasoning };
  });
  return system ? [{ role: "system", content: system }, ...turns] : turns;
}

function addCalls(message, deltas) {
  message.calls ??= [];
  for (const { index = 0, function: part = {} } of deltas) {
    message.calls[index] ??= { name: "", arguments: "" };
    message.calls[index].name += part.name ?? "";
    message.calls[index].arguments += part.arguments ?? "";
  }
}

const NOTES = {
  length: "The answer ended at the token limit.",
  content_filter: "The answer was withheld.",
};

function words(error) {
  const wait = error.retryAfter ? ` Try again in ${error.retryAfter} s.` : "";
  return `${error.message}${error.status === 429 || error.status === 503 ? wait : ""}`;
}

// Asks for the answer to `messages` and writes it into `message`; `onchange` hears of every piece. Returns the error, if there was one.
export async function answer(messages, message, state, onchange) {
  let first = null;
  let last = null;
  try {
    const body = { ...requestFields(), messages: wire(messages) };
    for await (const piece of chat(body, state.controller.signal)) {
      if (piece.prompt_progress) state.progress = piece.prompt_progress;
      if (piece.usage) message.usage = piece.usage;
      message.seed = piece.seed ?? message.seed;
      const choice = piece.choices?.[0];
      const { content, reasoning_content: reasoning, tool_calls: calls } = choice?.delta ?? {};
      if (content || reasoning || calls) {
        last = performance.now();
        first ??= last;
      }
      message.content += content ?? "";
      message.reasoning += reasoning ?? "";
      if (calls) addCalls(message, calls);
      if (choice?.finish_reason) message.note = NOTES[choice.finish_reason] ?? "";
      onchange();
    }
  } catch (error) {
    if (error.name === "AbortError") {
      message.note = "Stopped.";
    } else if (error instanceof ApiError) {
      message.failed = true;
      message.note = words(error);
      return error;
    } else {
      throw error;
    }
  } finally {
    message.seconds = first === null ? 0 : (last - first) / 1000;
  }
  return null;
}
