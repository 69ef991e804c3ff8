/* Fuzzes grammars, and texts (after a zero byte of the input): the grammar is refused with a message of one line, or
 * the text is matched as far as it fits, within bounds of time and memory. */
#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds) abort();
}

static void read_text(struct grammar *grammar, const char *text, size_t len)
{
    struct grammar_state now = {0}, next = {0}, named = {0};
    bool good = true;
    grammar_start(grammar, &now);
    for (size_t i = 0; good && i < len; i++) {
        grammar_reset_budget(grammar);
        grammar_accept_token(grammar, &now, (unsigned char)text[i], &named);
        good = grammar_accept_byte(grammar, &now, (unsigned char)text[i], &next);
        require(!good || next.len > 0);
        require(!grammar_over_budget(grammar) || named.len == 0 || !good);
        if (good) grammar_copy(&now, &next);
    }
    require(!grammar_complete(&now) || now.missing == 0);
    grammar_release(&now);
    grammar_release(&next);
    grammar_release(&named);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hearth_error error = {0};
    char *rules = malloc(size + 1);
    memcpy(rules, data, size);
    rules[size] = '\0';
    size_t len = strlen(rules);
    struct grammar *grammar = grammar_open(rules, NULL, &error);
    if (grammar == NULL)
        require(error.code == HEARTH_INVALID && strcmp(error.param, "grammar") == 0);
    else if (len < size)
        read_text(grammar, rules + len + 1, size - len - 1);
    grammar_close(grammar);
    free(rules);
    return 0;
}
