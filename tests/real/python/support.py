"""What the tests of Python clients share: where the server is, and what is asked of it.

HEARTH_URL is the server's address, HEARTH_CHAT_MODEL and HEARTH_EMBED_MODEL are names of models there. The chat model is small
and real: tests assert the structure of its replies, never what it says.
"""

import asyncio
import os
import tempfile
import time

# Before any client is imported: nothing is reported to anybody, nothing is kept in the user's folders.
home = tempfile.TemporaryDirectory(prefix='hearth-python-')
os.environ.update({
    'HOME': home.name,
    'LLM_USER_PATH': home.name,
    'DSPY_CACHEDIR': home.name,
    'LITELLM_LOCAL_MODEL_COST_MAP': 'True',
    'LITELLM_TELEMETRY': 'False',
    'OPENAI_AGENTS_DISABLE_TRACING': '1',
    'AGNO_TELEMETRY': 'false',
    'HAYSTACK_TELEMETRY_ENABLED': 'False',
    'LANGSMITH_TRACING': 'false',
    'HF_HUB_OFFLINE': '1',
    'ANONYMIZED_TELEMETRY': 'false',
    'OTEL_SDK_DISABLED': 'true',
    'NO_PROXY': '127.0.0.1',
})

URL = os.environ['HEARTH_URL'].rstrip('/')
V1 = f'{URL}/v1'
KEY = 'none'
CHAT = os.environ['HEARTH_CHAT_MODEL']
EMBED = os.environ['HEARTH_EMBED_MODEL']
DIMENSIONS = 384
UNKNOWN = 'no-such-model'

QUESTION = 'Write a sentence about the sea.'
WEATHER = 'What is the weather in Paris?'
FORCED = 120  # tokens: most of what a schema or tool_choice forces ends by itself before
LONG = 'The sea is wide and blue. ' * 1000  # more tokens than the chat model's window has
# Long enough for its prefix to be reused: prefixes below cache_min_tokens are computed anew.
STORY = 'You answer questions about this text.\n' + ' '.join(
    f'On day {n} the ship sailed on, and the captain wrote a line in the log.' for n in range(12))

# A tool and a form whose arguments are short, so that a reply that fits the schema soon ends.
CITY = {'type': 'string', 'enum': ['Paris', 'Rome', 'Oslo']}
PARAMETERS = {'type': 'object', 'properties': {'city': CITY}, 'required': ['city'], 'additionalProperties': False}
CITIES = set(CITY['enum'])
TOOL = {'type': 'function', 'function': {
    'name': 'get_weather', 'description': 'The weather in a city.', 'parameters': PARAMETERS}}


def user(content):
    return {'role': 'user', 'content': content}


_loop = asyncio.new_event_loop()


def run(coroutine):
    """Runs it to its end, all of them in one loop: clients keep connections that belong to it."""
    return _loop.run_until_complete(coroutine)


def slots_busy():
    """Slots of the chat model that work on a request."""
    import httpx
    return sum(slot['is_processing'] for slot in httpx.get(f'{URL}/slots', params={'model': CHAT}).json())


def until_idle(seconds=10):
    """Whether the server is soon done with all requests; one that it goes on with has some minutes of work."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if slots_busy() == 0:
            return True
        time.sleep(0.05)
    return False
