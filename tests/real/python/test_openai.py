"""OpenAI's own library: chats, completions, responses, embeddings, models."""

import asyncio
import json
import unittest
from typing import Literal

from support import (CHAT, CITIES, DIMENSIONS, EMBED, FORCED, KEY, LONG, PARAMETERS, QUESTION, STORY, TOOL, UNKNOWN, V1, WEATHER,
                     run, until_idle, user)

import openai
from pydantic import BaseModel


class Place(BaseModel):
    city: Literal['Paris', 'Rome', 'Oslo']
    visits: Literal[1, 2, 3]


class Chats(unittest.TestCase):
    client = openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0)

    def chat(self, **more):
        return self.client.chat.completions.create(**{'model': CHAT, 'messages': [user(QUESTION)], 'max_tokens': 16, **more})

    def test_chat(self):
        reply = self.chat()
        self.assertEqual(reply.object, 'chat.completion')
        self.assertEqual(reply.choices[0].message.role, 'assistant')
        self.assertTrue(reply.choices[0].message.content)
        self.assertIn(reply.choices[0].finish_reason, ('stop', 'length'))
        self.assertEqual(reply.usage.prompt_tokens + reply.usage.completion_tokens, reply.usage.total_tokens)

    def test_max_tokens_ends_a_reply(self):
        for key in ('max_tokens', 'max_completion_tokens'):
            reply = self.chat(**{'max_tokens': openai.omit, key: 3})
            self.assertEqual(reply.choices[0].finish_reason, 'length')
            self.assertEqual(reply.usage.completion_tokens, 3)

    def test_several_choices_and_logprobs(self):
        reply = self.chat(n=2, logprobs=True, top_logprobs=2, max_tokens=4, temperature=1)
        self.assertEqual([choice.index for choice in reply.choices], [0, 1])
        for choice in reply.choices:
            self.assertEqual(len(choice.logprobs.content), 4)
            self.assertEqual(len(choice.logprobs.content[0].top_logprobs), 2)

    def test_stream(self):
        chunks = list(self.chat(stream=True, stream_options={'include_usage': True}))
        text = ''.join(c.choices[0].delta.content or '' for c in chunks if c.choices)
        self.assertTrue(text)
        self.assertIn([c.choices[0].finish_reason for c in chunks if c.choices][-1], ('stop', 'length'))
        self.assertGreater(chunks[-1].usage.completion_tokens, 0)
        self.assertEqual(chunks[-1].choices, [])

    def test_stream_helper(self):
        with self.client.chat.completions.stream(model=CHAT, messages=[user(QUESTION)]) as stream:
            kinds = {event.type for event in stream}
            reply = stream.get_final_completion()
        self.assertTrue({'chunk', 'content.delta', 'content.done'} <= kinds, kinds)
        self.assertTrue(reply.choices[0].message.content)

    def test_async_chats_at_once(self):
        async def work():
            async with openai.AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0) as client:
                async def text(n):
                    stream = await client.chat.completions.create(model=CHAT, messages=[user(f'{n}: {QUESTION}')], max_tokens=8,
                                                                  stream=True)
                    return ''.join([c.choices[0].delta.content or '' async for c in stream if c.choices])
                return await asyncio.gather(*[text(n) for n in range(3)])
        self.assertTrue(all(run(work())))

    def test_a_second_turn_is_cached(self):
        messages = [{'role': 'system', 'content': STORY}, user('Who wrote?')]
        first = self.chat(messages=messages)
        messages += [first.choices[0].message.to_dict(), user('And what?')]
        second = self.chat(messages=messages)
        self.assertGreaterEqual(second.usage.prompt_tokens_details.cached_tokens, first.usage.prompt_tokens - 1)

    def test_structured_output(self):
        reply = self.client.chat.completions.parse(model=CHAT, messages=[user('A place')], max_tokens=FORCED,
                                                   response_format=Place)
        self.assertIsInstance(reply.choices[0].message.parsed, Place)
        reply = self.chat(response_format={'type': 'json_object'}, messages=[user('A short JSON object')], max_tokens=24)
        self.assertTrue(reply.choices[0].message.content.lstrip().startswith('{'))

    def test_structured_output_cut_off(self):
        with self.assertRaises(openai.LengthFinishReasonError):
            self.client.chat.completions.parse(model=CHAT, messages=[user('A place')], max_tokens=2, response_format=Place)

    def test_tool_and_its_result(self):
        for choice in ('required', {'type': 'function', 'function': {'name': 'get_weather'}}):
            messages = [user(WEATHER)]
            reply = self.chat(messages=messages, tools=[TOOL], tool_choice=choice, parallel_tool_calls=False, max_tokens=FORCED)
            self.assertEqual(reply.choices[0].finish_reason, 'tool_calls')
            call, = reply.choices[0].message.tool_calls
            self.assertEqual(call.function.name, 'get_weather')
            self.assertIn(json.loads(call.function.arguments)['city'], CITIES)
            messages += [reply.choices[0].message, {'role': 'tool', 'tool_call_id': call.id, 'content': 'Sunny, 21 degrees.'}]
            answer = self.chat(messages=messages, tools=[TOOL], tool_choice='none')
            self.assertTrue(answer.choices[0].message.content)

    def test_tool_in_a_stream(self):
        name, arguments, reasons = '', '', set()
        for chunk in self.chat(messages=[user(WEATHER)], tools=[TOOL], tool_choice='required', parallel_tool_calls=False,
                               max_tokens=FORCED, stream=True):
            reasons.add(chunk.choices[0].finish_reason)
            for call in chunk.choices[0].delta.tool_calls or []:
                name += call.function.name or ''
                arguments += call.function.arguments or ''
        self.assertEqual(name, 'get_weather')
        self.assertIn(json.loads(arguments)['city'], CITIES)
        self.assertEqual(reasons, {None, 'tool_calls'})

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.chat(model=UNKNOWN)
        self.assertEqual(caught.exception.code, 'model_not_found')
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(top_p=5)
        self.assertEqual(caught.exception.param, 'top_p')
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(messages=[user(LONG)])
        self.assertEqual(caught.exception.code, 'context_length_exceeded')

    def test_closing_a_stream_ends_the_reply(self):
        stream = self.chat(stream=True, max_tokens=3000, extra_body={'ignore_eos': True})
        next(stream)
        stream.close()
        self.assertTrue(until_idle())

    def test_cancelling_a_task_ends_the_reply(self):
        async def work():
            async with openai.AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0) as client:
                task = asyncio.create_task(client.chat.completions.create(
                    model=CHAT, messages=[user(QUESTION)], max_tokens=3000, extra_body={'ignore_eos': True}))
                await asyncio.sleep(0.5)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
        run(work())
        self.assertTrue(until_idle())


