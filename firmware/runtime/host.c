/* SPDX-License-Identifier: BSD-2-Clause */
/* The policy as a library of the host: same C, events and commands in arrays. For tests. */

#include <stdint.h>
#include <string.h>

#include "contract.h"

static uint32_t event_words[EVENT_WORDS], command_words[COMMAND_WORDS];
static uint32_t *issued, issued_count, issued_room, popped;

static inline uint32_t event_word(uint32_t i) { return event_words[i]; }
static inline void event_pop(void) { popped++; }
static inline void command_begin(void) { }
static inline void command_word(uint32_t i, uint32_t value) { command_words[i] = value; }

static inline void command_go(void)
{
    if (issued_count < issued_room)
        memcpy(issued + COMMAND_WORDS*issued_count, command_words, sizeof(command_words));
    issued_count++;
    memset(command_words, 0, sizeof(command_words));
}

#include "helpers.h"
#include "policy.c"

static void begin(uint32_t *commands, uint32_t room)
{
    issued = commands;
    issued_room = room;
    issued_count = 0;
}

/* Boot: all state 0. */
void host_start(void)
{
    memset(policy_state, 0, sizeof(policy_state));
    memset(policy_life, 0, sizeof(policy_life));
    memset(command_words, 0, sizeof(command_words));
}

/* One event; gives the number of commands, or 2^32 - 1 if it was not popped exactly once. */
uint32_t host_handle(const uint32_t *words, uint32_t *commands, uint32_t room)
{
    memcpy(event_words, words, sizeof(event_words));
    begin(commands, room);
    popped = 0;
    policy_event();
    return popped == 1 ? issued_count : UINT32_MAX;
}
