"""LiteLLM, which speaks all of the server's APIs."""

import json
import unittest
from typing import Literal

from support import (CHAT, CITIES, DIMENSIONS, EMBED, FORCED, KEY, LONG, QUESTION, STORY, TOOL, UNKNOWN, URL, V1, WEATHER,
                     run, until_idle, user)

import litellm
from pydantic import BaseModel

litellm.suppress_debug_info = True


class Place(BaseModel):
    city: Literal['Paris', 'Rome', 'Oslo']


class Shared:
    tools = True  # can be forced
    too_long = litellm.ContextWindowExceededError

    def ask(self, name=CHAT, **more):
        return litellm.completion(**{'model': f'{self.prefix}/{name}', 'api_base': self.base, 'api_key': KEY, 'max_tokens': 12,
                                     'num_retries': 0, 'messages': [user(QUESTION)], **more})

    def test_chat(self):
        reply = self.ask()
        self.assertTrue(reply.choices[0].message.content)
        self.assertIn(reply.choices[0].finish_reason, ('stop', 'length'))
        self.assertGreater(reply.usage.prompt_tokens, 0)

    def test_stream(self):
        chunks = list(self.ask(stream=True, stream_options={'include_usage': True}))
        self.assertTrue(''.join(chunk.choices[0].delta.content or '' for chunk in chunks if chunk.choices))
        self.assertTrue({'stop', 'length'} & {chunk.choices[0].finish_reason for chunk in chunks if chunk.choices})
        self.assertGreater(litellm.stream_chunk_builder(chunks).usage.completion_tokens, 0)

    def test_async(self):
        async def work():
            stream = await litellm.acompletion(model=f'{self.prefix}/{CHAT}', api_base=self.base, api_key=KEY, max_tokens=8,
                                               messages=[user(QUESTION)], stream=True)
            return ''.join([chunk.choices[0].delta.content or '' async for chunk in stream])
        self.assertTrue(run(work()))

    def test_structured_output(self):
        reply = self.ask(messages=[user('A place')], response_format=Place, max_tokens=FORCED)
        Place.model_validate_json(reply.choices[0].message.content)

    def test_tool_and_its_result(self):
        messages = [user(WEATHER)]
        if self.tools:
            reply = self.ask(messages=messages, tools=[TOOL], tool_choice='required', parallel_tool_calls=False,
                             max_tokens=FORCED)
            self.assertEqual(reply.choices[0].finish_reason, 'tool_calls')
            said = reply.choices[0].message
            call, = said.tool_calls
            self.assertIn(json.loads(call.function.arguments)['city'], CITIES)
        else:
            said = {'role': 'assistant', 'content': '', 'tool_calls': [
                {'id': '1', 'type': 'function', 'function': {'name': 'get_weather', 'arguments': '{"city": "Paris"}'}}]}
            call = litellm.Message(**said).tool_calls[0]
        messages += [said, {'role': 'tool', 'tool_call_id': call.id, 'content': 'Sunny.'}]
        self.assertTrue(self.ask(messages=messages, tools=[TOOL]).choices[0].message.content is not None)

    def test_errors(self):
        with self.assertRaises(self.not_found):
            self.ask(UNKNOWN)

    def test_a_prompt_that_is_too_long(self):
        with self.assertRaises(self.too_long):
            self.ask(messages=[user(LONG)])
        with self.assertRaises(self.too_long):
            list(self.ask(messages=[user(LONG)], stream=True))

    def test_fallbacks(self):
        kind = {'api_base': self.base, 'api_key': KEY}
        reply = litellm.completion(model=f'{self.prefix}/{UNKNOWN}', messages=[user(QUESTION)], max_tokens=4, num_retries=0,
                                   fallbacks=[{'model': f'{self.prefix}/{CHAT}', **kind}], **kind)
        self.assertTrue(reply.choices[0].message.content)

    def test_context_window_fallbacks(self):
        def params(name, **more):
            return {'model_name': name, 'litellm_params': {
                'model': f'{self.prefix}/{CHAT}', 'api_base': self.base, 'api_key': KEY, **more}}
        router = litellm.Router(model_list=[params('small'), params('large', mock_response='from the large one')], num_retries=0,
                                context_window_fallbacks=[{'small': ['large']}])
        reply = router.completion(model='small', messages=[user(LONG)], max_tokens=4)
        self.assertEqual(reply.choices[0].message.content, 'from the large one')

    def test_leaving_a_stream_ends_the_reply(self):
        stream = self.ask(stream=True, max_tokens=3000)
        next(iter(stream))
        stream.completion_stream.close() if hasattr(stream.completion_stream, 'close') else None
        del stream
        self.assertTrue(until_idle())


class OpenAI(Shared, unittest.TestCase):
    prefix, base, not_found = 'openai', V1, litellm.NotFoundError

    def test_a_second_turn_is_cached(self):
        messages = [{'role': 'system', 'content': STORY}, user('Who wrote?')]
        first = self.ask(messages=messages)
        second = self.ask(messages=[*messages, first.choices[0].message, user('And what?')])
        self.assertGreaterEqual(second.usage.prompt_tokens_details.cached_tokens, first.usage.prompt_tokens - 1)

    def test_embeddings(self):
        reply = litellm.embedding(model=f'{self.prefix}/{EMBED}', input=['a', 'b'], api_base=self.base, api_key=KEY)
        self.assertEqual([len(item['embedding']) for item in reply.data], [DIMENSIONS] * 2)

    def test_responses(self):
        reply = litellm.responses(model=f'{self.prefix}/{CHAT}', input=QUESTION, max_output_tokens=8, api_base=self.base,
                                  api_key=KEY)
        self.assertIn(reply.status, ('completed', 'incomplete'))


class HostedVLLM(OpenAI):
    prefix = 'hosted_vllm'


class LMStudio(OpenAI):
    prefix = 'lm_studio'


class Llamafile(OpenAI):
    prefix = 'llamafile'


class Anthropic(Shared, unittest.TestCase):
    prefix, base, not_found = 'anthropic', URL, litellm.NotFoundError


class Ollama(Shared, unittest.TestCase):
    prefix, base, not_found, tools = 'ollama_chat', URL, litellm.NotFoundError, False
    # It looks only at the status of errors of this provider, never at their text.
    too_long = litellm.BadRequestError
    test_context_window_fallbacks = None

    def test_embeddings(self):
        reply = litellm.embedding(model=f'ollama/{EMBED}', input=['a', 'b'], api_base=URL)
        self.assertEqual([len(item['embedding']) for item in reply.data], [DIMENSIONS] * 2)


if __name__ == '__main__':
    unittest.main()
