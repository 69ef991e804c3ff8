/* Content blocks of Messages: see anthropic_blocks.h. */
#include "serve/anthropic/anthropic_blocks.h"

#include "base/json_text.h"
#include "serve/fields/convert.h"
#include "serve/fields/fields_readers.h"

#include <stdlib.h>
#include <string.h>

static int read_text(struct convert *convert, const struct anthropic_block *block)
{
    const json_t *text = convert_string(convert, block->json, block->at, "text");
    if (text == NULL) return HEARTH_INVALID;
    convert_add_text(convert, block->role, text);
    return HEARTH_OK;
}

/* The signature of a thinking block is not checked: only Anthropic's servers can. */
static int read_thinking(struct convert *convert, const struct anthropic_block *block)
{
    const json_t *text = convert_string(convert, block->json, block->at, "thinking");
    if (text == NULL) return HEARTH_INVALID;
    convert_add_reasoning(convert, text);
    return HEARTH_OK;
}

/* What the server has nothing to do with, and what has no text: encrypted thinking, tools that come or go. */
static int skip(struct convert *convert, const struct anthropic_block *block)
{
    return convert_leave_out(convert, block->at);
}

static const struct upload_form media[] = {{"image", "image_url", "source", {"data", "url"}},
                                           {"document", "file", "source", {"data", "url"}}};

static const struct upload_form *form_of(const json_t *block)
{
    return upload_form_of(media, sizeof media / sizeof *media, json_object_get(block, "type"));
}

/* What a document is called, and what its sender says about it. */
static void collect_headings(const json_t *document, json_t *texts)
{
    static const char *const members[] = {"title", "context"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        json_t *heading = json_object_get(document, members[i]);
        if (json_string_length(heading) > 0) json_array_append(texts, heading);
    }
}

/* Collects the part of an image or a document; of a document of text, or of blocks, these. One whose bytes only another
 * server keeps has nothing to be shown. */
static int collect_source(struct convert *convert, const struct anthropic_block *block, json_t *texts)
{
    const json_t *source = json_object_get(block->json, "source"), *type = json_object_get(source, "type");
    json_t *text = json_object_get(source, "data");
    bool is_document = convert_is(json_object_get(block->json, "type"), "document");
    if (is_document) collect_headings(block->json, texts);
    if (is_document && convert_is(type, "content"))
        return anthropic_collect_texts(convert, json_object_get(source, "content"),
                                       field_path_of("%.80s.source.content", block->at.v), texts);
    if (is_document && convert_is(type, "text") && json_is_string(text)) {
        json_array_append(texts, text);
        return HEARTH_OK;
    }
    if (!convert->asks && upload_is_elsewhere(form_of(block->json), block->json))
        return convert_leave_out(convert, block->at);
    json_array_append_new(texts, upload_read(convert->uploads, form_of(block->json), block->json, block->at.v));
    return HEARTH_OK;
}

/* Collects the text of a block that is neither text nor media: what a search found, what a program printed. */
static int collect_other(struct convert *convert, const struct anthropic_block *block, json_t *texts)
{
    const json_t *content = json_object_get(block->json, "content");
    json_t *own = json_array(), *text = readable_text(block->json);
    bool has_content = json_is_array(content) || json_text_is_object(content);
    int rc = HEARTH_OK;
    if (text != NULL) json_array_append_new(own, text);
    if (has_content)
        rc = anthropic_collect_texts(convert, content, field_path_of("%.80s.content", block->at.v), own);
    else if (text == NULL)
        rc = convert_unknown(convert, block->json, block->at);
    convert_join(texts, own);
    json_decref(own);
    return rc;
}

static int collect_block(struct convert *convert, const struct anthropic_block *block, json_t *texts)
{
    if (form_of(block->json) != NULL) return collect_source(convert, block, texts);
    if (!convert_is(json_object_get(block->json, "type"), "text")) return collect_other(convert, block, texts);
    const json_t *text = convert_string(convert, block->json, block->at, "text");
    if (text == NULL) return HEARTH_INVALID;
    json_array_append(texts, (json_t *)text);
    return HEARTH_OK;
}

int anthropic_collect_texts(struct convert *convert, const json_t *content, struct field_path at, json_t *texts)
{
    size_t i;
    json_t *part;
    int rc = HEARTH_OK;
    if (json_is_string(content)) json_array_append(texts, (json_t *)content);
    if (json_text_is_object(content))
        return collect_block(convert, &(struct anthropic_block){.json = content, .at = at}, texts);
    if (content != NULL && !json_is_null(content) && !json_is_string(content) && !json_is_array(content))
        return convert_fault(convert, at, "must be a string or a list of blocks");
    json_array_foreach(content, i, part)
    {
        struct anthropic_block block = {.json = part, .at = field_path_of("%.80s[%zu]", at.v, i)};
        if (rc == HEARTH_OK) rc = collect_block(convert, &block, texts);
    }
    return rc;
}

