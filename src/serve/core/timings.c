/* llama-server's "timings": see timings.h. */
#include "serve/core/timings.h"

static double per_second(int32_t n, double ms)
{
    return ms > 0 ? n * 1000.0 / ms : 0;
}

static double per_token(int32_t n, double ms)
{
    return n > 0 ? ms / n : 0;
}

/* The first token comes with the prompt's last decode call: predicted_ms is the time of those after it. */
void timings_put(struct buf *out, const hearth_result *r)
{
    int32_t timed = r->predicted_n - 1;
    buf_printf(out,
               ",\"timings\":{\"cache_n\":%d,\"prompt_n\":%d,\"prompt_ms\":%.3f,\"prompt_per_token_ms\":%.3f,"
               "\"prompt_per_second\":%.3f,",
               r->cache_n, r->prompt_n, r->prompt_ms, per_token(r->prompt_n, r->prompt_ms),
               per_second(r->prompt_n, r->prompt_ms));
    buf_printf(out,
               "\"predicted_n\":%d,\"predicted_ms\":%.3f,\"predicted_per_token_ms\":%.3f,"
               "\"predicted_per_second\":%.3f,\"queue_ms\":%.3f,\"restore_ms\":%.3f",
               r->predicted_n, r->predicted_ms, per_token(timed, r->predicted_ms), per_second(timed, r->predicted_ms),
               r->queue_ms, r->restore_ms);
    if (r->draft_n > 0) buf_printf(out, ",\"draft_n\":%d,\"draft_n_accepted\":%d", r->draft_n, r->draft_accepted_n);
    if (r->too_short_n > 0)
        buf_printf(out, ",\"not_reused\":{\"tokens\":%d,\"reason\":\"cache_min_tokens\"}", r->too_short_n);
    buf_puts(out, "}");
}

void timings_put_progress(struct buf *out, const hearth_result *r)
{
    buf_printf(out, ",\"prompt_progress\":{\"total\":%d,\"cache\":%d,\"processed\":%d,\"time_ms\":%.0f}", r->n_prompt,
               r->cache_n, r->cache_n + r->prompt_n, r->prompt_ms);
}
