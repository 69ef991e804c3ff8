/* The text of PDF files, by poppler's pdftotext. */
#include "media/child.h"

static void append(void *ud, const char *bytes, size_t n)
{
    buf_append(ud, bytes, n);
}

int media_document_text(const struct media_bytes *bytes, const struct media_document_limits *limits,
                        const struct media_stop *stop, struct buf *text, hearth_error *error)
{
    static const char *const args[] = {"-q", "-enc", "UTF-8", "-nopgbrk", MEDIA_CHILD_INPUT, "-", NULL};
    const struct media_program program = {.name = "pdftotext",
                                          .package = "poppler-utils",
                                          .args = args,
                                          .seconds = 20,
                                          .most_memory = 1U << 30,
                                          .most_output = limits->most_bytes,
                                          .output_key = "models.*.max_prompt_bytes",
                                          .unconfined = limits->unconfined,
                                          .stop = stop};
    return media_child_run(&program, bytes, &(struct media_sink){append, text}, error);
}
