/* The reranking routes: score documents against a query. Jina's and Cohere's form, whose answer has the fields of
 * both, and with `texts` that of text-embeddings-inference (TEI). HTTP thread only, except parsing and writing. */
#ifndef SERVE_EMBEDDINGS_RERANK_H
#define SERVE_EMBEDDINGS_RERANK_H

#include "serve/embeddings/embeddings.h"

void rerank_answer(struct call *call);

/* For the route and tests: a parsed request. Texts belong to `body`. */
struct rerank {
    json_t *body;
    hearth_embed_params params;
    hearth_input *documents;
    int32_t top_n;
    bool tei, return_documents;
    char id[25];
};

int rerank_read(struct rerank *rerank, const char *body, size_t len, hearth_error *error);
void rerank_release(struct rerank *rerank);
void rerank_put(const struct rerank *rerank, const hearth_embedded *result, struct buf *out);

#endif
