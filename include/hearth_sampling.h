/* The sampling parameters that are numbers, each once: its type, its name in requests and under models.*.sampling of
 * the configuration, its default, its range, the key of a model's GGUF file that advises a value (after
 * "general.sampling.";
 * "": none), and what it means. hearth_sampling, the fields of requests, the configuration's keys with docs/config.md,
 * and llama-server's "generation_settings" are made of this table. CONTRIBUTING.md says what a new row needs beside it.
 *
 * NUMBER rows are doubles, INTEGER rows int32_t; the order is that of "generation_settings". */
#ifndef HEARTH_SAMPLING_H
#define HEARTH_SAMPLING_H

/* clang-format off */
#define HEARTH_SAMPLING_TABLE(NUMBER, INTEGER) \
    NUMBER(temperature, "0.8", -100, 100, "temp", \
        "Randomness of a reply; 0 or less always takes the likeliest token. A request may set its own, here and below; " \
        "the others follow the model's file, where that says something.") \
    NUMBER(dynatemp_range, "0.0", 0, 100, "", \
        "The temperature varies by so much to both sides, with how sure the model is; 0: off.") \
    NUMBER(dynatemp_exponent, "1.0", 0, 100, "", \
        "How steeply it does.") \
    INTEGER(top_k, "40", -1, INT32_MAX, "top_k", \
        "Only so many of the likeliest tokens are drawn from; 0: off.") \
    NUMBER(top_p, "0.9", 0, 1, "top_p", \
        "Only the likeliest tokens that together reach this probability are drawn from; 1: off.") \
    NUMBER(min_p, "0.0", 0, 1, "min_p", \
        "Tokens less likely than this share of the likeliest are left out; 0: off.") \
    NUMBER(top_n_sigma, "-1.0", -1000, 1000, "", \
        "Tokens whose score lies more than so many standard deviations below the best are left out; -1: off.") \
    NUMBER(xtc_probability, "0.0", 0, 1, "xtc_probability", \
        "How often all likely tokens but the least likely of them are left out; 0: never.") \
    NUMBER(xtc_threshold, "0.1", 0, 1, "xtc_threshold", \
        "From which probability on a token counts as likely there; above 0.5: off.") \
    NUMBER(typical_p, "1.0", 0, 1, "", \
        "Only tokens about as surprising as is to be expected, which together reach this probability; 1: off.") \
    INTEGER(repeat_last_n, "64", -1, 1048576, "penalty_last_n", \
        "Tokens that the penalties look back at; 0: off, -1: the whole window.") \
    NUMBER(repeat_penalty, "1.0", 0.01, 100, "penalty_repeat", \
        "Divides the score of tokens that have occurred; 1: off.") \
    NUMBER(presence_penalty, "0.0", -2, 2, "", \
        "Taken off a token's score once it has occurred; 0: off.") \
    NUMBER(frequency_penalty, "0.0", -2, 2, "", \
        "Taken off a token's score for each time it has occurred; 0: off.") \
    NUMBER(dry_multiplier, "0.0", 0, 100, "", \
        "Strength of the penalty for tokens that go on with a repetition (DRY); 0: off.") \
    NUMBER(dry_base, "1.75", 1, 100, "", \
        "By which it grows with each token of the repetition.") \
    INTEGER(dry_allowed_length, "2", 0, INT32_MAX, "", \
        "Repetitions up to so many tokens are free.") \
    INTEGER(dry_penalty_last_n, "64", -1, 1048576, "", \
        "Tokens that DRY looks back at; 0: off, -1: the whole window.") \
    INTEGER(mirostat, "0", 0, 2, "mirostat", \
        "Mirostat keeps the surprise of a reply even, in place of the samplers that leave tokens out: 1 or 2; 0: " \
        "off.") \
    NUMBER(mirostat_tau, "5.0", 0, 1000, "mirostat_tau", \
        "The surprise that it aims at.") \
    NUMBER(mirostat_eta, "0.1", 0, 1000, "mirostat_eta", \
        "How quickly it follows.") \
    NUMBER(adaptive_target, "-1.0", -1000, 1, "", \
        "The probability that the sampler adaptive_p prefers tokens of; -1: none.") \
    NUMBER(adaptive_decay, "0.9", 0, 0.99, "", \
        "How long it remembers: about 1 / (1 - decay) tokens.") \
    INTEGER(min_keep, "0", 0, INT32_MAX, "", \
        "The samplers that leave tokens out keep so many at least.")
/* clang-format on */

#endif
