// SPDX-License-Identifier: BSD-2-Clause
// One host: memory behind the root port, a completer that is slow, splits and reorders on request, and a
// judge of every TLP that the card sends. It knows nothing of the protocol: bytes, reads and writes.
#pragma once
#include <sys/mman.h>
#include "gpu.h"
#include "tlp.h"

struct HostOptions {
    uint64_t memory_base, memory_size, bar0;
    uint32_t read_latency, read_jitter;   // Cycles from the request's last beat to the first completion.
    uint32_t completion_bytes;            // Completions end at multiples of this: 64, 128 or 256.
    uint32_t max_payload, max_request;
    uint32_t reorder;                     // Completions of different tags overtake each other.
    double   stall;                       // Probability per cycle that the link takes or gives nothing.
};

// TLPs and bytes of data by kind.
enum Traffic { T_DOORBELL, T_CREDIT, T_FLAG, T_PAYLOAD, T_READ, T_COMPLETION, T_MMIO, T_KINDS };
struct TrafficCount { uint64_t tlps, bytes; };

struct PendingRead {
    uint64_t address, ready;
    uint32_t tag, requester, dwords, done, first_be, last_be, status;
};

struct Host {
    HostOptions  options{};
    int          node = 0;
    Complaints*  complaints = nullptr;
    Flags*       flags = nullptr;
    Random       random;
    Chance       stall;
    uint8_t*     memory = nullptr;
    Gpu          gpu;
    Ring<Tlp>    requests;                // From the driver.
    std::vector<PendingRead> reads;       // In the order they were asked.
    TrafficCount traffic[T_KINDS] = {};
    bool         tag_used[256] = {};
    int          requester = -1;          // Learned from the first request.
    uint64_t     fail_low = 1, fail_high = 0;
    uint32_t     fail_status = CPL_UR;
    // Link to the card.
    Tlp          out;                     // TLP on its way to the card.
    uint32_t     out_at = 0, in_count = 0;
    bool         sending = false, turn = false, in_open = false;
    uint32_t     in[TLP_DWORDS];
    // Answer to the driver's read.
    uint32_t     answer = 0, answer_status = 0, answer_tag = 0;
    bool         answered = false;

    void open(const HostOptions& o, int n, uint64_t seed, Complaints* c, Flags* f) {
        options = o; node = n; complaints = c; flags = f; random.state = seed; stall.set(o.stall);
        memory = (uint8_t*)mmap(nullptr, o.memory_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) memory = nullptr;
        reads.reserve(256);
    }
    void close() { if (memory) munmap(memory, options.memory_size); memory = nullptr; }
    bool inside(uint64_t address, uint64_t bytes) const {
        return address >= options.memory_base && bytes <= options.memory_size && address - options.memory_base <= options.memory_size - bytes;
    }
    uint8_t* at(uint64_t address) { return memory + (address - options.memory_base); }
    void count(Traffic kind, uint32_t bytes) { traffic[kind].tlps++; traffic[kind].bytes += bytes; }
    void complain(const char* what, const Request& r) {
        complaints->add("card %d: %s (%s of %u dwords at 0x%llx, byte enables %x and %x, tag %u).", node, what, r.write() ? "write" : "read",
            r.dwords, (unsigned long long)r.address, r.first_be, r.last_be, r.tag);
    }

    // Towards the card -----------------------------------------------------------------------------

