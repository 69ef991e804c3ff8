"""Instructor, Pydantic AI, OpenAI's Agents SDK, LlamaIndex, and libraries for agents over OpenAI's API."""

import json
import unittest
from typing import Literal

from support import (CHAT, CITIES, DIMENSIONS, EMBED, FORCED, KEY, LONG, PARAMETERS, QUESTION, UNKNOWN, V1, WEATHER, run, user)

import openai
from pydantic import BaseModel

City = Literal['Paris', 'Rome', 'Oslo']
# For clients that take a reply that is cut off as an error: one of these strings, or a call where there are tools.
ENDS = {'extra_body': {'guided_json': {'enum': ['Hello, I am here.', 'Paris.']}}}


class Place(BaseModel):
    """A place."""
    city: City


class Instructor(unittest.TestCase):
    def create(self, mode, model=CHAT, client=openai.OpenAI, **more):
        import instructor
        client = instructor.from_openai(client(base_url=V1, api_key=KEY, max_retries=0), mode=mode)
        return client.chat.completions.create(model=model, messages=[user('A place')], response_model=Place,
                                              max_retries=0, **more)

    def test_modes(self):
        from instructor import Mode
        for mode in (Mode.TOOLS, Mode.JSON_SCHEMA):
            with self.subTest(mode=mode):
                self.assertIsInstance(self.create(mode, max_tokens=FORCED), Place)

    def test_json_mode(self):
        # Here the schema stands in the prompt and what is enforced is JSON: a small model may give another object.
        from instructor import Mode
        try:
            self.assertIsInstance(self.create(Mode.JSON, max_tokens=200), Place)
        except Exception as error:
            self.assertIn('validation error', str(error))
            self.assertNotIn('json_invalid', str(error))

    def test_responses(self):
        from instructor import Mode
        self.assertIsInstance(self.create(Mode.RESPONSES_TOOLS, max_output_tokens=FORCED), Place)

    def test_async(self):
        from instructor import Mode
        self.assertIsInstance(run(self.create(Mode.TOOLS, client=openai.AsyncOpenAI, max_tokens=FORCED)), Place)

    def test_errors(self):
        from instructor import Mode
        with self.assertRaises(Exception) as caught:
            self.create(Mode.TOOLS, model=UNKNOWN)
        self.assertIn('does not exist', str(caught.exception))


class PydanticAI(unittest.TestCase):
    # Its classes for Anthropic's API do not run with the version of Anthropic's library that is installed here.
    def models(self):
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider
        for kind in (OpenAIChatModel, OpenAIResponsesModel):
            yield lambda name=CHAT, kind=kind: kind(name, provider=OpenAIProvider(base_url=V1, api_key=KEY))

    def agent(self, model, tokens=12, **more):
        from pydantic_ai import Agent
        return Agent(model, model_settings={'max_tokens': tokens, 'parallel_tool_calls': False}, retries=0, **more)

    def test_chat_and_stream(self):
        async def streamed(agent):
            async with agent.run_stream(QUESTION) as result:
                return ''.join([text async for text in result.stream_text(delta=True, debounce_by=None)])
        for model in self.models():
            with self.subTest(model=model()):
                result = run(self.agent(model()).run(QUESTION))
                self.assertTrue(result.output)
                self.assertGreater(result.usage.output_tokens, 0)
                self.assertTrue(run(streamed(self.agent(model()))))

    def test_structured_output(self):
        from pydantic_ai import NativeOutput, ToolOutput
        for model in self.models():
            for kind in (ToolOutput, NativeOutput):
                with self.subTest(model=model(), kind=kind):
                    agent = self.agent(model(), FORCED, output_type=kind(Place))
                    self.assertIsInstance(run(agent.run('A place')).output, Place)

    def test_errors(self):
        from pydantic_ai import ModelHTTPError
        for model in self.models():
            with self.subTest(model=model()):
                with self.assertRaises(ModelHTTPError) as caught:
                    run(self.agent(model(UNKNOWN)).run(QUESTION))
                self.assertEqual(caught.exception.status_code, 404)


