/* Helpers for tests of the demo model's tools: a folder for files, a vocabulary made from a small sample, a tiny model.
 */
#ifndef TEST_DEMO_MODEL_SUPPORT_H
#define TEST_DEMO_MODEL_SUPPORT_H

#include "base/memory.h"
#include "corpus/corpus.h"
#include "export.h"
#include "random.h"
#include "tokenizer.h"
#include "trainer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *folder, *vocabulary_path;

static inline char *in_folder(const char *name)
{
    return mem_format("%s/%s", folder, name);
}

static inline int open_folder(void **state)
{
    (void)state;
    const char *parent = getenv("TMPDIR");
    folder = mem_format("%s/hearth-demo-model-XXXXXX", parent != NULL ? parent : "/tmp");
    if (mkdtemp(folder) == NULL) return -1;
    vocabulary_path = in_folder("vocabulary.gguf");
    return 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    DIR *dir = opendir(folder);
    if (dir == NULL) return -1;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    int result = rmdir(folder);
    free(folder);
    free(vocabulary_path);
    return result;
}

/* Heads of 64 as the real one has; Q8_0 needs rows of whole blocks of 32. */
#define TINY_SHAPE                                                                                                     \
    {                                                                                                                  \
        .vocabulary = 400, .dim = 64, .layers = 2, .heads = 1, .ff = 96, .context = 512, .rope_base = 100000.0f,       \
        .epsilon = 1e-5f                                                                                               \
    }

static const struct shape tiny = TINY_SHAPE;

/* Writes vocabulary_path: `shape`, and a vocabulary of its size from a few hundred conversations. */
static inline void write_vocabulary(const struct shape *shape)
{
    struct sample *sample = sample_open();
    struct vocabulary vocabulary;
    hearth_error error = {0};
    for (uint64_t i = 0; i < 300; i++) {
        struct conversation conversation = {0};
        corpus_make(&conversation, 5, i, 500);
        for (size_t k = 0; k < conversation.n_messages; k++)
            sample_add(sample, conversation.messages[k].content, strlen(conversation.messages[k].content));
        conversation_release(&conversation);
    }
    vocabulary_make(&vocabulary, sample, shape->vocabulary, 5);
    assert_int_equal(vocabulary.n_tokens, shape->vocabulary);
    assert_int_equal(export_vocabulary(vocabulary_path, &vocabulary, shape, &error), 0);
    vocabulary_release(&vocabulary);
    sample_close(sample);
}

static inline struct tokenizer open_tokenizer(void)
{
    struct tokenizer tokenizer;
    hearth_error error = {0};
    if (tokenizer_open(&tokenizer, vocabulary_path, &error) != 0) fail_msg("%s", error.message);
    return tokenizer;
}

#endif
