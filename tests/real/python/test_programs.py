"""Programs that have venvs of their own, in `make real-all`: aider, and guidellm, which makes load."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import CHAT, KEY, LONG, QUESTION, URL, V1

AIDER, GUIDELLM = os.environ.get('HEARTH_REAL_AIDER'), os.environ.get('HEARTH_REAL_GUIDELLM')  # their Pythons
BEFORE, AFTER = ('def add(a, b):\n    return a {} b\n'.format(sign) for sign in '-+')


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='hearth-python-')
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_in_folder(self, *command, **env):
        done = subprocess.run(command, cwd=self.folder, env={**os.environ, 'HOME': str(self.folder), **env}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout


@unittest.skipUnless(AIDER, 'HEARTH_REAL_AIDER is not set')
class Aider(Program):
    def aider(self, message):
        self.file = self.folder / 'sum.py'
        self.file.write_text(BEFORE)
        # It looks for prices of models in the network, once a day.
        prices = self.folder / '.aider' / 'caches' / 'model_prices_and_context_window.json'
        prices.parent.mkdir(parents=True)
        prices.write_text('{"none": {}}')
        # All that the model can say: whether a small one writes what aider can read is not asked here.
        edit = {'guided_choice': [f'sum.py\n```\n{AFTER}```\n']}
        settings = self.folder / 'models.yml'
        settings.write_text(json.dumps([
            {'name': f'openai/{CHAT}', 'edit_format': 'whole', 'extra_params': {'extra_body': edit}}]))
        return self.run_in_folder(
            AIDER, '-m', 'aider', '--model', f'openai/{CHAT}', '--openai-api-base', V1, '--openai-api-key', KEY, '--yes',
            '--no-git', '--no-check-update', '--no-show-release-notes', '--no-show-model-warnings', '--analytics-disable',
            '--no-pretty', '--map-tokens', '0', '--model-settings-file', str(settings), '--message', message, 'sum.py')

    def test_edit(self):
        output = self.aider('Add the numbers.')
        self.assertIn('Applied edit to sum.py', output)
        self.assertEqual(self.file.read_text(), AFTER)

    def test_a_prompt_that_is_too_long(self):
        output = self.aider(LONG)
        self.assertIn('has hit a token limit', output)
        self.assertIn('possibly exhausted context window', output)
        self.assertEqual(self.file.read_text(), BEFORE)


@unittest.skipUnless(GUIDELLM, 'HEARTH_REAL_GUIDELLM is not set')
class GuideLLM(Program):
    def test_chats_at_once(self):
        # Synthetic texts would need a tokenizer from the network.
        prompts = [json.dumps({'prompt': f'{n}: {QUESTION}', 'output_tokens_count': 8}) for n in range(2000)]
        (self.folder / 'prompts.jsonl').write_text('\n'.join(prompts))
        self.run_in_folder(
            GUIDELLM, '-m', 'guidellm', 'benchmark', 'run', '--target', URL, '--model', CHAT, '--data', 'prompts.jsonl',
            '--data-args', '{"prompt_column": "prompt"}', '--rate-type', 'concurrent', '--rate', '3', '--max-seconds', '20',
            '--output-path', 'out.json', '--disable-progress', GUIDELLM__PREFERRED_ROUTE='chat_completions')
        benchmark, = json.loads((self.folder / 'out.json').read_text())['benchmarks']
        self.assertEqual(benchmark['request_totals']['errored'], 0)
        self.assertGreater(benchmark['request_totals']['successful'], 3)
        for request in benchmark['requests']['successful']:
            self.assertEqual(request['request_type'], 'chat_completions')
            self.assertTrue(request['output'])


if __name__ == '__main__':
    unittest.main()