class OpenAIAgents(unittest.TestCase):
    def setUp(self):
        from agents import OpenAIChatCompletionsModel, OpenAIResponsesModel
        client = openai.AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0)
        self.models = [OpenAIChatCompletionsModel(CHAT, client), OpenAIResponsesModel(CHAT, client)]
        self.unknown = [OpenAIChatCompletionsModel(UNKNOWN, client), OpenAIResponsesModel(UNKNOWN, client)]

    def agent(self, model, tokens=12, choice=None, settings={}, **more):
        from agents import Agent, ModelSettings
        calls = False if more.get('tools') else None
        settings = ModelSettings(max_tokens=tokens, tool_choice=choice, parallel_tool_calls=calls, **settings)
        return Agent(name='guide', instructions='Answer.', model=model, model_settings=settings, **more)

    def test_chat_and_stream(self):
        from agents import Runner

        async def streamed(agent):
            result = Runner.run_streamed(agent, 'What is the capital of France?')
            kinds = {event.type async for event in result.stream_events()}
            return kinds, result.final_output
        for model in self.models:
            with self.subTest(model=model):
                self.assertTrue(run(Runner.run(self.agent(model), QUESTION)).final_output)
                kinds, text = run(streamed(self.agent(model, 40, settings=ENDS)))
                self.assertIn('raw_response_event', kinds)
                self.assertTrue(text)

    def test_output_type(self):
        from agents import Runner
        for model in self.models:
            with self.subTest(model=model):
                result = run(Runner.run(self.agent(model, FORCED, output_type=Place), 'A place'))
                self.assertIsInstance(result.final_output, Place)

    def test_output_type_and_a_tool_that_is_forced(self):
        from agents import Runner, function_tool
        for model in self.models:
            with self.subTest(model=model):
                called = []

                @function_tool
                def get_weather(city: City) -> str:
                    """The weather in a city."""
                    called.append(city)
                    return f'Sunny in {city}.'
                # Where nothing is forced after the call, this small model calls the tool again and again.
                agent = self.agent(model, FORCED, 'required', output_type=Place, tools=[get_weather],
                                   tool_use_behavior='stop_on_first_tool')
                first = run(Runner.run(agent, WEATHER, max_turns=1))
                self.assertTrue(called and set(called) <= CITIES, called)
                agent = self.agent(model, FORCED, 'none', output_type=Place, tools=[get_weather])
                result = run(Runner.run(agent, [*first.to_input_list(), user('Which city?')], max_turns=1))
                self.assertIsInstance(result.final_output, Place)

    def test_errors(self):
        from agents import Runner
        for model in self.unknown:
            with self.assertRaises(openai.NotFoundError):
                run(Runner.run(self.agent(model), QUESTION))


class LlamaIndex(unittest.TestCase):
    def model(self, tokens=12, name=CHAT, **more):
        from llama_index.llms.openai_like import OpenAILike
        return OpenAILike(model=name, api_base=V1, api_key=KEY, is_chat_model=True, is_function_calling_model=True,
                          max_tokens=tokens, context_window=4096, max_retries=0, **more)

    def test_chat_and_stream(self):
        from llama_index.core.llms import ChatMessage
        messages = [ChatMessage(role='user', content=QUESTION)]
        self.assertTrue(self.model().chat(messages).message.content)
        self.assertTrue(list(self.model().stream_chat(messages))[-1].message.content)
        self.assertTrue(run(self.model().achat(messages)).message.content)

    def test_structured_output(self):
        from llama_index.core.prompts import PromptTemplate
        for more in ({}, {'should_use_structured_outputs': True}):
            with self.subTest(**more):
                place = self.model(FORCED, **more).structured_predict(Place, PromptTemplate('A place'))
                self.assertIsInstance(place, Place)

    def test_tool_and_its_result(self):
        from llama_index.core.llms import ChatMessage
        from llama_index.core.tools import FunctionTool

        def get_weather(city: City) -> str:
            """The weather in a city."""
            return f'Sunny in {city}.'
        model, tool = self.model(FORCED), FunctionTool.from_defaults(get_weather)
        messages = [ChatMessage(role='user', content=WEATHER)]
        reply = model.chat_with_tools([tool], chat_history=messages, tool_required=True, allow_parallel_tool_calls=False)
        call = model.get_tool_calls_from_response(reply)[0]
        self.assertIn(call.tool_kwargs['city'], CITIES)
        messages += [reply.message, ChatMessage(role='tool', content='Sunny.', additional_kwargs={'tool_call_id': call.tool_id})]
        self.assertTrue(self.model().chat(messages).message.content)

    def test_embeddings(self):
        from llama_index.embeddings.openai_like import OpenAILikeEmbedding
        model = OpenAILikeEmbedding(model_name=EMBED, api_base=V1, api_key=KEY)
        self.assertEqual([len(vector) for vector in model.get_text_embedding_batch(['a', 'b'])], [DIMENSIONS] * 2)

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError):
            self.model(name=UNKNOWN).complete(QUESTION)
        with self.assertRaises(openai.BadRequestError):
            self.model().complete(LONG)


