/* POST /cache/resident: what reaches the library, and the answers. */
#include "unit/serve/harness.h"

#include <stdio.h>

#define HASH "0123456789abcdef"

static void orders_reach_the_library(void **state)
{
    static const struct {
        const char *word;
        hearth_order order;
    } rows[] = {{"keep", HEARTH_ORDER_KEEP}, {"release", HEARTH_ORDER_RELEASE}, {"evict", HEARTH_ORDER_EVICT}};
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char body[128], expected[64];
        snprintf(body, sizeof body, "{\"seq_id\":3,\"hash\":\"" HASH "\",\"order\":\"%s\"}", rows[i].word);
        snprintf(expected, sizeof expected, "%d 3 " HASH, (int)rows[i].order);
        struct response response = ask(&client, "POST", "/cache/resident", body);
        assert_int_equal(response.status, 200);
        assert_string_equal(response.body.v, "{\"success\":true}");
        assert_string_equal(fake_wait_order(), expected);
        response_release(&response);
    }
    client_close(&client);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *body;
        int status;
        const char *says;
    } rows[] = {
        {"{\"hash\":\"" HASH "\",\"order\":\"keep\"}", 400, "\"param\":\"seq_id\""},
        {"{\"seq_id\":-1,\"hash\":\"" HASH "\",\"order\":\"keep\"}", 400, "\"param\":\"seq_id\""},
        {"{\"seq_id\":3,\"order\":\"keep\"}", 400, "\"param\":\"hash\""},
        {"{\"seq_id\":3,\"hash\":7,\"order\":\"keep\"}", 400, "\"param\":\"hash\""},
        {"{\"seq_id\":3,\"hash\":\"" HASH "\"}", 400, "\"param\":\"order\""},
        {"{\"seq_id\":3,\"hash\":\"" HASH "\",\"order\":\"pin\"}", 400, "keep or release or evict"},
        {"{\"model\":\"nobody\",\"seq_id\":3,\"hash\":\"" HASH "\",\"order\":\"keep\"}", 404, "model_not_found"},
        {"{\"seq_id\":3,\"hash\":\"fedcba9876543210\",\"order\":\"evict\"}", 404, "\"code\":\"not_found\""},
        {"{\"seq_id\":4,\"hash\":\"" HASH "\",\"order\":\"keep\"}", 409, "\"code\":\"in_use\""},
        {"{\"seq_id\":5,\"hash\":\"" HASH "\",\"order\":\"evict\"}", 503, "cannot be stored"},
        {"[]", 400, "\"error\""},
    };
    struct client client = harness_start(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response response = ask(&client, "POST", "/cache/resident", rows[i].body);
        if (response.status != rows[i].status) fail_msg("%d for %s", response.status, rows[i].body);
        assert_contains(response.body.v, rows[i].says);
        response_release(&response);
    }
    client_close(&client);
}

/* An order is carried out even so, and its end meets nobody. */
static void a_client_may_leave_before_the_end(void **state)
{
    struct client client = harness_start(*state), other = client_open(((struct harness *)*state)->port, 0);
    fake_hold_orders();
    client_send(&client, "POST", "/cache/resident", "", "{\"seq_id\":3,\"hash\":\"" HASH "\",\"order\":\"keep\"}");
    fake_wait_order();
    client_close(&client);
    for (bool gone = false; !gone;) {
        struct response response = ask(&other, "GET", "/metrics", NULL);
        gone = strstr(response.body.v, "route=\"/cache/resident\",status=\"499\"") != NULL;
        response_release(&response);
    }
    fake_end_order();
    struct response response = ask(&other, "GET", "/health", NULL);
    assert_int_equal(response.status, 200);
    response_release(&response);
    client_close(&other);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(orders_reach_the_library),
        ROW(what_is_wrong_is_named),
        ROW(a_client_may_leave_before_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
