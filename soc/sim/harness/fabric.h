// SPDX-License-Identifier: BSD-2-Clause
// The fabric: planes of K paths between the cards' XGMII ports. A path is chosen by a hash of the UDP
// source port and carries a full plane's rate to each card; on it a frame may be lost, damaged, doubled
// or delayed; a data frame of the class that allows it may be trimmed. It looks at addresses and ports as a
// switch does, and keeps a record of every frame.
#pragma once
#include "xgmii.h"

struct FabricOptions {
    uint32_t planes, paths;
    uint64_t delay, jitter;               // Cycles.
    double   loss, duplicate, corrupt, trim, mark; // Probabilities per frame.
};

enum : uint8_t { KIND_DATA, KIND_CONTROL, KIND_OTHER };
enum : uint8_t { FATE_LOST = 1, FATE_CORRUPTED = 2, FATE_DUPLICATED = 4, FATE_UNKNOWN = 8, FATE_DOWN = 16, FATE_FCS_REPAIRED = 32,
    FATE_TRIMMED = 64, FATE_MARKED = 128 };
enum : uint8_t { DSCP_TRIMMABLE = 4, DSCP_TRIMMED = 12, DSCP_TRIMMED_LASTHOP = 16 };  // As in gateware/common/headers.py.
enum : uint8_t { DOWN_FROM = 1, DOWN_TO = 2, DOWN_LOCAL = 4, DOWN_REMOTE = 8 };       // A plane at a card: direction; fault that it is told.
static const uint32_t TRIMMED_REST = 44;                                              // Bytes that stay behind the IP header.

// One line per frame that a card sent; mirrored as a numpy type in soc/sim/fabric.py.
struct Record {
    uint64_t cycle;          // Its end left the card.
    uint64_t delivered;      // Its end reached the far card, 0 = never.
    uint64_t delivered_copy; // The same of the duplicate.
    uint32_t qpn, psn;
    uint16_t length;         // Without FCS.
    uint16_t entropy;        // UDP source port.
    uint8_t  node, plane, path, destination, kind, opcode, flags, fate;   // flags: bit 0 rtx, bit 1 ts.
    uint32_t payload;        // Bytes after the BTH (headers, payload, pad).
};

// Lose `count` frames that match, after `skip` of them; 255 matches anything.
struct DropRule { uint32_t node, opcode, skip, count; };

struct Capture { uint64_t cycle; uint32_t port, length; size_t offset; };   // port: node, plane, 0 = sent, 1 = received.

struct Fabric {
    FabricOptions options{};
    Complaints*   complaints = nullptr;
    Random        random, trims, marks;                            // Of their own: a seed means the same without trims and marks.
    uint32_t      nodes = 0;
    std::vector<Record> records;
    std::vector<std::unordered_map<uint64_t, uint32_t>> macs;      // Per plane: MAC to node.
    std::vector<Chance>   loss;                                    // Per plane and path.
    Chance                duplicate, corrupt, trim, mark;
    std::vector<uint8_t>  down;                                    // Per node and plane: DOWN_*.
    std::vector<uint64_t> path_free;                               // Per destination, plane and path: byte times.
    std::vector<DropRule> drops;
    std::vector<Receiver> from_card;
    std::vector<Sender>   to_card;
    FramePool pool;
    uint64_t  sequence = 0, in_flight = 0, unknown = 0, delivered = 0;
    bool      capturing = false;
    std::vector<Capture>  captures;
    std::vector<uint8_t>  captured;

    void open(const FabricOptions& o, uint32_t n, uint64_t seed, Complaints* c) {
        options = o; nodes = n; complaints = c; random.state = seed; trims.state = ~seed; marks.state = seed ^ 0x6d61726b;
        macs.resize(o.planes); loss.resize(o.planes*o.paths); down.assign(n*o.planes, 0);
        path_free.assign(n*o.planes*o.paths, 0);
        from_card.resize(n*o.planes); to_card.resize(n*o.planes);
        for (auto& l : loss) l.set(o.loss);
        duplicate.set(o.duplicate); corrupt.set(o.corrupt); trim.set(o.trim); mark.set(o.mark);
        records.reserve(1 << 16);
    }
    static uint32_t mix(uint32_t port) { return (port*0x9e3779b1u) >> 16; }
    uint32_t path_of(uint32_t port) const { return (mix(port)*options.paths) >> 16; }

    // A cycle --------------------------------------------------------------------------------------