    bool next_completion(uint64_t now) {
        if (reads.empty()) return false;
        size_t pick = 0;
        if (options.reorder) {
            uint32_t ready = 0;
            for (auto& r : reads) ready += r.ready <= now;
            if (!ready) return false;
            uint32_t wanted = random.below(ready);
            for (pick = 0; ; pick++) if (reads[pick].ready <= now && wanted-- == 0) break;
        } else if (reads[0].ready > now) return false;
        PendingRead& r = reads[pick];
        uint32_t first = r.done == 0 ? leading_void(r.first_be) : 0;
        uint64_t address = r.address + 4*r.done;
        if (r.status != CPL_SC) {
            out.dw[0] = TLP_CPL << 24;
            out.dw[1] = r.status << 13 | 4;
            out.dw[2] = r.requester << 16 | r.tag << 8 | ((address + first) & 0x7f);
            out.count = 3;
            r.done = r.dwords;
        } else {
            uint64_t bytes  = options.completion_bytes;
            uint64_t limit  = (bytes - (address & (bytes - 1)))/4;
            uint32_t dwords = r.dwords - r.done < limit ? r.dwords - r.done : (uint32_t)limit;
            uint32_t left   = 4*(r.dwords - r.done) - first - trailing_void(r.dwords == 1 ? r.first_be : r.last_be);
            out.dw[0] = TLP_CPLD << 24 | dwords;
            out.dw[1] = CPL_SC << 13 | (left & 0xfff);
            out.dw[2] = r.requester << 16 | r.tag << 8 | ((address + first) & 0x7f);
            const uint8_t* data = at(address);
            for (uint32_t i = 0; i < dwords; i++) { uint32_t v; memcpy(&v, data + 4*i, 4); out.dw[3 + i] = __builtin_bswap32(v); }
            out.count = 3 + dwords;
            count(T_COMPLETION, 4*dwords);
            r.done += dwords;
        }
        if (r.done == r.dwords) { tag_used[r.tag] = false; reads.erase(reads.begin() + pick); }
        out.post = -1;
        return true;
    }
    bool next_request(uint64_t now) {
        if (!requests.empty()) {
            Tlp& t = requests.front();
            memcpy(out.dw, t.dw, 4*t.count);
            out.count = t.count; out.post = -1;
            requests.pop();
            return true;
        }
        if (!gpu.unposted || !gpu.next(*this, now, out)) return false;
        count(T_DOORBELL, 8);
        return true;
    }
    // Called at the start of a cycle: is there a beat to show?
    bool offer(uint64_t now) {
        if (sending) return true;
        turn = !turn;
        sending = turn ? next_completion(now) || next_request(now) : next_request(now) || next_completion(now);
        out_at = 0;
        return sending;
    }
    void taken(uint32_t dwords, uint64_t now) {
        out_at += dwords;
        if (out_at < out.count) return;
        sending = false;
        if (out.post >= 0) gpu.pages[out.page].posts[out.post].cycle = now;
    }

    // From the card --------------------------------------------------------------------------------