class Others(unittest.TestCase):
    client = Chats.client

    def test_models(self):
        self.assertTrue({CHAT, EMBED} <= {model.id for model in self.client.models.list()})
        self.assertEqual(self.client.models.retrieve(CHAT).id, CHAT)

    def test_completions(self):
        reply = self.client.completions.create(model=CHAT, prompt='The sea is', max_tokens=4)
        self.assertTrue(reply.choices[0].text)
        text = ''.join(c.choices[0].text for c in self.client.completions.create(
            model=CHAT, prompt='The sea is', max_tokens=4, stream=True) if c.choices)
        self.assertTrue(text)

    def test_embeddings(self):
        for more in ({}, {'encoding_format': 'float'}):  # by default the library asks for base64 and decodes it
            reply = self.client.embeddings.create(model=EMBED, input=['the sea', 'a ship'], **more)
            self.assertEqual([len(item.embedding) for item in reply.data], [DIMENSIONS] * 2)
            self.assertAlmostEqual(sum(x * x for x in reply.data[0].embedding), 1, places=3)
            self.assertGreater(reply.usage.prompt_tokens, 0)

    def test_embeddings_too_long(self):
        with self.assertRaises(openai.BadRequestError):
            self.client.embeddings.create(model=EMBED, input=LONG)


class Responses(unittest.TestCase):
    client = Chats.client

    def respond(self, **more):
        return self.client.responses.create(**{'model': CHAT, 'input': QUESTION, 'max_output_tokens': 16, **more})

    def test_response_and_the_next(self):
        first = self.respond(instructions=STORY)
        self.assertTrue(first.output_text)
        self.assertIn(first.status, ('completed', 'incomplete'))
        second = self.respond(instructions=STORY, previous_response_id=first.id, input='And what else?')
        self.assertTrue(second.output_text)
        self.assertGreaterEqual(second.usage.input_tokens_details.cached_tokens, first.usage.input_tokens - 1)

    def test_stream(self):
        events = list(self.respond(stream=True))
        self.assertEqual(events[0].type, 'response.created')
        self.assertIn(events[-1].type, ('response.completed', 'response.incomplete'))
        text = ''.join(event.delta for event in events if event.type == 'response.output_text.delta')
        self.assertEqual(text, events[-1].response.output_text)

    def test_structured_output(self):
        reply = self.client.responses.parse(model=CHAT, input='A place', max_output_tokens=FORCED, text_format=Place)
        self.assertIsInstance(reply.output_parsed, Place)

    def test_tool_and_its_result(self):
        tool = {'type': 'function', 'name': 'get_weather', 'description': 'The weather in a city.', 'parameters': PARAMETERS,
                'strict': True}
        items = [user(WEATHER)]
        reply = self.respond(input=items, tools=[tool], tool_choice='required', parallel_tool_calls=False,
                             max_output_tokens=FORCED)
        call, = [item for item in reply.output if item.type == 'function_call']
        self.assertIn(json.loads(call.arguments)['city'], CITIES)
        items += [*reply.output, {'type': 'function_call_output', 'call_id': call.call_id, 'output': 'Sunny.'}]
        self.assertTrue(self.respond(input=items, tools=[tool], tool_choice='none').output_text)

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError):
            self.respond(model=UNKNOWN)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.respond(input=LONG)
        self.assertEqual(caught.exception.code, 'context_length_exceeded')


if __name__ == '__main__':
    unittest.main()
