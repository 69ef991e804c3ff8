/* Helpers for tests of chat templates: templates of their own and those that come with llama.cpp's source. */
#ifndef TESTS_CHAT_SUPPORT_H
#define TESTS_CHAT_SUPPORT_H

#include "base/buf.h"
#include "base/memory.h"
#include "chat/chat.h"
#include "json_trees.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHATML                                                                                                         \
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}{%- endfor -%}"     \
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"

#define USER_SAYS(text)   "[{\"role\":\"user\",\"content\":\"" text "\"}]"
#define MORNING_2026_3_01 1772352000

static inline struct chat_template *opened(const char *source)
{
    hearth_error error = {0};
    struct chat_template_params params = {.source = source, .bos = "<s>", .eos = "</s>"};
    struct chat_template *template_ = chat_template_open(&params, &error);
    if (template_ == NULL) fail_msg("%s", error.message);
    return template_;
}

static inline struct chat_request asking(const char *messages)
{
    return (struct chat_request){
        .messages = tree_of(messages), .add_generation_prompt = true, .now = MORNING_2026_3_01};
}

static inline char *templates_path(const char *name)
{
    return mem_format("%s/source/models/templates/%s", getenv("HEARTH_LLAMA"), name);
}

static inline char *file_text(const char *name)
{
    char *path = templates_path(name), bytes[4096];
    struct buf text = {0};
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0;) buf_append(&text, bytes, n);
    fclose(file);
    free(path);
    return buf_take(&text);
}

static inline struct chat_template *opened_file(const char *name, const char *bos, bool adds_bos)
{
    hearth_error error = {0};
    char *source = file_text(name);
    struct chat_template_params params = {.source = source, .bos = bos, .eos = "</s>", .adds_bos = adds_bos};
    struct chat_template *template_ = chat_template_open(&params, &error);
    if (template_ == NULL) fail_msg("%s: %s", name, error.message);
    free(source);
    return template_;
}

#endif
