"""LangChain's classes for OpenAI's, Anthropic's and Ollama's APIs."""

import asyncio
import unittest
from typing import Literal

from support import (CHAT, CITIES, DIMENSIONS, EMBED, FORCED, KEY, LONG, QUESTION, STORY, UNKNOWN, URL,
                     V1, WEATHER, run, until_idle)

import anthropic
import ollama
import openai
from langchain_anthropic import ChatAnthropic
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel


class Place(BaseModel):
    """A place."""
    city: Literal['Paris', 'Rome', 'Oslo']


@tool
def get_weather(city: Literal['Paris', 'Rome', 'Oslo']) -> str:
    """The weather in a city."""
    return f'Sunny in {city}.'


class Shared:
    one_call = {}  # what makes tool_choice force one call and no more

    def test_chat(self):
        reply = self.model().invoke(QUESTION)
        self.assertTrue(reply.text)
        self.assertGreater(reply.usage_metadata['output_tokens'], 0)

    def test_stream(self):
        pieces = list(self.model().stream(QUESTION))
        whole = pieces[0]
        for piece in pieces[1:]:
            whole += piece
        self.assertTrue(whole.text)
        self.assertGreater(whole.usage_metadata['output_tokens'], 0)

    def test_async(self):
        async def work():
            model = self.model()
            replies = await asyncio.gather(*[model.ainvoke(QUESTION) for _ in range(2)])
            return [reply.text for reply in replies] + [''.join([piece.text async for piece in model.astream(QUESTION)])]
        self.assertTrue(all(run(work())))

    def test_a_second_turn_is_cached(self):
        messages = [SystemMessage(STORY), HumanMessage('Who wrote?')]
        first = self.model().invoke(messages)
        second = self.model().invoke([*messages, first, HumanMessage('And what?')])
        cached = second.usage_metadata.get('input_token_details', {}).get('cache_read')
        if self.counts_cached:
            self.assertGreaterEqual(cached, first.usage_metadata['input_tokens'] - 1)
        self.assertGreater(second.usage_metadata['input_tokens'], first.usage_metadata['input_tokens'])

    def test_structured_output(self):
        for method in self.methods:
            with self.subTest(method=method):
                place = self.model(FORCED).with_structured_output(Place, method=method).invoke('A place')
                self.assertIsInstance(place, Place)

    def test_tool_and_its_result(self):
        model = self.model(FORCED).bind_tools([get_weather], tool_choice='any', **self.one_call)
        messages = [HumanMessage(WEATHER)]
        reply = model.invoke(messages)
        call = reply.tool_calls[0]
        self.assertIn(call['args']['city'], CITIES)
        result = get_weather.invoke(call)
        self.assertIsInstance(result, ToolMessage)
        self.assertTrue(self.model().invoke([*messages, reply, result]).text)

    def test_errors(self):
        with self.assertRaises(self.not_found):
            self.model(model=UNKNOWN).invoke(QUESTION)
        with self.assertRaises(self.overflow):
            self.model().invoke(LONG)
        with self.assertRaises(self.overflow):
            list(self.model().stream(LONG))

    def test_leaving_a_stream_ends_the_reply(self):
        stream = self.model(3000).stream(QUESTION)
        next(stream)
        stream.close()
        self.assertTrue(until_idle())


class OpenAI(Shared, unittest.TestCase):
    methods = ('json_schema', 'function_calling')
    one_call = {'parallel_tool_calls': False}
    counts_cached = True
    not_found = openai.NotFoundError
    overflow = ContextOverflowError

    def model(self, tokens=12, **more):
        return ChatOpenAI(**{'base_url': V1, 'api_key': KEY, 'model': CHAT, 'max_tokens': tokens, 'max_retries': 0,
                             'stream_usage': True, **more})

    def test_embeddings(self):
        # Otherwise it sends numbers of OpenAI's own tokens, which other models do not have.
        model = OpenAIEmbeddings(base_url=V1, api_key=KEY, model=EMBED, check_embedding_ctx_length=False)
        vectors = model.embed_documents(['a', 'b'])
        self.assertEqual([len(vector) for vector in vectors], [DIMENSIONS] * 2)


class OpenAIResponses(OpenAI):
    def model(self, tokens=12, **more):
        return super().model(tokens, use_responses_api=True, **more)


class Anthropic(Shared, unittest.TestCase):
    methods = ('json_schema', 'function_calling')
    one_call = {'parallel_tool_calls': False}
    counts_cached = True
    not_found = anthropic.NotFoundError
    overflow = ContextOverflowError

    def model(self, tokens=12, **more):
        return ChatAnthropic(**{'base_url': URL, 'api_key': KEY, 'model': CHAT, 'max_tokens': tokens, 'max_retries': 0, **more})


class Ollama(Shared, unittest.TestCase):
    methods = ('json_schema',)  # tools cannot be forced here
    counts_cached = False  # the API has no number for it
    not_found = ollama.ResponseError
    overflow = ollama.ResponseError

    def model(self, tokens=12, **more):
        return ChatOllama(**{'base_url': URL, 'model': CHAT, 'num_predict': tokens, **more})

    def test_tool_and_its_result(self):
        reply = self.model(24).bind_tools([get_weather]).invoke(WEATHER)
        self.assertIsInstance(reply.tool_calls, list)
        call = {'name': 'get_weather', 'args': {'city': 'Paris'}, 'id': '1', 'type': 'tool_call'}
        made = type(reply)(content='', tool_calls=[call])
        self.assertTrue(self.model().invoke([HumanMessage(WEATHER), made, get_weather.invoke(call)]).text)

    def test_embeddings(self):
        vectors = OllamaEmbeddings(base_url=URL, model=EMBED).embed_documents(['a', 'b'])
        self.assertEqual([len(vector) for vector in vectors], [DIMENSIONS] * 2)


if __name__ == '__main__':
    unittest.main()
