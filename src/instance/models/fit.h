/* Chooses the context window, slots and types of KV cells that a model can have on a machine. `hearth fit` reports the
 * choice; hearth_load() and hearth_add_model() take it where the configuration sets nothing. */
#ifndef INSTANCE_MODELS_FIT_H
#define INSTANCE_MODELS_FIT_H

#include "instance/models/loaded_model.h"

/* Free bytes. */
struct fit_machine {
    double memory; /* 0: not known */
    double gpu;    /* of all GPUs together */
    bool has_gpu;
    double read_rate; /* bytes that are read from memory a second; 0: not measured */
};

struct fit_machine fit_this_machine(void); /* after llm_init() */

/* A chat model, as its file's header describes it. */
struct fit_model {
    const struct config_model *config; /* keys that it sets are kept */
    const struct llm_model_info *info;
    double weights, projector, draft;   /* bytes */
    double compute_fixed, compute_cell; /* bytes of compute buffers: of any context, and more for each KV cell */
    int32_t n_cpu_moe;                  /* the experts of so many first layers stay in memory */
};

/* Fills in budgets, types, choices, recommendation and reason. A pure function. */
void fit_choose(const struct fit_model *model, const struct fit_machine *machine, hearth_fit *fit);

/* Reads the header of the model's file, and chooses. Blocks on the disk, for up to a second with a large vocabulary. */
int fit_read(const struct config_model *config, const struct fit_machine *machine, hearth_fit *fit,
             hearth_error *error);

/* The part of a machine that one of the models may have: the size of its files, and an equal share of what the files of
 * all models leave. With server.memory_budget_mb it may have that whole budget. */
struct fit_machine fit_share(const struct hearth_config *config, const struct fit_machine *machine, size_t which);

/* Gives all models of the configuration the values that fit, where they set none, and logs them. Several models share
 * the free memory. Models of less than 256 MiB, and those with layers on other machines, are left as they are; so are
 * those whose files cannot be read, which their load reports. Blocks on the disk. */
void fit_defaults(struct hearth_config *config);

/* The same for one model that comes to others while these run; the configuration has all of them, and this as
 * `which`. */
void fit_added(struct config_model *model, const struct hearth_config *config, size_t which);

#endif
