// SPDX-License-Identifier: BSD-2-Clause
// Transaction layer packets as a LitePCIe PHY carries them: header dwords as numbers, data dwords with
// their bytes swapped (PCI Express Base 2.2).
#pragma once
#include "basics.h"

static const int TLP_DWORDS = 4 + 256;

struct Tlp {
    uint32_t dw[TLP_DWORDS];
    uint32_t count = 0;      // Dwords.
    int32_t  post  = -1;     // A token: index of its page's post, page in `page`.
    int32_t  page  = -1;
};

enum : uint32_t { TLP_MRD32 = 0x00, TLP_MRD64 = 0x20, TLP_MWR32 = 0x40, TLP_MWR64 = 0x60, TLP_CPL = 0x0a, TLP_CPLD = 0x4a };
enum : uint32_t { CPL_SC = 0, CPL_UR = 1, CPL_CA = 4 };

// Fields of a request header, taken apart.
struct Request {
    uint32_t kind, dwords, attributes, digest, poisoned, traffic_class, requester, tag, first_be, last_be, header;
    uint64_t address;
    bool write() const { return kind & 0x40; }
    explicit Request(const uint32_t* dw) {
        kind          = (dw[0] >> 24) & 0x7f;
        header        = kind & 0x20 ? 4 : 3;
        traffic_class = (dw[0] >> 20) & 7;
        digest        = (dw[0] >> 15) & 1;
        poisoned      = (dw[0] >> 14) & 1;
        attributes    = (dw[0] >> 12) & 3;
        dwords        = dw[0] & 0x3ff ? dw[0] & 0x3ff : 1024;
        requester     = dw[1] >> 16;
        tag           = (dw[1] >> 8) & 0xff;
        last_be       = (dw[1] >> 4) & 0xf;
        first_be      = dw[1] & 0xf;
        address       = header == 4 ? (uint64_t)dw[2] << 32 | dw[3] : dw[2];
    }
};

// Byte enables without holes: 0 = fine.
static inline const char* byte_enable_fault(const Request& r) {
    static const bool contiguous[16] = {false, true, true, true, true, false, true, true, true, false, false, false, true, false, true, true};
    if (r.dwords == 1) {
        if (r.last_be) return "a TLP of one dword has last byte enables";
        if (!contiguous[r.first_be]) return "first byte enables are empty or have a hole";
        return nullptr;
    }
    if (r.first_be != 0xf && r.first_be != 0xe && r.first_be != 0xc && r.first_be != 0x8) return "first byte enables do not reach the second dword";
    if (r.last_be != 0xf && r.last_be != 0x7 && r.last_be != 0x3 && r.last_be != 0x1) return "last byte enables do not start at byte 0";
    return nullptr;
}

static inline uint32_t leading_void(uint32_t first_be) { return first_be ? __builtin_ctz(first_be) : 0; }
static inline uint32_t trailing_void(uint32_t be) { return be ? __builtin_clz(be << 28) : 0; }
