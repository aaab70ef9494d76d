# SPDX-License-Identifier: BSD-2-Clause
# Entry: stack, initialised data, zeroed data, main. A trap stops the core; the watchdog shows it.

    .section .text.start
    .global _start
_start:
    la   sp, _stack_top
    la   a0, trap
    csrw mtvec, a0
    la   a0, _data
    la   a1, _edata
    la   a2, _data_load
1:  bgeu a0, a1, 2f
    lw   a3, 0(a2)
    sw   a3, 0(a0)
    addi a0, a0, 4
    addi a2, a2, 4
    j    1b
2:  la   a0, _bss
    la   a1, _ebss
3:  bgeu a0, a1, 4f
    sw   zero, 0(a0)
    addi a0, a0, 4
    j    3b
4:  call main
trap:
    j    trap