    void word_out(uint32_t node, uint32_t plane, uint64_t data, uint8_t control, uint64_t now) {
        Receiver& r = from_card[node*options.planes + plane];
        if (r.idle_word(data, control)) return;
        if (r.word(data, control, now, pool, *complaints, node, plane)) {
            Frame* f = r.done; r.done = nullptr;
            receive(f, node, plane, now);
        }
    }
    void word_in(uint32_t node, uint32_t plane, uint64_t& data, uint8_t& control, uint64_t now) {
        Sender& s = to_card[node*options.planes + plane];
        uint8_t state = down[node*options.planes + plane];
        if ((state & (DOWN_LOCAL | DOWN_REMOTE)) && !s.frame) {
            data = XGMII_SEQUENCE*(state & DOWN_LOCAL ? XGMII_LOCAL_FAULT : XGMII_REMOTE_FAULT) + XGMII_SEQUENCE_START; control = 0x11;
            return;
        }
        if (Frame* f = s.word(data, control, now)) {
            if (f->record != Frame::NONE) {
                Record& r = records[f->record];
                (f->copy ? r.delivered_copy : r.delivered) = now;
                delivered++;
            }
            if (capturing) capture(*f, node, plane, 1, now);
            in_flight--;
            pool.give(f);
        }
    }

    // A frame --------------------------------------------------------------------------------------