class SmolAgents(unittest.TestCase):
    def model(self, tokens=12, **more):
        import smolagents
        return smolagents.OpenAIModel(CHAT, api_base=V1, api_key=KEY, max_tokens=tokens, **more)

    def test_chat_and_stream(self):
        from smolagents import ChatMessage
        messages = [ChatMessage(role='user', content=[{'type': 'text', 'text': QUESTION}])]
        reply = self.model().generate(messages)
        self.assertTrue(reply.content)
        self.assertGreater(reply.token_usage.output_tokens, 0)
        self.assertTrue(''.join(delta.content or '' for delta in self.model().generate_stream(messages)))

    def test_agent_calls_tools(self):
        import smolagents

        @smolagents.tool
        def get_weather(city: str) -> str:
            """The weather in a city.

            Args:
                city: Its name.
            """
            return f'Sunny in {city}.'
        # It forces a call in each step. Which tool is called, and how often, is the model's choice.
        agent = smolagents.ToolCallingAgent([get_weather], self.model(60, parallel_tool_calls=False), max_steps=1,
                                            verbosity_level=0)
        agent.prompt_templates['system_prompt'] = 'Call a tool.'
        agent.run(WEATHER)
        step = [step for step in agent.memory.steps if isinstance(step, smolagents.ActionStep)][0]
        self.assertTrue(step.tool_calls, step.error)


class DSPy(unittest.TestCase):
    def model(self, **more):
        import dspy
        return dspy.LM(f'openai/{CHAT}', **{'api_base': V1, 'api_key': KEY, 'max_tokens': 12, 'cache': False,
                                             'num_retries': 0, **more})

    def test_chat(self):
        self.assertTrue(self.model()(QUESTION)[0])

    def test_signature(self):
        import dspy

        class Ask(dspy.Signature):
            question: str = dspy.InputField()
            city: City = dspy.OutputField()
        # It sends a schema only to models that it knows.
        form = {'type': 'json_schema', 'json_schema': {'name': 'answer', 'strict': True, 'schema': PARAMETERS}}
        with dspy.context(lm=self.model(max_tokens=FORCED, response_format=form), adapter=dspy.JSONAdapter()):
            self.assertIn(dspy.Predict(Ask)(question='A place').city, CITIES)

    def test_embeddings(self):
        import dspy
        vectors = dspy.Embedder(f'openai/{EMBED}', api_base=V1, api_key=KEY, caching=False)(['a', 'b'])
        self.assertEqual(vectors.shape, (2, DIMENSIONS))

    def test_errors(self):
        import dspy
        with self.assertRaises(dspy.ContextWindowExceededError):
            self.model()(LONG)


