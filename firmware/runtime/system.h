/* SPDX-License-Identifier: BSD-2-Clause */
/* Generated csr.h includes a file of this name; the recovery firmware needs nothing of LiteX's. */
