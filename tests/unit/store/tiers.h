/* Tests that run for every tier of saves: TIERS(f) expands to three cases of f. The state is a rig that the test itself
 * starts, so that it may change the parameters. */
#ifndef TESTS_STORE_TIERS_H
#define TESTS_STORE_TIERS_H

#include "fakes/cmocka_all.h"
#include "fakes/store_rig.h"

#include <stdlib.h>

static inline int rig_setup(void **state)
{
    enum store_tier tier = *(const enum store_tier *)*state;
    struct rig *rig = malloc(sizeof *rig);
    rig_init(rig, tier);
    *state = rig;
    return 0;
}

static inline int rig_teardown(void **state)
{
    rig_release(*state);
    free(*state);
    return 0;
}

static const enum store_tier tier_ids[STORE_TIERS] = {STORE_RAM, STORE_RAM_FILE, STORE_DISK};

#define TIER_TEST(f, tier)                                                                                             \
    {                                                                                                                  \
#f " (" #tier ")", f, rig_setup, rig_teardown, (void *)(uintptr_t)&tier_ids[tier]                              \
    }
#define FOLDER_TIERS(f) TIER_TEST(f, STORE_RAM_FILE), TIER_TEST(f, STORE_DISK)
#define TIERS(f)        TIER_TEST(f, STORE_RAM), FOLDER_TIERS(f)
#define ON_DISK(f)      TIER_TEST(f, STORE_DISK)

#endif