class Haystack(unittest.TestCase):
    def generator(self, model=CHAT, tokens=12, **more):
        from haystack.components.generators.chat import OpenAIChatGenerator
        from haystack.utils import Secret
        kwargs = {'max_tokens': tokens, **more.pop('generation_kwargs', {})}
        return OpenAIChatGenerator(Secret.from_token(KEY), model, api_base_url=V1, max_retries=0,
                                   generation_kwargs=kwargs, **more)

    def test_chat_and_stream(self):
        from haystack.dataclasses import ChatMessage
        pieces = []
        for callback in (None, pieces.append):
            reply = self.generator(streaming_callback=callback).run([ChatMessage.from_user(QUESTION)])['replies'][0]
            self.assertTrue(reply.text)
        self.assertGreater(len(pieces), 1)

    def test_structured_output(self):
        from haystack.dataclasses import ChatMessage
        generator = self.generator(tokens=FORCED, generation_kwargs={'response_format': Place})
        Place.model_validate_json(generator.run([ChatMessage.from_user('A place')])['replies'][0].text)

    def test_tool_and_its_result(self):
        from haystack.dataclasses import ChatMessage
        from haystack.tools import create_tool_from_function

        def get_weather(city: City) -> str:
            """The weather in a city."""
            return f'Sunny in {city}.'
        generator = self.generator(tokens=FORCED, tools=[create_tool_from_function(get_weather)],
                                   generation_kwargs={'tool_choice': 'required', 'parallel_tool_calls': False})
        messages = [ChatMessage.from_user(WEATHER)]
        reply = generator.run(messages)['replies'][0]
        self.assertIn(reply.tool_call.arguments['city'], CITIES)
        messages += [reply, ChatMessage.from_tool('Sunny.', origin=reply.tool_call)]
        self.assertTrue(self.generator().run(messages)['replies'][0].text)

    def test_embeddings(self):
        from haystack.components.embedders import OpenAITextEmbedder
        from haystack.utils import Secret
        embedder = OpenAITextEmbedder(Secret.from_token(KEY), EMBED, api_base_url=V1)
        self.assertEqual(len(embedder.run('the sea')['embedding']), DIMENSIONS)

    def test_errors(self):
        from haystack.dataclasses import ChatMessage
        with self.assertRaises(openai.NotFoundError):
            self.generator(UNKNOWN).run([ChatMessage.from_user(QUESTION)])


class Strands(unittest.TestCase):
    def agent(self, tokens=12, more={}, **others):
        from strands import Agent
        from strands.models.openai import OpenAIModel
        model = OpenAIModel(client_args={'base_url': V1, 'api_key': KEY, 'max_retries': 0}, model_id=CHAT,
                            params={'max_tokens': tokens, **more})
        return Agent(model=model, callback_handler=None, **others)

    def test_chat(self):
        result = run(self.agent(40, ENDS).invoke_async('Say hello.'))
        self.assertEqual(result.stop_reason, 'end_turn')
        self.assertGreater(result.metrics.accumulated_usage['outputTokens'], 0)

    def test_structured_output(self):
        # It lets the model choose first and forces the call where that answers in text.
        agent = self.agent(FORCED, {'parallel_tool_calls': False, **ENDS})
        result = run(agent.invoke_async('A place', structured_output_model=Place))
        self.assertIsInstance(result.structured_output, Place)

    def test_a_prompt_that_is_too_long(self):
        from strands.agent.conversation_manager import NullConversationManager
        from strands.types.exceptions import ContextWindowOverflowException
        with self.assertRaises(ContextWindowOverflowException):
            run(self.agent(conversation_manager=NullConversationManager()).invoke_async(LONG))


class Agno(unittest.TestCase):
    def agent(self, tokens=12, **more):
        from agno.agent import Agent
        from agno.models.openai.like import OpenAILike
        return Agent(model=OpenAILike(id=CHAT, base_url=V1, api_key=KEY, max_tokens=tokens, max_retries=0),
                     telemetry=False, **more)

    def test_chat_and_stream(self):
        self.assertTrue(self.agent().run(QUESTION).content)
        self.assertTrue(''.join(event.content or '' for event in self.agent().run(QUESTION, stream=True)))

    def test_structured_output(self):
        self.assertIsInstance(self.agent(FORCED, output_schema=Place, structured_outputs=True).run('A place').content, Place)


class Outlines(unittest.TestCase):
    def model(self):
        import outlines
        return outlines.from_openai(openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0), CHAT)

    def test_chat_and_stream(self):
        self.assertTrue(self.model()(QUESTION, max_tokens=12))
        self.assertTrue(''.join(self.model().stream(QUESTION, max_tokens=12)))

    def test_structured_output(self):
        Place.model_validate_json(self.model()('A place', Place, max_tokens=FORCED))


class LLM(unittest.TestCase):
    def model(self):
        from llm.default_plugins.openai_models import Chat
        return Chat('hearth', model_name=CHAT, api_base=V1, key=KEY, supports_schema=True, supports_tools=True)

    def test_chat_and_stream(self):
        for stream in (False, True):
            response = self.model().prompt(QUESTION, stream=stream, max_tokens=12, key=KEY)
            self.assertTrue(response.text())

    def test_structured_output(self):
        text = self.model().prompt('A place', schema=Place, max_tokens=FORCED, stream=False, key=KEY).text()
        self.assertIn(json.loads(text)['city'], CITIES)


if __name__ == '__main__':
    unittest.main()
