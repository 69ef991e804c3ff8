"""lm-eval's local-completions: how likely each choice of a few questions is, beside llama-server on the same model."""

import os
import unittest

from support import CHAT, KEY, URL, V1

import datasets
import requests
from lm_eval import evaluator
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.openai_completions import LocalCompletionsAPI

PEER = os.environ.get('HEARTH_PEER_URL')  # llama-server's, where there is one
os.environ['OPENAI_API_KEY'] = KEY

QUESTIONS = [(question, choices.split(', ')) for question, choices in (
    ('The capital of France is', 'Paris, Rome, Oslo, Madrid'),
    ('The opposite of hot is', 'cold, wet, loud, green'),
    ('Fish live in the', 'water, desert, sky, oven'),
    ('A week has seven', 'days, months, colours, legs'),
    ('Two plus two is', 'four, nine, seven, a hundred'),
    ('At night the sky is', 'dark, made of stone, yellow, salty'),
    ('A dog has four', 'legs, wings, wheels, tails'),
    ('Snow is', 'white, hot to the touch, purple, loud'),
    ('Bread is made of', 'flour, glass, iron ore, moonlight'),
    ('Birds can', 'fly, read the newspaper, drive, melt'),
)]


def model(**more):
    return LocalCompletionsAPI(f'{V1}/completions', tokenizer_backend='remote', model=CHAT, max_length=512, max_retries=1, **more)


def evaluate(lm):
    """The harness's figures, and [(loglikelihood, greedy)] of each question's choices."""
    rows = [{'question': question, 'choices': choices, 'answer': 0} for question, choices in QUESTIONS]
    task = ConfigurableTask(config={
        'task': 'facts', 'output_type': 'multiple_choice', 'test_split': 'test', 'doc_to_text': 'question',
        'doc_to_choice': 'choices', 'doc_to_target': 'answer', 'metric_list': [{'metric': 'acc'}],
        'custom_dataset': lambda **_: {'test': datasets.Dataset.from_list(rows)}})
    found = evaluator.evaluate(lm, {'facts': task}, bootstrap_iters=0)
    samples = sorted(found['samples']['facts'], key=lambda sample: sample['doc_id'])
    return found['results']['facts'], [[(float(one[0]), one[1]) for one in sample['filtered_resps']] for sample in samples]


class Reference:
    """What llama-server's logits give: one request for the token behind each prefix."""

    def __init__(self):
        self.asked = {}

    def post(self, path, **body):
        return requests.post(f'{PEER}{path}', json=body).json()

    def tokens(self, text):
        return self.post('/tokenize', content=text)['tokens']

    def next(self, prefix, token):
        """The token's log-probability behind these, and whether it is the likeliest."""
        for count in (1000, 1_000_000):  # the likeliest ones, all of them
            if (*prefix, count) not in self.asked:
                reply = self.post('/completion', prompt=prefix, n_predict=1, n_probs=count, temperature=0, cache_prompt=False)
                top = reply['completion_probabilities'][0]['top_logprobs']
                self.asked[(*prefix, count)] = {one['id']: one['logprob'] for one in top}
            found = self.asked[(*prefix, count)]
            if token in found:
                return found[token], found[token] == max(found.values())
        raise KeyError(token)

    def choice(self, question, choice):
        tokens, start = self.tokens(f'{question} {choice}'), len(self.tokens(question))
        found = [self.next(tokens[:n], tokens[n]) for n in range(start, len(tokens))]
        return sum(logprob for logprob, _ in found), all(greedy for _, greedy in found)


# Both compute with the same settings, and differ by 0.0005 at most. Cells of 32 bits without flash attention, another setting
# of llama-server, move some choices by 0.4.
NEAR = 0.02


@unittest.skipUnless(PEER, 'HEARTH_PEER_URL is not set')
class Likelihoods(unittest.TestCase):
    def test_choices_are_as_likely_as_llama_server_says(self):
        reference = Reference()
        expected = [[reference.choice(question, choice) for choice in choices] for question, choices in QUESTIONS]
        best = [max(range(len(one)), key=lambda n: one[n][0]) for one in expected]
        for more in ({}, {'batch_size': 4}, {'num_concurrent': 3}):
            with self.subTest(**more):
                figures, found = evaluate(model(**more))
                for (question, choices), one, other in zip(QUESTIONS, expected, found, strict=True):
                    for choice, (logprob, greedy), (is_logprob, is_greedy) in zip(choices, one, other, strict=True):
                        self.assertAlmostEqual(is_logprob, logprob, delta=NEAR, msg=f'{question} {choice}')
                        self.assertEqual(is_greedy, greedy, f'{question} {choice}')
                self.assertAlmostEqual(figures['acc,none'], best.count(0) / len(best))


if __name__ == '__main__':
    unittest.main()
