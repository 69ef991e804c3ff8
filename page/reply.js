// Streams one reply into a message of a conversation.

import { ApiError, chat, lookUp } from './api.js';
import { figuresOf } from './bar.js';

function takeCalls(message, deltas) {
  message.calls ??= [];
  for (const { index = 0, function: f } of deltas) {
    const call = (message.calls[index] ??= { name: '', arguments: '' });
    call.name += f?.name ?? '';
    call.arguments += f?.arguments ?? '';
  }
}

// `body` is the request, `changed` is called when there is something to show. Errors become the message's.
export async function stream(message, body, signal, changed) {
  const asked = performance.now();
  message.running = true; // for a page that is left meanwhile
  let lookup = null, timings = null, first = null;
  try {
    lookup = await lookUp(body, signal);
    for await (const event of chat(body, signal)) {
      const { delta, finish_reason: end } = event.choices?.[0] ?? {};
      if (end === 'length') message.cut = true;
      message.progress = event.prompt_progress && event.prompt_progress.processed < event.prompt_progress.total ? event.prompt_progress : null;
      if (delta?.content || delta?.reasoning_content || delta?.tool_calls) first ??= performance.now();
      if (delta?.content) message.text += delta.content;
      if (delta?.reasoning_content) message.reasoning = (message.reasoning ?? '') + delta.reasoning_content;
      if (delta?.tool_calls) takeCalls(message, delta.tool_calls);
      if (event.timings) timings = event.timings;
      changed();
    }
  } catch (error) {
    if (error.name === 'AbortError') message.stopped = true;
    else if (error instanceof ApiError) message.error = { message: error.message, status: error.status, code: error.code };
    else message.error = { message: `The reply broke off: ${error.message}`, status: 0 };
  }
  delete message.running;
  message.progress = null;
  if (timings) message.figures = figuresOf(timings, lookup, first && first - asked);
  changed();
}