    void beat(const uint32_t* data, uint64_t be, bool first, bool last, uint32_t dwords, uint64_t now) {
        if (first && in_open) complaints->add("card %d: a TLP begins inside another.", node);
        if (!in_open) in_count = 0;
        in_open = !last;
        uint32_t valid = 0;
        while (valid < dwords && ((be >> (4*valid)) & 0xf) == 0xf) valid++;
        if (valid == 0 || (valid < 16 && (be >> (4*valid)) != 0) || (!last && valid != dwords))
            complaints->add("card %d: byte enables %llx of a %s beat are not whole dwords from lane 0.", node, (unsigned long long)be, last ? "last" : "middle");
        if (in_count + valid > TLP_DWORDS) { complaints->add("card %d: a TLP does not end.", node); in_count = 0; return; }
        memcpy(in + in_count, data, 4*valid);
        in_count += valid;
        if (last) { receive(now); in_count = 0; }
    }
    void receive(uint64_t now) {
        if (in_count < 3) { complaints->add("card %d: a TLP of %u dwords has no header.", node, in_count); return; }
        uint32_t kind = (in[0] >> 24) & 0x7f;
        if (kind == TLP_CPL || kind == TLP_CPLD) { receive_answer(); return; }
        if (kind != TLP_MRD32 && kind != TLP_MRD64 && kind != TLP_MWR32 && kind != TLP_MWR64) {
            complaints->add("card %d: a TLP of unknown type 0x%02x.", node, kind); return;
        }
        Request r(in);
        if (in_count != r.header + (r.write() ? r.dwords : 0)) { complain("the number of dwords does not fit the header", r); return; }
        if (requester < 0) requester = r.requester;
        if ((int)r.requester != requester) complain("the requester's id changed", r);
        if (r.attributes) complain("attributes are set (relaxed ordering or no snoop)", r);
        if (r.digest || r.poisoned || r.traffic_class) complain("digest, poison or traffic class is set", r);
        if ((r.header == 4) != (r.address >> 32 != 0)) complain("the header's size does not fit the address", r);
        if (r.address & 3) complain("the address is not a multiple of 4", r);
        if ((r.address & 0xfff) + 4*r.dwords > 4096) complain("the request crosses a 4 KiB boundary", r);
        if (const char* fault = byte_enable_fault(r)) complain(fault, r);
        if (r.write()) write(r, now); else read(r, now);
    }
    void write(const Request& r, uint64_t now) {
        uint32_t skip = leading_void(r.first_be), drop = trailing_void(r.dwords == 1 ? r.first_be : r.last_be);
        uint64_t address = r.address + skip, bytes = 4*r.dwords - skip - drop;
        if (4*r.dwords > options.max_payload) complain("the payload is longer than the maximum", r);
        if (!inside(r.address, 4*r.dwords)) { complain("the write is outside of the host's memory", r); return; }
        uint8_t buffer[4096];
        for (uint32_t i = 0; i < r.dwords; i++) { uint32_t v = __builtin_bswap32(in[r.header + i]); memcpy(buffer + 4*i, &v, 4); }
        memcpy(at(address), buffer + skip, bytes);
        Traffic kind = T_PAYLOAD;
        if (gpu.is_credit(address)) kind = T_CREDIT;
        if (flags->touches(node, address, bytes)) { kind = T_FLAG; flags->written(node, address, bytes, now); }
        count(kind, bytes);
    }
    void read(const Request& r, uint64_t now) {
        if (4*r.dwords > options.max_request) complain("the read is longer than the maximum request", r);
        if (tag_used[r.tag]) { complain("the tag is in use", r); return; }
        count(T_READ, 4*r.dwords);
        tag_used[r.tag] = true;
        uint32_t status = !inside(r.address, 4*r.dwords) ? CPL_UR : r.address <= fail_high && r.address + 4*r.dwords > fail_low ? fail_status : CPL_SC;
        uint64_t ready = now + options.read_latency + random.below(options.read_jitter + 1);
        reads.push_back({r.address, ready, r.tag, r.requester, r.dwords, 0, r.first_be, r.last_be, status});
    }
    void receive_answer() {
        uint32_t tag = (in[2] >> 8) & 0xff, dwords = (in[0] >> 24) == TLP_CPLD ? in[0] & 0x3ff : 0;
        if (tag != answer_tag || answered) { complaints->add("card %d: a completion for tag %u, which waits for none.", node, tag); return; }
        if (in_count != 3 + dwords || dwords > 1) complaints->add("card %d: a completion of %u dwords says %u.", node, in_count - 3, dwords);
        answered = true; answer_status = (in[1] >> 13) & 7; answer = dwords ? __builtin_bswap32(in[3]) : 0;
    }

    // The driver -----------------------------------------------------------------------------------

    void mmio_write(uint32_t address, const uint32_t* words, uint32_t n) {
        Tlp& t = requests.push();
        address += options.bar0;
        t.dw[0] = TLP_MWR32 << 24 | n; t.dw[1] = (n > 1 ? 0xf0 : 0) | 0xf; t.dw[2] = address;
        for (uint32_t i = 0; i < n; i++) t.dw[3 + i] = __builtin_bswap32(words[i]);
        t.count = 3 + n;
        count(T_MMIO, 4*n);
    }
    void mmio_read(uint32_t address) {
        Tlp& t = requests.push();
        answer_tag = (answer_tag + 1) & 0x1f; answered = false;
        t.dw[0] = TLP_MRD32 << 24 | 1; t.dw[1] = answer_tag << 8 | 0xf; t.dw[2] = address + options.bar0;
        t.count = 3;
        count(T_MMIO, 0);
    }
};