    void receive(Frame* f, uint32_t node, uint32_t plane, uint64_t now) {
        if (f->length < 64) complaints->add("card %u: a frame of %u bytes on plane %u is shorter than 64.", node, f->length, plane);
        else if (!f->fcs_right()) complaints->add("card %u: a frame of %u bytes on plane %u has a wrong FCS.", node, f->length, plane);
        if (f->length < 18) { pool.give(f); return; }
        if (capturing) capture(*f, node, plane, 0, now);
        f->record = records.size();
        records.emplace_back();
        Record& r = records.back();
        r = Record{};
        classify(r, *f);
        r.cycle = now; r.node = node; r.plane = plane; r.path = path_of(r.entropy); r.length = f->length - 4;
        auto found = macs[plane].find(f->mac());
        r.destination = found == macs[plane].end() ? 255 : found->second;
        // The same draws for every frame, whatever happens to it.
        uint64_t lose = random.next(), damage = random.next(), twice = random.next(), late = random.next(), later = random.next();
        uint64_t cut = trims.next(), congested = marks.next();
        if (found == macs[plane].end()) { r.fate |= FATE_UNKNOWN; unknown++; pool.give(f); return; }
        uint32_t to = found->second;
        if ((down[node*options.planes + plane] & DOWN_FROM) || (down[to*options.planes + plane] & DOWN_TO)) r.fate |= FATE_DOWN | FATE_LOST;
        if (loss[plane*options.paths + r.path].draw(lose) || dropped(r)) r.fate |= FATE_LOST;
        if (r.fate & FATE_LOST) { pool.give(f); return; }
        uint64_t& free = path_free[(to*options.planes + plane)*options.paths + r.path];
        if (mark.draw(congested) && congestion_mark(*f)) r.fate |= FATE_MARKED;
        if (trim.draw(cut) && cut_short(*f, r, cut & 1)) { r.fate |= FATE_TRIMMED; }
        else if (corrupt.draw(damage)) { r.fate |= FATE_CORRUPTED | (spoil(*f, r) ? FATE_FCS_REPAIRED : 0); }
        else if (duplicate.draw(twice)) {
            r.fate |= FATE_DUPLICATED;
            Frame* g = pool.take();
            f->copy_to(*g);
            g->copy = true;
            send(g, to, plane, free, now, later);
        }
        send(f, to, plane, free, now, late);
    }
    void send(Frame* f, uint32_t to, uint32_t plane, uint64_t& free, uint64_t now, uint64_t draw) {
        uint64_t start = std::max(8*now, free);
        free = start + f->length + 20;
        uint64_t jitter = (uint64_t)(((unsigned __int128)draw*(options.jitter + 1)) >> 64);
        arrive(f, to, plane, start/8 + options.delay + jitter);
    }
    void arrive(Frame* f, uint32_t to, uint32_t plane, uint64_t cycle) {
        in_flight++;
        to_card[to*options.planes + plane].arrive(f, cycle, sequence++);
    }
    // Position of the UDP header, on IPv4 without options or IPv6 without extension headers; 0 if there is none.
    static uint32_t udp_of(const Frame& f) {
        const uint8_t* p = f.data();
        if (f.length < 14 + 40 + 4) return 0;
        if (p[12] == 0x08 && p[13] == 0x00 && p[14] == 0x45 && p[23] == 17) return 14 + 20;
        if (p[12] == 0x86 && p[13] == 0xdd && p[14] >> 4 == 6 && p[20] == 17) return 14 + 40;
        return 0;
    }
    void classify(Record& r, const Frame& f) {
        r.kind = KIND_OTHER;
        uint32_t at = udp_of(f);
        if (!at || f.length < at + 8 + 12 + 8) return;
        const uint8_t *udp = f.data() + at, *bth = udp + 8;
        r.entropy = udp[0] << 8 | udp[1];
        r.opcode = bth[0];
        r.qpn = bth[5] << 16 | bth[6] << 8 | bth[7];
        r.psn = bth[9] << 16 | bth[10] << 8 | bth[11];
        r.flags = (bth[8] >> 5 & 1) | (bth[8] >> 4 & 1) << 1;
        r.payload = (udp[4] << 8 | udp[5]) - 8 - 12 - 4;
        r.kind = r.opcode >= 0xc6 && r.opcode <= 0xcb ? KIND_DATA : KIND_CONTROL;
    }
    bool dropped(const Record& r) {
        for (auto& d : drops) {
            if ((d.node != 255 && d.node != r.node) || (d.opcode != 255 && d.opcode != r.opcode) || d.count == 0) continue;
            if (d.skip) { d.skip--; continue; }
            d.count--;
            return true;
        }
        return false;
    }
    // Cut the payload off, as a switch does whose queue is full: 44 bytes stay behind the IP header, the lengths
    // as they were; DSCP, IPv4 checksum and FCS are new. False if the frame may not be trimmed or has nothing to cut.
    bool cut_short(Frame& f, const Record& r, bool last_hop) {
        uint8_t* ip = f.data() + 14;
        bool     v6 = ip[0] >> 4 == 6;
        uint32_t length = (v6 ? 14 + 40 : 14 + 20) + TRIMMED_REST + 4;
        uint8_t  dscp = v6 ? (ip[0] & 15) << 2 | ip[1] >> 6 : ip[1] >> 2, cut = last_hop ? DSCP_TRIMMED_LASTHOP : DSCP_TRIMMED;
        if (r.kind != KIND_DATA || dscp != DSCP_TRIMMABLE || f.length <= length) return false;
        if (v6) {
            ip[0] = 0x60 | cut >> 2;
            ip[1] = cut << 6 | (ip[1] & 0x3f);
        } else {
            ip[1] = cut << 2 | (ip[1] & 3);
            checksum(ip);
        }
        f.length = length;
        f.repair_fcs();
        return true;
    }
    // Mark a frame of a transport that understands it: ECN becomes CE, IP checksum and FCS are new.
    bool congestion_mark(Frame& f) {
        uint8_t* ip = f.data() + 14;
        if (ip[0] == 0x45) {
            if ((ip[1] & 3) == 0) return false;
            ip[1] |= 3;
            checksum(ip);
        } else if (ip[0] >> 4 == 6) {
            if ((ip[1] & 0x30) == 0) return false;
            ip[1] |= 0x30;
        } else return false;
        f.repair_fcs();
        return true;
    }
    static void checksum(uint8_t* ip) {
        ip[10] = ip[11] = 0;
        uint32_t sum = 0;
        for (int i = 0; i < 20; i += 2) sum += ip[i] << 8 | ip[i + 1];
        while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
        ip[10] = ~sum >> 8; ip[11] = ~sum;
    }
    // Does the ICRC leave out this bit? Counted from the frame's start, bit 0 of a byte first; `udp` as of udp_of.
    static bool outside_icrc(uint32_t bit, uint32_t udp) {
        uint32_t byte = bit/8;
        if (byte == udp + 6 || byte == udp + 7 || byte == udp + 12) return true;
        if (udp == 34) return byte == 15 || byte == 22 || byte == 24 || byte == 25;
        return (byte == 14 && (bit & 7) < 4) || (byte >= 15 && byte <= 17) || byte == 21;
    }
    // Flip 1 to 3 bits after the MAC header; in half of the cases repair the FCS, so that the ICRC has to
    // find it (then not in a byte that the ICRC leaves out). True if repaired.
    bool spoil(Frame& f, const Record& r) {
        bool repair = (random.next() >> 63) && r.kind != KIND_OTHER;
        uint32_t udp = repair ? udp_of(f) : 0;
        uint32_t end = repair ? udp + (f.data()[udp + 4] << 8 | f.data()[udp + 5]) : f.length;
        if (end > f.length) end = f.length;
        uint32_t count = 1 + random.below(3), bits[3];
        for (uint32_t i = 0; i < count; ) {
            uint32_t bit = 8*14 + random.below(8*(end - 14)), byte = bit/8;
            bool again = repair && outside_icrc(bit, udp);
            for (uint32_t k = 0; k < i; k++) again |= bits[k] == bit;
            if (again) continue;
            bits[i++] = bit;
            f.data()[byte] ^= 1 << (bit & 7);
        }
        if (repair) f.repair_fcs();
        return repair;
    }
    void capture(const Frame& f, uint32_t node, uint32_t plane, uint32_t direction, uint64_t now) {
        captures.push_back({now, (node*options.planes + plane)*2 + direction, f.length - 4, captured.size()});
        captured.insert(captured.end(), f.data(), f.data() + f.length - 4);
    }
};