/* Media, and blocks with text of other names. */
static int read_others(struct convert *convert, const struct anthropic_block *block)
{
    json_t *texts = json_array(), *text;
    size_t i;
    int rc = collect_block(convert, block, texts);
    json_array_foreach(texts, i, text) convert_add_text(convert, block->role, text);
    json_decref(texts);
    return rc;
}

/* The input as the text of arguments: of a call that was broken off it may be a string that is no JSON. */
static json_t *arguments_of(const json_t *input)
{
    if (json_is_string(input)) return json_incref((json_t *)input);
    char *text = input == NULL || json_is_null(input) ? NULL : json_text_of(input);
    json_t *arguments = json_string(text == NULL ? "{}" : text);
    free(text);
    return arguments;
}

static int read_tool_use(struct convert *convert, const struct anthropic_block *block)
{
    const json_t *id = convert_string(convert, block->json, block->at, "id");
    const json_t *name = id == NULL ? NULL : convert_string(convert, block->json, block->at, "name");
    if (name == NULL) return HEARTH_INVALID;
    if (convert_lost_call(convert, id)) return convert_leave_out(convert, block->at);
    json_t *arguments = arguments_of(json_object_get(block->json, "input"));
    convert_add_call(convert, id, name, arguments);
    json_decref(arguments);
    return HEARTH_OK;
}

/* is_error is ignored: templates have nothing for it, and the text says that the tool failed. What the tool gave was
 * not asked by the user. */
static int read_tool_result(struct convert *convert, const struct anthropic_block *block)
{
    const bool asks = convert->asks;
    const json_t *id = convert_string(convert, block->json, block->at, "tool_use_id");
    if (id == NULL) return HEARTH_INVALID;
    if (convert_lost_call(convert, id)) return convert_leave_out(convert, block->at);
    json_t *texts = json_array();
    struct field_path at = field_path_of("%.80s.content", block->at.v);
    convert->asks = false;
    int rc = anthropic_collect_texts(convert, json_object_get(block->json, "content"), at, texts);
    convert->asks = asks;
    if (rc == HEARTH_OK) convert_add_result(convert, id, texts);
    json_decref(texts);
    return rc;
}

typedef int block_reader(struct convert *convert, const struct anthropic_block *block);

/* Calls of tools that Anthropic's servers ran (server_tool_use, web_search_tool_result, …) are calls like others. */
static const struct {
    const char *type; /* "*" stands for any beginning */
    block_reader *read;
} blocks[] = {{"text", read_text},
              {"thinking", read_thinking},
              {"redacted_thinking", skip},
              {"image", read_others},
              {"document", read_others},
              {"search_result", read_others},
              {"compaction", read_others},
              {"tool_reference", read_others},
              {"tool_addition", skip},
              {"tool_removal", skip},
              {"mcp_tool_listing", skip},
              {"fallback", skip},
              {"tool_result", read_tool_result},
              {"*_tool_result", read_tool_result},
              {"tool_use", read_tool_use},
              {"*_tool_use", read_tool_use}};

static bool matches(const char *pattern, const json_t *type)
{
    const char *text = json_string_value(type), *end = pattern + 1;
    size_t len = text == NULL ? 0 : strlen(text);
    if (pattern[0] != '*') return convert_is(type, pattern);
    return len > strlen(end) && strcmp(text + len - strlen(end), end) == 0;
}

/* Whether a member is there and a string. */
static bool has(const json_t *block, const char *name)
{
    return json_is_string(json_object_get(block, name));
}

/* NULL: the type is unknown. A block of a tool that Anthropic's servers ran is left out if it lacks what a call
 * needs. */
static block_reader *reader_of(const json_t *block)
{
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (!matches(blocks[i].type, json_object_get(block, "type"))) continue;
        bool is_others = blocks[i].type[0] == '*', is_result = blocks[i].read == read_tool_result;
        bool is_whole = is_result ? has(block, "tool_use_id") : has(block, "id") && has(block, "name");
        return is_others && !is_whole ? skip : blocks[i].read;
    }
    return NULL;
}

/* A block of another type is text if it has some under that name. */
static int read_unknown(struct convert *convert, const struct anthropic_block *block)
{
    const json_t *text = json_object_get(block->json, "text");
    if (field_string(json_object_get(block->json, "type")) == NULL || json_string_length(text) == 0)
        return convert_unknown(convert, block->json, block->at);
    convert_add_text(convert, block->role, text);
    return HEARTH_OK;
}

int anthropic_read_block(struct convert *convert, const struct anthropic_block *block)
{
    block_reader *read = reader_of(block->json);
    return (read != NULL ? read : read_unknown)(convert, block);
}

void anthropic_find_lost_calls(struct convert *convert, const json_t *content)
{
    size_t i;
    json_t *block;
    json_array_foreach(content, i, block)
    {
        block_reader *read = reader_of(block);
        if (read != NULL && read != skip) continue;
        convert_lose_call(convert, json_object_get(block, "id"));
        convert_lose_call(convert, json_object_get(block, "tool_use_id"));
    }
}
