/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations of the policy language that C has no operator for, and the commands of a policy.
 * The including file declares command_begin(), command_word() and command_go().
 */

static uint32_t command_life; /* Life of the event at hand: commands are meant for no other one. */

static inline uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint32_t shift_left(uint32_t a, uint32_t n) { return n < 32 ? a << n : 0; }
static inline uint32_t shift_right(uint32_t a, uint32_t n) { return n < 32 ? a >> n : 0; }

static inline void command_resend(uint32_t qp, uint32_t base, uint32_t mask_low, uint32_t mask_high, uint32_t lost)
{
    command_begin();
    command_word(0, COMMAND_RESEND | lost << 8 | qp << 16);
    command_word(1, base | command_life << 24);
    command_word(2, mask_low);
    command_word(3, mask_high);
    command_go();
}

static inline void command_probe(uint32_t qp)
{
    command_begin();
    command_word(0, COMMAND_PROBE | qp << 16);
    command_word(1, command_life << 24);
    command_go();
}

static inline void command_probe_path(uint32_t qp, uint32_t base)
{
    command_begin();
    command_word(0, COMMAND_PROBE | qp << 16);
    command_word(1, base | command_life << 24);
    command_go();
}

static inline void command_set_path(uint32_t qp, uint32_t base, uint32_t state)
{
    command_begin();
    command_word(0, COMMAND_PATH | state << 8 | qp << 16);
    command_word(1, base | command_life << 24);
    command_go();
}

static inline void command_timer(uint32_t qp, uint32_t ticks)
{
    command_begin();
    command_word(0, COMMAND_TIMER | qp << 16);
    command_word(1, command_life << 24);
    command_word(2, ticks);
    command_go();
}

static inline void command_guard(uint32_t qp, uint32_t ticks, uint32_t packets)
{
    command_begin();
    command_word(0, COMMAND_GUARD | qp << 16);
    command_word(1, command_life << 24);
    command_word(2, ticks);
    command_word(3, packets);
    command_go();
}

static inline void command_window(uint32_t qp, uint32_t units, uint32_t ticks)
{
    command_begin();
    command_word(0, COMMAND_WINDOW | qp << 16);
    command_word(1, command_life << 24);
    command_word(2, units);
    command_word(3, ticks);
    command_go();
}

static inline void command_fail(uint32_t qp, uint32_t reason)
{
    command_begin();
    command_word(0, COMMAND_ERROR | reason << 8 | qp << 16);
    command_word(1, command_life << 24);
    command_go();
}
