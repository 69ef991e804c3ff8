/* What of a model fits this machine, for `hearth fit`: finds the model and asks lib/models/fit.h. No instance, no
 * state; any thread. */
#include "lib/models/fit.h"

#include "base/error.h"

int hearth_fit_model(const hearth_config *config, const char *name, hearth_fit *fit, hearth_error *error)
{
    hearth_error own;
    if (error == NULL) error = &own;
    const struct config_model *model = config_find_model(config, name);
    if (model == NULL || model->path == NULL)
        return error_at(error, HEARTH_NOT_FOUND, "model", "model '%s' is not in the configuration, or has no path",
                        name == NULL ? "" : name);
    llm_init();
    struct fit_machine machine = fit_this_machine();
    return fit_read(model, &machine, fit, error);
}
