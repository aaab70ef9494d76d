// SPDX-License-Identifier: BSD-2-Clause
// XGMII words to frames and back (IEEE 802.3 clause 46). Receiver checks start, preamble, gap and end;
// Sender keeps an average gap of 12 bytes with a deficit idle count.
#pragma once
#include <algorithm>
#include <unordered_map>
#include "basics.h"

static const uint64_t XGMII_IDLE_WORD = 0x0707070707070707ull;
enum : uint8_t { XGMII_IDLE = 0x07, XGMII_START = 0xfb, XGMII_END = 0xfd };
// Link faults: in both columns of a word the sequence character and, three lanes above it, which fault.
static const uint64_t XGMII_SEQUENCE_START = 0x0000009c0000009cull, XGMII_SEQUENCE = 0x0100000001000000ull;
enum : uint8_t { XGMII_LOCAL_FAULT = 1, XGMII_REMOTE_FAULT = 2 };
static const uint32_t FRAME_MAX = 9216;

// A frame with its preamble in front: wire[0] is the start character.
struct Frame {
    static const uint32_t NONE = ~0u;
    uint8_t  wire[8 + FRAME_MAX];
    uint32_t length = 0;                 // Destination MAC to FCS.
    uint32_t record = NONE;              // Line in the fabric's record.
    bool     copy = false;               // A duplicate.
    uint8_t* data() { return wire + 8; }
    const uint8_t* data() const { return wire + 8; }
    uint64_t mac() const { uint64_t m = 0; for (int i = 0; i < 6; i++) m = m << 8 | data()[i]; return m; }
    bool fcs_right() const { uint32_t c; memcpy(&c, data() + length - 4, 4); return crc32_of(data(), length - 4) == c; }
    void repair_fcs() { uint32_t c = crc32_of(data(), length - 4); memcpy(data() + length - 4, &c, 4); }
    void copy_to(Frame& g) const { memcpy(g.wire, wire, 8 + length); g.length = length; g.record = record; g.copy = copy; }
    void preamble() { wire[0] = XGMII_START; memset(wire + 1, 0x55, 6); wire[7] = 0xd5; }
};

struct FramePool {
    std::vector<Frame*> idle;
    ~FramePool() { for (auto f : idle) delete f; }
    Frame* take() {
        if (idle.empty()) return new Frame;
        Frame* f = idle.back();
        idle.pop_back();
        f->record = Frame::NONE; f->copy = false; f->length = 0;
        return f;
    }
    void give(Frame* f) { idle.push_back(f); }
};

// From a card --------------------------------------------------------------------------------------

struct Receiver {
    Frame*   frame = nullptr;
    Frame*   done = nullptr;
    uint32_t at = 0, gap = 64;           // Bytes of wire filled; idle bytes since the last end.
    ~Receiver() { delete frame; delete done; }
    Receiver() = default;
    Receiver(Receiver&& r) noexcept : frame(r.frame), done(r.done), at(r.at), gap(r.gap) { r.frame = r.done = nullptr; }

    bool idle_word(uint64_t data, uint8_t control) {
        if (frame || control != 0xff || data != XGMII_IDLE_WORD) return false;
        if (gap < 64) gap += 8;
        return true;
    }
    // True when a frame ended in this word; it is in `done`.
    bool word(uint64_t data, uint8_t control, uint64_t now, FramePool& pool, Complaints& complaints, uint32_t node, uint32_t plane) {
        if (frame && control == 0 && at + 8 <= sizeof frame->wire) { memcpy(frame->wire + at, &data, 8); at += 8; return false; }
        for (int lane = 0; lane < 8; lane++) {
            uint8_t byte = data >> (8*lane);
            bool special = control >> lane & 1;
            if (!frame) {
                if (special && byte == XGMII_IDLE) { gap++; continue; }
                if (!special || byte != XGMII_START) {
                    complaints.add("card %u: byte %s%02x on plane %u is outside of a frame.", node, special ? "/" : "", byte, plane);
                    continue;
                }
                if (lane & 3) complaints.add("card %u: a frame starts in lane %d on plane %u.", node, lane, plane);
                if (gap < 9) complaints.add("card %u: a gap of %u bytes on plane %u is too short.", node, gap, plane);
                frame = pool.take();
                frame->wire[0] = byte; at = 1;
            } else if (!special) {
                if (at < sizeof frame->wire) frame->wire[at++] = byte;
            } else {
                bool right = byte == XGMII_END && at > 8 && frame->wire[7] == 0xd5;
                for (int i = 1; i < 7; i++) right &= frame->wire[i] == 0x55;
                if (!right || at >= sizeof frame->wire)
                    complaints.add("card %u: a frame of %u bytes on plane %u has no proper preamble, length or end.", node, at, plane);
                frame->length = at > 8 ? at - 8 : 0;
                gap = byte == XGMII_END ? 1 : 0;
                done = frame; frame = nullptr;
            }
        }
        return done != nullptr;
    }
};

// To a card ----------------------------------------------------------------------------------------

struct Arrival { uint64_t cycle, sequence; Frame* frame; };
static inline bool later(const Arrival& a, const Arrival& b) { return a.cycle != b.cycle ? a.cycle > b.cycle : a.sequence > b.sequence; }

struct Sender {
    std::vector<Arrival> queue;          // A heap, earliest first.
    Frame*   frame = nullptr;
    uint32_t at = 0, total = 0, gap = 64, deficit = 0;   // deficit: bytes of gap saved up, 0 to 3.
    ~Sender() { delete frame; for (auto& a : queue) delete a.frame; }
    Sender() = default;
    Sender(Sender&& s) noexcept : queue(std::move(s.queue)), frame(s.frame) { s.frame = nullptr; s.queue.clear(); }

    void arrive(Frame* f, uint64_t cycle, uint64_t sequence) {
        queue.push_back({cycle, sequence, f});
        std::push_heap(queue.begin(), queue.end(), later);
    }
    // The word of this cycle; a frame that ended in it is returned.
    Frame* word(uint64_t& data, uint8_t& control, uint64_t now) {
        if (!frame && (queue.empty() || queue[0].cycle > now)) {
            data = XGMII_IDLE_WORD; control = 0xff;
            if (gap < 64) gap += 8;
            return nullptr;
        }
        if (frame && at + 8 <= total) {
            memcpy(&data, frame->wire + at, 8); control = 0; at += 8;
            return nullptr;
        }
        Frame* ended = nullptr;
        data = 0; control = 0;
        for (int lane = 0; lane < 8; lane++) {
            uint8_t byte = XGMII_IDLE;
            bool special = true;
            if (frame && at < total) { byte = frame->wire[at++]; special = false; }
            else if (frame) { byte = XGMII_END; ended = frame; frame = nullptr; gap = 1; }
            else if ((lane & 3) == 0 && !ended && gap + deficit >= 12 && !queue.empty() && queue[0].cycle <= now) {
                std::pop_heap(queue.begin(), queue.end(), later);
                frame = queue.back().frame;
                queue.pop_back();
                at = 1; total = 8 + frame->length;
                deficit = std::min(3u, deficit + gap - 12);
                byte = XGMII_START;
            } else gap++;
            data |= (uint64_t)byte << (8*lane);
            control |= special << lane;
        }
        return ended;
    }
};
