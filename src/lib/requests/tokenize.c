/* hearth_tokenize(): tokens of a text, without a request. Any thread. */
#include "base/error.h"
#include "lib/models/loaded_model.h"
#include "lib/models/model_manager.h"
#include "lib/models/model_names.h"

int32_t hearth_tokenize(hearth *instance, const char *model, const char *text, size_t len, bool add_special,
                        bool parse_special, int32_t **tokens, hearth_error *error)
{
    hearth_error own = {0};
    if (error == NULL) error = &own;
    struct model_entry *entry = instance_find_model(instance, model, error);
    if (entry == NULL) return (int32_t)error->code;
    struct model *found = brief_lease_take(entry);
    if (found == NULL) {
        hearth_load_model(instance, model, NULL);
        return error_set(error, HEARTH_UNAVAILABLE, "loading model '%s': try again in a moment", entry->config->name);
    }
    struct tokens list = {0};
    int rc = llm_check_text(found->weights, text, len, error);
    if (rc == HEARTH_OK) llm_tokenize(found->weights, text, len, add_special, parse_special, &list);
    brief_lease_end(entry);
    *tokens = list.v;
    return rc == HEARTH_OK ? (int32_t)list.len : rc;
}
