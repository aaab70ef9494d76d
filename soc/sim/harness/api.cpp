// SPDX-License-Identifier: BSD-2-Clause
// The simulation as a C interface for ctypes: cards in lock step, their hosts, the fabric between them.
// Python enters per quantum of cycles, never per cycle.
#include <unistd.h>
#include "card.h"

struct SimOptions {
    uint32_t nodes, paths;
    uint64_t seed, delay, jitter;
    double   loss, duplicate, corrupt, trim, mark;
    uint32_t doorbell, capturing;
    HostOptions host;
};

struct Sim {
    Complaints complaints;
    Flags  flags;
    Fabric fabric;
    std::vector<std::unique_ptr<Card>> cards;
    uint64_t now = 0;
    ~Sim() { for (auto& c : cards) c->host.close(); }
    Host& host(int n) { return cards[n]->host; }
    uint64_t unposted() const { uint64_t n = 0; for (auto& c : cards) n += c->host.gpu.unposted; return n; }
    void cycle() {
        complaints.now = now;
        for (uint32_t i = 0; i < cards.size(); i++) cards[i]->low(fabric, i, now);
        for (auto& c : cards) c->high(now);
        now++;
    }
};

extern "C" {

// Life ---------------------------------------------------------------------------------------------

int sim_planes() { return CARD_PLANES; }
int sim_sizes(int what) { return what == 0 ? sizeof(SimOptions) : what == 1 ? sizeof(Record) : what == 2 ? sizeof(Capture) : sizeof(FlagEvent); }

Sim* sim_new(const SimOptions* o, const char* folder) {
    char here[4096];
    if (!getcwd(here, sizeof here) || chdir(folder)) return nullptr;
    Sim* s = new Sim;
    Random seeds{o->seed};
    s->fabric.open({CARD_PLANES, o->paths, o->delay, o->jitter, o->loss, o->duplicate, o->corrupt, o->trim, o->mark}, o->nodes, seeds.next(), &s->complaints);
    s->fabric.capturing = o->capturing;
    s->flags.complaints = &s->complaints;
    s->flags.low.assign(o->nodes, ~0ull);
    s->flags.high.assign(o->nodes, 0);
    bool right = true;
    for (uint32_t i = 0; i < o->nodes; i++) {
        s->cards.emplace_back(new Card);
        s->host(i).open(o->host, i, seeds.next(), &s->complaints, &s->flags);
        s->host(i).gpu.doorbell = o->doorbell;
        right &= s->host(i).memory != nullptr;
    }
    right &= chdir(here) == 0;
    if (!right) { delete s; return nullptr; }
    return s;
}
void sim_free(Sim* s) { delete s; }
void sim_reset(Sim* s, int level) { for (auto& c : s->cards) c->model->sys_rst = level; }
uint8_t* sim_memory(Sim* s, int n) { return s->host(n).memory; }
int sim_trace(Sim* s, int n, const char* path) {
#if VM_TRACE
    auto& c = *s->cards[n];
    c.trace.reset(new VerilatedFstC);
    c.model->trace(c.trace.get(), 99);
    c.trace->set_time_unit("ps"); c.trace->set_time_resolution("ps");
    c.trace->open(path);
    return c.trace->isOpen();
#else
    (void)s; (void)n; (void)path;
    return 0;
#endif
}

// Time ---------------------------------------------------------------------------------------------

// Runs up to `cycles`. `stop` 1: less, if a card broke a rule; 2: also if every token is posted and every
// flag has its target. Returns the cycle count.
uint64_t sim_step(Sim* s, uint64_t cycles, int stop) {
    Verilated::threadContextp(&s->cards[0]->context);    // Another simulation may have ended meanwhile.
    for (uint64_t end = s->now + cycles; s->now < end; ) {
        s->cycle();
        if (stop && s->complaints.count) break;
        if (stop == 2 && s->flags.pending == 0 && s->unposted() == 0) break;
    }
    return s->now;
}
uint64_t sim_now(Sim* s) { return s->now; }

// The driver: BAR0 ---------------------------------------------------------------------------------

void sim_write(Sim* s, int n, uint32_t offset, const uint32_t* words, uint32_t count) { s->host(n).mmio_write(offset, words, count); }
// 0 = answered, 1 = no answer in time, else 2 + completion status.
int sim_read(Sim* s, int n, uint32_t offset, uint64_t limit, uint32_t* value) {
    Host& h = s->host(n);
    h.mmio_read(offset);
    for (uint64_t end = s->now + limit; s->now < end; ) {
        s->cycle();
        if (h.answered) { *value = h.answer; return h.answer_status ? 2 + h.answer_status : 0; }
    }
    h.answered = true;
    return 1;
}
// Runs until every request of every driver has been taken; 1 = not within the limit.
int sim_drain(Sim* s, uint64_t limit) {
    for (uint64_t end = s->now + limit; s->now < end; ) {
        bool busy = false;
        for (auto& c : s->cards) busy |= !c->host.requests.empty() || c->host.sending;
        if (!busy) return 0;
        s->cycle();
    }
    return 1;
}
uint32_t sim_console(Sim* s, int n, char* text, uint32_t max) {
    auto& c = s->cards[n]->console;
    uint32_t k = c.size() < max ? c.size() : max;
    memcpy(text, c.data(), k);
    c.erase(0, k);
    return k;
}
void sim_type(Sim* s, int n, uint8_t c) { s->cards[n]->typed.push() = c; }

// Posting and polling ------------------------------------------------------------------------------

uint32_t sim_page(Sim* s, int n, uint64_t credit, uint32_t quota) {
    Page p;
    p.credit = credit; p.quota = quota;
    s->host(n).gpu.pages.push_back(p);
    return s->host(n).gpu.pages.size() - 1;
}
void sim_page_quota(Sim* s, int n, uint32_t page, uint32_t quota) { s->host(n).gpu.pages[page].quota = quota; }
void sim_post(Sim* s, int n, uint32_t page, const uint32_t* offsets, const uint64_t* tokens, uint32_t count) {
    auto& posts = s->host(n).gpu.pages[page].posts;
    for (uint32_t i = 0; i < count; i++) posts.push_back({offsets[i], tokens[i], 0});
    s->host(n).gpu.unposted += count;
}
void sim_post_interval(Sim* s, int n, uint32_t cycles) { s->host(n).gpu.interval = cycles; }
void sim_withdraw(Sim* s, int n, uint32_t page) {
    auto& p = s->host(n).gpu.pages[page];
    s->host(n).gpu.unposted -= p.posts.size() - p.posted;
    p.posts.resize(p.posted);
}
uint32_t sim_posted(Sim* s, int n, uint32_t page) { return s->host(n).gpu.pages[page].posted; }
void sim_post_cycles(Sim* s, int n, uint32_t page, uint64_t* cycles, uint32_t count) {
    auto& posts = s->host(n).gpu.pages[page].posts;
    for (uint32_t i = 0; i < count && i < posts.size(); i++) cycles[i] = posts[i].cycle;
}
uint32_t sim_watch(Sim* s, int n, uint64_t address) { return s->flags.add(n, address, s->host(n).at(address)); }
void sim_target(Sim* s, uint32_t watch, uint64_t value) { s->flags.set_target(watch, value); }
uint64_t sim_flag(Sim* s, uint32_t watch) { return s->flags.watches[watch].value; }
int sim_expect(Sim* s, uint32_t watch, uint64_t value, uint64_t message, int from, uint64_t source, uint64_t destination, uint64_t length,
        uint64_t at) {
    auto& w = s->flags.watches[watch];
    if (!s->host(from).inside(source, length) || !s->host(w.node).inside(destination, length)) return 1;
    w.expectations.push_back({value, s->host(from).at(source), s->host(w.node).at(destination), length, (int)w.node, from, message, at});
    return 0;
}

// Faults -------------------------------------------------------------------------------------------

void sim_mac(Sim* s, uint32_t plane, uint64_t mac, uint32_t node) { s->fabric.macs[plane][mac] = node; }
void sim_path_loss(Sim* s, uint32_t plane, uint32_t path, double p) { s->fabric.loss[plane*s->fabric.options.paths + path].set(p); }
void sim_rates(Sim* s, double duplicate, double corrupt, double trim, double mark) {
    s->fabric.duplicate.set(duplicate); s->fabric.corrupt.set(corrupt); s->fabric.trim.set(trim);
    s->fabric.mark.set(mark);
}
void sim_plane_down(Sim* s, uint32_t node, uint32_t plane, int down) { s->fabric.down[node*CARD_PLANES + plane] = down; }
void sim_drop(Sim* s, uint32_t node, uint32_t opcode, uint32_t skip, uint32_t count) { s->fabric.drops.push_back({node, opcode, skip, count}); }
void sim_stall(Sim* s, int n, double p) { s->host(n).stall.set(p); }
void sim_fail_reads(Sim* s, int n, uint64_t low, uint64_t high, int status) {
    Host& h = s->host(n);
    h.fail_low = low; h.fail_high = high; h.fail_status = status;
}
// A frame of the test's own, without FCS, to one card; `flip` is put over its FCS (0 = right).
void sim_inject(Sim* s, uint32_t node, uint32_t plane, const uint8_t* data, uint32_t length, uint32_t flip) {
    Frame* f = s->fabric.pool.take();
    if (length > FRAME_MAX - 64) length = FRAME_MAX - 64;
    f->preamble();
    memcpy(f->data(), data, length);
    while (length < 60) f->data()[length++] = 0;
    f->length = length + 4;
    f->repair_fcs();
    for (int i = 0; i < 4; i++) f->data()[length + i] ^= flip >> (8*i);
    s->fabric.arrive(f, node, plane, s->now);
}

// Records ------------------------------------------------------------------------------------------

uint64_t sim_count(Sim* s, int what) {
    switch (what) {
        case 0: return s->complaints.count;
        case 1: return s->flags.before_data;
        case 2: return s->flags.pending;
        case 3: return s->unposted();
        case 4: return s->fabric.in_flight;
        case 5: return s->fabric.unknown;
        case 6: return s->flags.covered;
        case 7: return s->flags.bytes;
        case 8: return s->fabric.delivered;
        case 9: { uint64_t n = 0; for (auto& c : s->cards) n += c->host.reads.size(); return n; }
    }
    return 0;
}
int sim_sentence(Sim* s, int which, uint32_t i, char* text, uint32_t max) {
    auto& list = which == 0 ? s->complaints.sentences : s->flags.details;
    if (i >= list.size()) return 0;
    snprintf(text, max, "%s", list[i].c_str());
    return 1;
}
void sim_traffic(Sim* s, int n, TrafficCount* counts) { memcpy(counts, s->host(n).traffic, sizeof s->host(n).traffic); }
uint64_t sim_records(Sim* s, const Record** first) { *first = s->fabric.records.data(); return s->fabric.records.size(); }
uint64_t sim_flag_events(Sim* s, const FlagEvent** first) { *first = s->flags.events.data(); return s->flags.events.size(); }
uint64_t sim_captures(Sim* s, const Capture** first, const uint8_t** bytes) { *first = s->fabric.captures.data(); *bytes = s->fabric.captured.data(); return s->fabric.captures.size(); }
void sim_captures_clear(Sim* s) { s->fabric.captures.clear(); s->fabric.captured.clear(); }

}

double sc_time_stamp() { return 0; }
