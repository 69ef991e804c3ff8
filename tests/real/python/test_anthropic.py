"""Anthropic's own library."""

import unittest
from typing import Literal

from support import (CHAT, CITIES, FORCED, KEY, LONG, PARAMETERS, QUESTION, STORY, UNKNOWN, URL, WEATHER, run,
                     until_idle, user)

import anthropic
from pydantic import BaseModel

TOOL = {'name': 'get_weather', 'description': 'The weather in a city.', 'input_schema': PARAMETERS}


class Place(BaseModel):
    city: Literal['Paris', 'Rome', 'Oslo']


class Messages(unittest.TestCase):
    client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)

    def ask(self, **more):
        return self.client.messages.create(**{'model': CHAT, 'messages': [user(QUESTION)], 'max_tokens': 16, **more})

    def test_message(self):
        reply = self.ask()
        self.assertEqual((reply.type, reply.role), ('message', 'assistant'))
        self.assertTrue(reply.content[0].text)
        self.assertIn(reply.stop_reason, ('end_turn', 'max_tokens'))
        self.assertGreater(reply.usage.output_tokens, 0)

    def test_a_second_turn_is_cached(self):
        messages = [user('Who wrote?')]
        first = self.ask(system=STORY, messages=messages)
        messages += [{'role': 'assistant', 'content': first.content}, user('And what?')]
        usage = self.ask(system=STORY, messages=messages).usage
        before = first.usage.input_tokens + first.usage.cache_creation_input_tokens + first.usage.cache_read_input_tokens
        self.assertGreaterEqual(usage.cache_read_input_tokens, before - 1)

    def test_stream(self):
        with self.client.messages.stream(model=CHAT, messages=[user(QUESTION)], max_tokens=16) as stream:
            text = ''.join(stream.text_stream)
            message = stream.get_final_message()
        self.assertTrue(text)
        self.assertEqual(text, message.content[0].text)
        self.assertIn(message.stop_reason, ('end_turn', 'max_tokens'))
        kinds = [event.type for event in self.ask(stream=True)]
        self.assertEqual((kinds[0], kinds[-1]), ('message_start', 'message_stop'))

    def test_async(self):
        async def work():
            async with anthropic.AsyncAnthropic(base_url=URL, api_key=KEY, max_retries=0) as client:
                async with client.messages.stream(model=CHAT, messages=[user(QUESTION)], max_tokens=8) as stream:
                    return ''.join([text async for text in stream.text_stream])
        self.assertTrue(run(work()))

    def test_stop_sequence(self):
        reply = self.ask(stop_sequences=['e'], max_tokens=40)
        self.assertEqual((reply.stop_reason, reply.stop_sequence), ('stop_sequence', 'e'))

    def test_structured_output(self):
        reply = self.client.messages.parse(model=CHAT, messages=[user('A place')], max_tokens=FORCED, output_format=Place)
        self.assertIsInstance(reply.parsed_output, Place)

    def test_tool_and_its_result(self):
        for choice in ({'type': 'any', 'disable_parallel_tool_use': True},
                       {'type': 'tool', 'name': 'get_weather', 'disable_parallel_tool_use': True}):
            messages = [user(WEATHER)]
            reply = self.ask(messages=messages, tools=[TOOL], tool_choice=choice, max_tokens=FORCED)
            self.assertEqual(reply.stop_reason, 'tool_use')
            call, = [block for block in reply.content if block.type == 'tool_use']
            self.assertIn(call.input['city'], CITIES)
            messages += [{'role': 'assistant', 'content': reply.content},
                         user([{'type': 'tool_result', 'tool_use_id': call.id, 'content': 'Sunny.'}])]
            answer = self.ask(messages=messages, tools=[TOOL], tool_choice={'type': 'none'})
            self.assertTrue(answer.content[0].text)

    def test_tool_in_a_stream(self):
        with self.client.messages.stream(model=CHAT, messages=[user(WEATHER)], tools=[TOOL], max_tokens=FORCED,
                                         tool_choice={'type': 'any', 'disable_parallel_tool_use': True}) as stream:
            kinds = {event.type for event in stream}
            message = stream.get_final_message()
        self.assertIn('input_json', kinds)
        self.assertIn(message.content[-1].input['city'], CITIES)

    def run_tools(self, **more):
        called = []

        @anthropic.beta_tool
        def get_weather(city: Literal['Paris', 'Rome', 'Oslo']) -> str:
            """The weather in a city.

            Args:
                city: Its name.
            """
            called.append(city)
            return f'Sunny in {city}.'
        runner = self.client.beta.messages.tool_runner(
            model=CHAT, messages=[user(WEATHER)], tools=[get_weather], max_iterations=2, **more,
            max_tokens=FORCED, tool_choice={'type': 'any', 'disable_parallel_tool_use': True})
        self.assertEqual([message.stop_reason for message in runner], ['tool_use'] * 2)
        self.assertTrue(called and set(called) <= CITIES, called)

    def test_tool_runner(self):
        self.run_tools(thread=False)

    # By default the runner would have the server keep the conversation, and goes on without that once it is refused.
    def test_tool_runner_with_a_thread(self):
        self.run_tools()

    def test_tokens_are_counted(self):
        count = self.client.messages.count_tokens(model=CHAT, messages=[user(QUESTION)]).input_tokens
        usage = self.ask().usage
        self.assertEqual(count, usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens)

    def test_models(self):
        self.assertIn(CHAT, {model.id for model in self.client.models.list()})

    def test_errors(self):
        with self.assertRaises(anthropic.NotFoundError):
            self.ask(model=UNKNOWN)
        with self.assertRaises(anthropic.BadRequestError):
            self.ask(extra_body={'top_p': 5})
        with self.assertRaisesRegex(anthropic.BadRequestError, 'prompt is too long'):
            self.ask(messages=[user(LONG)])

    def test_closing_a_stream_ends_the_reply(self):
        stream = self.ask(stream=True, max_tokens=3000, extra_body={'ignore_eos': True})
        next(iter(stream))
        stream.close()
        self.assertTrue(until_idle())


if __name__ == '__main__':
    unittest.main()
