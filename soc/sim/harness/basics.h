// SPDX-License-Identifier: BSD-2-Clause
// Small things everybody needs: a seeded generator of our own (the standard library's distributions
// differ between systems), a ring buffer that does not allocate in steady state, CRC-32, complaints.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

// Random numbers: splitmix64 ---------------------------------------------------------------------

struct Random {
    uint64_t state = 0;
    uint64_t next() {
        uint64_t z = (state += 0x9e3779b97f4a7c15ull);
        z = (z ^ (z >> 30))*0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27))*0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }
    uint64_t below(uint64_t n) { return n ? (uint64_t)(((unsigned __int128)next()*n) >> 64) : 0; }
};

// A probability as a 64-bit threshold; 1 is always, 0 never.
struct Chance {
    uint64_t threshold = 0;
    bool     always    = false;
    void set(double p) {
        always    = p >= 1.0;
        threshold = p <= 0.0 ? 0 : always ? ~0ull : (uint64_t)(p*18446744073709551616.0);
    }
    bool draw(uint64_t value) const { return always || value < threshold; }
};

// Ring buffer that doubles when it is full ---------------------------------------------------------

template<class T> struct Ring {
    std::vector<T> slots = std::vector<T>(16);
    size_t head = 0, count = 0;
    bool empty() const { return count == 0; }
    size_t size() const { return count; }
    T& front() { return slots[head]; }
    T& push() {
        if (count == slots.size()) {
            std::vector<T> bigger(2*slots.size());
            for (size_t i = 0; i < count; i++) bigger[i] = slots[(head + i) & (slots.size() - 1)];
            slots.swap(bigger);
            head = 0;
        }
        return slots[(head + count++) & (slots.size() - 1)];
    }
    void pop() { head = (head + 1) & (slots.size() - 1); count--; }
};

// CRC-32 of Ethernet, eight bytes a step -----------------------------------------------------------

struct Crc32 {
    uint32_t table[8][256];
    Crc32() {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++) c = (c >> 1) ^ (0xedb88320u & -(c & 1));
            table[0][i] = c;
        }
        for (int t = 1; t < 8; t++)
            for (uint32_t i = 0; i < 256; i++) table[t][i] = (table[t-1][i] >> 8) ^ table[0][table[t-1][i] & 0xff];
    }
    uint32_t operator()(const uint8_t* p, size_t n) const {
        uint32_t c = ~0u;
        for (; n >= 8; n -= 8, p += 8) {
            uint32_t a, b;
            memcpy(&a, p, 4); memcpy(&b, p + 4, 4);
            a ^= c;
            c = table[7][a & 0xff] ^ table[6][(a >> 8) & 0xff] ^ table[5][(a >> 16) & 0xff] ^ table[4][a >> 24]
              ^ table[3][b & 0xff] ^ table[2][(b >> 8) & 0xff] ^ table[1][(b >> 16) & 0xff] ^ table[0][b >> 24];
        }
        for (; n; n--, p++) c = (c >> 8) ^ table[0][(c ^ *p) & 0xff];
        return ~c;
    }
};
static const Crc32 crc32_of;

// Complaints: sentences about what a card did wrong; any of them fails the run ---------------------

struct Complaints {
    std::vector<std::string> sentences;
    uint64_t count = 0;
    uint64_t now = 0;
    void add(const char* format, ...) __attribute__((format(printf, 2, 3))) {
        if (count++ >= 20) return;
        char text[400];
        int n = snprintf(text, sizeof text, "cycle %llu: ", (unsigned long long)now);
        va_list args;
        va_start(args, format);
        vsnprintf(text + n, sizeof text - n, format, args);
        va_end(args);
        sentences.push_back(text);
    }
};
