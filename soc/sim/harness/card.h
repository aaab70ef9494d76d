// SPDX-License-Identifier: BSD-2-Clause
// One instance of the verilated card: its pins, a cycle in two halves, console and waveform. ports.h is
// written for each model from the ports that its Verilog really has.
#pragma once
#include <memory>
#include "Vcard.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_fst_c.h"
#endif
#include "host.h"
#include "fabric.h"
#include "ports.h"

struct Card {
    VerilatedContext context;
    std::unique_ptr<Vcard> model;
    Host        host;
    std::string console;
    Ring<uint8_t> typed;
    bool        shown = false;           // A TLP beat is on the pins.
    uint32_t    beat_dwords = 0;
    bool        stalled = false;
#if VM_TRACE
    std::unique_ptr<VerilatedFstC> trace;
#endif

    explicit Card(int threads = 1) {
        context.threads(threads);
        context.randReset(0);
#if VM_TRACE
        context.traceEverOn(true);
#endif
        model.reset(new Vcard(&context, "card"));
        model->sys_clk = 0; model->sys_rst = 1;
        model->serial_source_ready = 1; model->serial_sink_valid = 0;
        model->pcie_rx_valid = 0; model->pcie_tx_ready = 0;
        for (int p = 0; p < CARD_PLANES; p++) card_xgmii_in(*model, p, XGMII_IDLE_WORD, 0xff);
        model->eval();
    }
    ~Card() {
        Verilated::threadContextp(&context);     // The model leaves the thread's context, which may be another simulation's.
#if VM_TRACE
        if (trace) trace->close();
#endif
        model->final();
    }

    template<class T> static void put(T& pin, const uint32_t* words) {
        if constexpr (sizeof(T) == 8) memcpy(&pin, words, 8); else memcpy((void*)&pin, words, 4*CARD_PCIE_DWORDS);
    }
    template<class T> static void get(const T& pin, uint32_t* words) { memcpy(words, (const void*)&pin, 4*CARD_PCIE_DWORDS); }
    template<class T> static void enable(T& pin, uint64_t be) {
        if constexpr (sizeof(T) <= 4) pin = (T)be; else memcpy((void*)&pin, &be, 8);
    }
    static uint64_t enabled(uint64_t pin) { return pin; }

    void half(uint64_t time) {
        model->eval();
#if VM_TRACE
        if (trace) trace->dump(time);
#else
        (void)time;
#endif
    }
    // First half: show inputs, let them settle, take what the card gives.
    void low(Fabric& fabric, uint32_t node, uint64_t now) {
        auto& m = *model;
        stalled = host.stall.threshold && host.stall.draw(host.random.next());
        bool show = shown || (!stalled && host.offer(now));
        if (show && !shown) {
            uint32_t words[CARD_PCIE_DWORDS] = {};
            beat_dwords = std::min<uint32_t>(CARD_PCIE_DWORDS, host.out.count - host.out_at);
            memcpy(words, host.out.dw + host.out_at, 4*beat_dwords);
            put(m.pcie_rx_dat, words);
            enable(m.pcie_rx_be, beat_dwords == 16 ? ~0ull : (1ull << (4*beat_dwords)) - 1);
            m.pcie_rx_first = host.out_at == 0;
            m.pcie_rx_last  = host.out_at + beat_dwords == host.out.count;
        }
        m.pcie_rx_valid = shown = show;
        m.pcie_tx_ready = !stalled;
        m.serial_sink_valid = !typed.empty();
        if (!typed.empty()) m.serial_sink_data = typed.front();
        for (int p = 0; p < CARD_PLANES; p++) {
            uint64_t data; uint8_t control;
            fabric.word_in(node, p, data, control, now);
            card_xgmii_in(m, p, data, control);
        }
        m.sys_clk = 0;
        half(2*now);
        if (shown && m.pcie_rx_ready) { shown = false; host.taken(beat_dwords, now); }
        if (m.pcie_tx_valid && !stalled) {
            uint32_t words[CARD_PCIE_DWORDS];
            get(m.pcie_tx_dat, words);
            host.beat(words, (uint64_t)m.pcie_tx_be, m.pcie_tx_first, m.pcie_tx_last, CARD_PCIE_DWORDS, now);
        }
        if (m.serial_source_valid) console.push_back((char)m.serial_source_data);
        if (!typed.empty() && m.serial_sink_ready) typed.pop();
        for (int p = 0; p < CARD_PLANES; p++) {
            uint64_t data; uint8_t control;
            card_xgmii_out(m, p, data, control);
            fabric.word_out(node, p, data, control, now);
        }
    }
    void high(uint64_t now) { model->sys_clk = 1; half(2*now + 1); }
};
