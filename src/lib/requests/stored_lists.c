/* The token lists that are stored under a request's identity, for stored_replies.h. */
#include "lib/requests/request.h"

static struct store_query query_of(const hearth_request *request, const int32_t *tokens, int32_t n)
{
    return (struct store_query){.user = engine_store_user(request->model->engine),
                                .identity = &request->job.identity,
                                .tokens = tokens,
                                .n = n};
}

static int32_t common(const void *ud, const int32_t *tokens, int32_t n)
{
    const hearth_request *request = ud;
    const struct store_query query = query_of(request, tokens, n);
    return store_common(request->model->store, &query);
}

static size_t ways_on(const void *ud, const int32_t *tokens, int32_t n, struct tokens *ways, size_t max)
{
    const hearth_request *request = ud;
    const struct store_query query = query_of(request, tokens, n);
    return store_ways_on(request->model->store, &query, ways, max);
}

struct stored_lists request_stored_lists(const hearth_request *request)
{
    const struct model *model = request->model;
    if (!request->job.cache_prompt || engine_store_user(model->engine) == NULL)
        return (struct stored_lists){.common = NULL};
    store_wait_scan(model->store, clock_now(request->clock) + model->resume_wait_ns);
    return (struct stored_lists){common, ways_on, request};
}
