// SPDX-License-Identifier: BSD-2-Clause
// What GPU threads do: store tokens into doorbell pages as far as the page's credit allows, and poll
// flags. And the judge of the promise that a flag comes after its data: at every TLP that writes a flag
// the whole destination is compared with the source.
#pragma once
#include <unordered_map>
#include "tlp.h"

// Posting ------------------------------------------------------------------------------------------

struct Post { uint32_t offset; uint64_t token; uint64_t cycle; };   // cycle: last beat taken by the card, 0 = not yet.

struct Page {
    uint64_t credit;              // Bus address of the credit line; its first word counts tokens consumed.
    uint32_t quota;
    uint32_t posted = 0;
    std::vector<Post> posts;
};

struct Gpu {
    std::vector<Page> pages;
    uint64_t unposted = 0, next_cycle = 0;
    uint32_t interval = 12;       // Cycles between two stores: 13 million tokens a second.
    uint32_t doorbell = 0;        // Offset of the doorbell window in BAR0.
    size_t   turn = 0;

    bool is_credit(uint64_t address) const {
        for (auto& p : pages) if (p.credit == (address & ~15ull)) return true;
        return false;
    }
    template<class H> bool next(H& host, uint64_t now, Tlp& t) {
        if (now < next_cycle) return false;
        for (size_t i = 0; i < pages.size(); i++) {
            size_t n = turn + i < pages.size() ? turn + i : turn + i - pages.size();
            Page& p = pages[n];
            if (p.posted == p.posts.size()) continue;
            uint32_t consumed;
            memcpy(&consumed, host.at(p.credit), 4);
            if (p.posted - consumed >= p.quota) continue;
            const Post& post = p.posts[p.posted];
            t.dw[0] = TLP_MWR32 << 24 | 2; t.dw[1] = 0xff; t.dw[2] = host.options.bar0 + doorbell + post.offset;
            t.dw[3] = __builtin_bswap32((uint32_t)post.token); t.dw[4] = __builtin_bswap32((uint32_t)(post.token >> 32));
            t.count = 5; t.post = p.posted; t.page = n;
            p.posted++; unposted--;
            turn = n + 1 < pages.size() ? n + 1 : 0;
            next_cycle = now + interval;
            return true;
        }
        return false;
    }
};

// Flags --------------------------------------------------------------------------------------------

// When the flag reaches `value`, `length` bytes at `destination` equal those at `source` of card `from`. They are
// bytes of a message from byte `at` on: one whose buffers lie in pages has several parts, the one at 0 counts it.
struct Expectation { uint64_t value; const uint8_t *source, *destination; uint64_t length; int node, from; uint64_t message, at; };
struct FlagEvent { uint64_t cycle, value; uint32_t node, watch; };

struct Watch {
    uint32_t node;
    uint64_t address, value = 0, target = 0;
    const uint8_t* word;
    std::vector<Expectation> expectations;     // In order of their values.
    size_t   next = 0;
    bool     waiting = false;
};

struct Flags {
    Complaints* complaints = nullptr;
    std::vector<Watch> watches;
    std::unordered_map<uint64_t, uint32_t> index;      // (node, word) to watch.
    std::vector<uint64_t> low, high;                   // Per node: range that holds all of its flags.
    std::vector<FlagEvent> events;
    std::vector<std::string> details;                  // First flags before their data.
    uint64_t before_data = 0, pending = 0, bytes = 0, covered = 0;

    static uint64_t key(int node, uint64_t address) { return (uint64_t)node << 56 ^ address >> 3; }
    bool touches(int node, uint64_t address, uint64_t n) const { return address < high[node] && address + n > low[node]; }
    uint32_t add(int node, uint64_t address, const uint8_t* word) {
        uint32_t w = watches.size();
        Watch watch; watch.node = node; watch.address = address; watch.word = word;
        watches.push_back(watch);
        index[key(node, address)] = w;
        if (address < low[node]) low[node] = address;
        if (address + 8 > high[node]) high[node] = address + 8;
        return w;
    }
    void set_target(uint32_t w, uint64_t target) {
        Watch& watch = watches[w];
        watch.target = target;
        bool waiting = watch.value < target;
        pending += (int)waiting - (int)watch.waiting;
        watch.waiting = waiting;
    }
    void written(int node, uint64_t address, uint64_t n, uint64_t now) {
        for (uint64_t a = address & ~7ull; a < address + n; a += 8) {
            auto found = index.find(key(node, a));
            if (found != index.end()) raised(found->second, now);
        }
    }
    void raised(uint32_t w, uint64_t now) {
        Watch& watch = watches[w];
        uint64_t value;
        memcpy(&value, watch.word, 8);
        events.push_back({now, value, watch.node, w});
        if (value < watch.value)
            complaints->add("card %u: the flag at 0x%llx went back from %llu to %llu.", watch.node, (unsigned long long)watch.address,
                (unsigned long long)watch.value, (unsigned long long)value);
        watch.value = value;
        while (watch.next < watch.expectations.size() && watch.expectations[watch.next].value <= value) compare(watch, watch.expectations[watch.next++], value);
        if (watch.waiting && value >= watch.target) { watch.waiting = false; pending--; }
    }
    void compare(const Watch& watch, const Expectation& e, uint64_t value) {
        covered += e.at == 0;
        bytes += e.length;
        if (e.length == 0 || memcmp(e.source, e.destination, e.length) == 0) return;
        if (before_data++ >= 8) return;
        uint64_t at = 0;
        while (e.source[at] == e.destination[at]) at++;
        char text[256];
        snprintf(text, sizeof text, "cycle %llu: card %u raised the flag at 0x%llx to %llu, but message %llu from card %d differs from byte %llu of %llu on.",
            (unsigned long long)complaints->now, watch.node, (unsigned long long)watch.address, (unsigned long long)value,
            (unsigned long long)e.message, e.from, (unsigned long long)(e.at + at), (unsigned long long)(e.at + e.length));
        details.push_back(text);
    }
};
