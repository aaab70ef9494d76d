/* SPDX-License-Identifier: BSD-2-Clause */
/* Recovery firmware: takes events from the recovery port, lets the policy decide, sends commands.
 *
 * One translation unit with the generated policy, so that the compiler sees all of it. No
 * interrupts, no allocation, no recursion. If the contract or the card does not fit, or the stack
 * ran over, it says so on the console and stops; the watchdog then shows a dead firmware.
 */

#include <stdint.h>

#define CSR_ACCESSORS_DEFINED
static inline void csr_write_simple(unsigned long value, unsigned long address) { *(volatile uint32_t *)address = value; }
static inline unsigned long csr_read_simple(unsigned long address) { return *(volatile uint32_t *)address; }
#include <generated/csr.h>
#include <generated/mem.h>

#include "contract.h"

/* Recovery port ----------------------------------------------------------------------------------- */

#define PORT ((volatile uint32_t *)RECOVERY_BASE)

static inline uint32_t event_word(uint32_t i) { return PORT[WINDOW_EVENT + i]; }
static inline void event_pop(void) { PORT[WINDOW_POP] = 0; }
static inline void command_begin(void) { while (PORT[WINDOW_STATUS] & STATUS_BUSY); }
static inline void command_word(uint32_t i, uint32_t value) { PORT[WINDOW_COMMAND + i] = value; }
static inline void command_go(void) { PORT[WINDOW_GO] = 0; }

#include "helpers.h"
#include "policy.c"

/* Console: a character that the UART does not take in time is dropped. ------------------------------ */

#define CONSOLE_PATIENCE 100000

static void print(const char *text)
{
#ifdef CSR_UART_BASE
    for (; *text; text++) {
        for (uint32_t i = 0; i < CONSOLE_PATIENCE && uart_txfull_read(); i++);
        uart_rxtx_write(*text);
    }
#else
    (void)text;
#endif
}

static void stop(const char *reason)
{
    print("openrdma recovery firmware stopped: ");
    print(reason);
    print("\n");
    for (;;);
}

/* Main loop --------------------------------------------------------------------------------------- */

#define STACK_MARK 0x5afe57acu
extern uint32_t _stack_limit[];

int main(void)
{
    volatile uint32_t *mark = _stack_limit;
    *mark = STACK_MARK;
    print("openrdma recovery firmware, policy " POLICY_NAME ", contract v" CONTRACT_VERSION_TEXT "\n");
    if (PORT[WINDOW_VERSION] != CONTRACT_VERSION)
        stop("the card speaks another version of the contract");
    if (PORT[WINDOW_QUEUE_PAIRS] > QUEUE_PAIRS)
        stop("the card has more queue pairs than the image");
    for (;;) {
        PORT[WINDOW_HEARTBEAT] = 1;
        if (PORT[WINDOW_STATUS] & STATUS_EVENTS_MASK)
            policy_event();
        else if (*mark != STACK_MARK)
            stop("the stack ran over");
    }
}
