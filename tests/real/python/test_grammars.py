"""Outlines and guidance as they speak to vLLM and SGLang: schemas, regular expressions and grammars in these servers' fields."""

import unittest
from typing import Literal

from support import CHAT, CITIES, FORCED, KEY, QUESTION, V1, run

import openai
from pydantic import BaseModel

City = Literal['Paris', 'Rome', 'Oslo']


class Place(BaseModel):
    city: City


class Outlines(unittest.TestCase):
    def models(self, client=openai.OpenAI):
        import outlines
        client = client(base_url=V1, api_key=KEY, max_retries=0)
        return [outlines.from_vllm(client, CHAT), outlines.from_sglang(client, CHAT)]

    def test_chat_and_stream(self):
        for model in self.models():
            with self.subTest(model=model):
                self.assertTrue(model(QUESTION, max_tokens=12))
                self.assertTrue(''.join(model.stream(QUESTION, max_tokens=12)))
        for model in self.models(openai.AsyncOpenAI):
            with self.subTest(model=model):
                self.assertTrue(run(model(QUESTION, max_tokens=12)))

    def test_structured_output(self):
        from outlines.types import CFG, Regex
        for model in self.models():
            with self.subTest(model=model):
                Place.model_validate_json(model('A place', Place, max_tokens=FORCED))
                self.assertIn(model('A place', City, max_tokens=FORCED), CITIES)
                self.assertRegex(model('A number', Regex('[0-9]{3}-[0-9]{2}'), max_tokens=FORCED), '^[0-9]{3}-[0-9]{2}$')
                self.assertIn(model('A place', CFG('root ::= "Paris" | "Rome" | "Oslo"'), max_tokens=FORCED), CITIES)

    def test_a_grammar_of_another_language(self):
        from outlines.types import CFG
        for model in self.models():
            with self.subTest(model=model), self.assertRaises(Exception) as caught:
                model('A place', CFG('start: "Paris" | "Rome"'))
            self.assertIn('the grammar has an error in line 1', str(caught.exception))


class Guidance(unittest.TestCase):
    def models(self):
        from guidance.models import OpenAI
        from guidance.models.experimental import SglangModel
        return [kind(CHAT, base_url=V1, api_key=KEY, echo=False) for kind in (OpenAI, SglangModel)]

    def ask(self, model, what):
        from guidance import assistant, user
        with user():
            model += QUESTION
        with assistant():
            model += what
        return model['answer']

    def test_chat(self):
        from guidance import gen
        for model in self.models():
            with self.subTest(model=model):
                self.assertTrue(self.ask(model, gen('answer', max_tokens=12)))

    def test_structured_output(self):
        from guidance import gen, json as form
        for model in self.models():
            with self.subTest(model=model):
                Place.model_validate_json(self.ask(model, form('answer', schema=Place, max_tokens=FORCED)))
        self.assertIn(self.ask(self.models()[1], gen('answer', regex='Paris|Rome|Oslo', max_tokens=FORCED)), CITIES)


if __name__ == '__main__':
    unittest.main()
