"""Ollama's own library."""

import json
import unittest

from support import (CHAT, CITIES, DIMENSIONS, EMBED, FORCED, LONG, PARAMETERS, QUESTION, STORY, TOOL, UNKNOWN, URL, WEATHER,
                     run, until_idle, user)

import ollama


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: its name
    """
    return f'Sunny in {city}.'


class Ollama(unittest.TestCase):
    client = ollama.Client(host=URL)

    def chat(self, messages=None, predict=16, **more):
        return self.client.chat(**{'model': CHAT, 'messages': messages or [user(QUESTION)],
                                   'options': {'num_predict': predict}, **more})

    def test_chat(self):
        reply = self.chat()
        self.assertEqual(reply.message.role, 'assistant')
        self.assertTrue(reply.message.content)
        self.assertTrue(reply.done)
        self.assertIn(reply.done_reason, ('stop', 'length'))
        self.assertGreater(reply.prompt_eval_count, 0)
        self.assertGreater(reply.eval_count, 0)
        self.assertEqual(self.chat(predict=3).done_reason, 'length')
        self.assertTrue(self.chat(model=f'{CHAT}:latest').message.content)

    def test_stream(self):
        parts = list(self.chat(stream=True))
        self.assertTrue(''.join(part.message.content or '' for part in parts))
        self.assertEqual([part.done for part in parts[-2:]], [False, True])

    def test_async(self):
        async def work():
            return [part async for part in await ollama.AsyncClient(host=URL).chat(
                model=CHAT, messages=[user(QUESTION)], options={'num_predict': 8}, stream=True)]
        self.assertTrue(run(work())[-1].done)

    def test_generate(self):
        reply = self.client.generate(model=CHAT, prompt=QUESTION, options={'num_predict': 8})
        self.assertTrue(reply.response)
        parts = list(self.client.generate(model=CHAT, prompt='The sea is', raw=True, options={'num_predict': 8}, stream=True))
        self.assertTrue(parts[-1].done)

    def test_a_second_turn_is_cached(self):
        messages = [{'role': 'system', 'content': STORY}, user('Who wrote?')]
        first = self.chat(messages)
        messages += [first.message, user('And what?')]
        self.assertGreater(self.chat(messages).prompt_eval_count, first.prompt_eval_count)

    def test_structured_output(self):
        value = json.loads(self.chat([user('A place')], FORCED, format=PARAMETERS).message.content)
        self.assertIn(value['city'], CITIES)
        self.assertTrue(self.chat([user('A short JSON object')], 24, format='json').message.content.lstrip().startswith('{'))

    def test_tool_and_its_result(self):
        # The API has no tool_choice of Ollama's; the library hands on no other fields. The loop is run with a call that was made.
        call = {'function': {'name': 'get_weather', 'arguments': {'city': 'Paris'}}}
        reply = self.chat([user(WEATHER)], 24, tools=[get_weather, TOOL])
        for made in reply.message.tool_calls or []:
            self.assertIsInstance(made.function.arguments, dict)
        answer = self.chat([user(WEATHER), {'role': 'assistant', 'content': '', 'tool_calls': [call]},
                            {'role': 'tool', 'tool_name': 'get_weather', 'content': get_weather('Paris')}])
        self.assertTrue(answer.message.content)

    def test_embeddings(self):
        reply = self.client.embed(model=EMBED, input=['the sea', 'a ship'])
        self.assertEqual([len(vector) for vector in reply.embeddings], [DIMENSIONS] * 2)
        self.assertEqual(len(self.client.embed(model=EMBED, input=LONG).embeddings), 1)  # truncated
        self.assertEqual(len(self.client.embeddings(model=EMBED, prompt='the sea').embedding), DIMENSIONS)
        with self.assertRaises(ollama.ResponseError):
            self.client.embed(model=EMBED, input=LONG, truncate=False)

    def test_models(self):
        names = {model.model for model in self.client.list().models}
        self.assertTrue({f'{CHAT}:latest', f'{EMBED}:latest'} <= names, names)
        self.assertIn('completion', self.client.show(CHAT).capabilities)
        self.assertIn('embedding', self.client.show(EMBED).capabilities)
        self.assertIn(f'{CHAT}:latest', {model.model for model in self.client.ps().models})

    def test_errors(self):
        with self.assertRaises(ollama.ResponseError) as caught:
            self.chat(model=UNKNOWN)
        self.assertEqual(caught.exception.status_code, 404)
        with self.assertRaises(ollama.ResponseError) as caught:
            self.chat([user(LONG)])
        self.assertEqual(caught.exception.status_code, 400)
        with self.assertRaises(ollama.ResponseError):
            list(self.chat([user(LONG)], stream=True))

    def test_closing_a_stream_ends_the_reply(self):
        stream = self.chat(predict=3000, stream=True)
        next(stream)
        stream.close()
        self.assertTrue(until_idle())


if __name__ == '__main__':
    unittest.main()
