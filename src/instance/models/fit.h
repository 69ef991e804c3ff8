/* Chooses the context window, slots and types of KV cells that a model can have on a machine. `hearth fit` reports the
 * choice; hearth_load() and hearth_add_model() take it where the configuration sets nothing. fit.c chooses,
 * fit_places.c counts what goes where, fit_read.c asks the machine and the file. */
#ifndef INSTANCE_MODELS_FIT_H
#define INSTANCE_MODELS_FIT_H

#include "instance/models/loaded_model.h"

#define FIT_PLACES (LLM_DEVICES + 1) /* memory first, then the devices */
#define FIT_LAYERS 512               /* of a model: llama.cpp loads no more */

/* Smaller models are for tests, demonstrations and drafts: they have the same defaults everywhere. */
#define FIT_SMALL (256.0 * 1024 * 1024)

/* Free bytes. */
struct fit_machine {
    double memory; /* 0: not known */
    struct llm_device devices[LLM_DEVICES];
    size_t n_devices;
    bool planned;              /* llama.cpp can plan on these devices: all of them are there */
    double beyond[FIT_PLACES]; /* bytes that plans took beyond what was counted */
    double read_rate;          /* bytes that are read from memory a second; 0: not measured */
};

/* A chat model, as its file's header describes it. */
struct fit_model {
    const struct config_model *config; /* keys that it sets are kept */
    const struct llm_model_info *info;
    double weights, projector, draft; /* bytes */
    struct fit_compute {
        double fixed, cell; /* bytes of compute buffers: of any context, and more for each KV cell */
    } compute[FIT_PLACES];
    const double *placed; /* with override_tensors: bytes of the weights in each place; NULL: layers go as a whole */
};

/* ---- What goes where: fit_places.c ---- */

/* Layers and the output on devices, and experts in memory. */
struct fit_places {
    int8_t device[FIT_LAYERS + 1]; /* of each layer, then of the output: llm_assign_layers() */
    int32_t n_cpu_moe;             /* the experts of so many first layers stay in memory; INT32_MAX: all do */
};

/* As the configuration has it. */
void fit_places_of(const struct fit_model *model, const struct fit_machine *machine, struct fit_places *places);

/* The bytes of a choice: fills in cells_bytes and those behind it. `cells` are bytes by layer. */
void fit_count(const struct fit_model *model, const struct fit_machine *machine, const struct fit_places *places,
               const double *cells, hearth_fit_choice *choice);

/* Bytes in a place of what is opened beside the model: the projector and a draft model, on this machine's own devices,
 * or else in memory. */
double fit_beside(const struct fit_model *model, const struct fit_machine *machine, size_t place);

/* Divides the last n_gpu_layers of all blocks and the output among the devices, each taking as many as its budget has
 * room for, the first one first. False: not all of them find room. */
bool fit_divide(const struct fit_model *model, const struct fit_machine *machine, const hearth_fit *fit,
                int32_t n_gpu_layers, const double *cells, const hearth_fit_choice *choice, struct fit_places *places);

/* Bytes of the weights that stay in memory. */
double fit_weights_in_memory(const struct fit_model *model, const struct fit_places *places);

/* Weights in memory that a token reads: all of them, but for experts that it does not pass through. */
double fit_read_bytes(const struct fit_model *model, const struct fit_places *places);

/* ---- The choice: fit.c ---- */

/* Fills in budgets, types, choices, recommendation and reason. A pure function. */
void fit_choose(const struct fit_model *model, const struct fit_machine *machine, hearth_fit *fit);

/* ---- Files and the machine: fit_read.c ---- */

/* After llm_init(). Fails where a device that the model names, or an RPC server, is not there. */
int fit_machine_of(const struct config_model *config, struct fit_machine *machine, hearth_error *error);

/* Gives it the memory of another machine. With more devices than there are, none of them is one of these. */
void fit_imagine(struct fit_machine *machine, const hearth_fit_machine *other, const struct config_model *config);

/* Reads the header of the model's file, and chooses. Blocks on the disk, for up to a second with a large vocabulary. */
int fit_read(const struct config_model *config, const struct fit_machine *machine, hearth_fit *fit,
             hearth_error *error);

/* The part of a machine that one of the models may have: the size of its files, and an equal share of what the files of
 * all models leave. With server.memory_budget_mb it may have that whole budget. */
struct fit_machine fit_share(const struct hearth_config *config, const struct fit_machine *machine, size_t which);

/* Gives all models of the configuration the values that fit, where they set none, and logs them. Several models share
 * the free memory. Models of less than 256 MiB and those on RPC servers are left as they are. So are those whose files
 * cannot be read, or whose devices are not there: their load reports it. Blocks on the disk. */
void fit_defaults(struct hearth_config *config);

/* The same for one model that comes to others while these run; the configuration has all of them, and this as
 * `which`. */
void fit_added(struct config_model *model, const struct hearth_config *config, size_t which);

#endif
