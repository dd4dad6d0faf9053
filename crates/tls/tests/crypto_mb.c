/*
 * Raw RSA private-key operations by Intel's crypto_mb. The test `crypto_mb_agrees` builds and runs it.
 *
 * A line of input is an operation: bits of the modulus, p, q, d mod p-1, d mod q-1, 1/q mod p, and the
 * message, all but the first big-endian and in hexadecimal, as long as the modulus. Eight lines of the
 * same size are one batch. For each there is a line of output, the result in the same form.
 */
#define BN_OPENSSL_DISABLE
#include <crypto_mb/rsa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 8, PARTS = 6, BYTES = 512 };

static unsigned char bytes[PARTS][LANES][BYTES];
static int64u words[PARTS][LANES][BYTES / 8];
static unsigned char results[LANES][BYTES];

int main(void) {
    int bits;
    while (1) {
        for (int lane = 0; lane < LANES; lane++) {
            if (scanf("%d", &bits) != 1) return lane == 0 ? 0 : 1;
            for (int part = 0; part < PARTS; part++)
                for (int at = 0; at < bits / 8; at++) {
                    unsigned byte;
                    if (scanf("%2x", &byte) != 1) return 1;
                    bytes[part][lane][at] = (unsigned char)byte;
                }
            for (int part = 0; part < PARTS; part++) {
                memset(words[part][lane], 0, BYTES);
                for (int at = 0; at < bits / 8; at++)
                    words[part][lane][at / 8] |=
                        (int64u)bytes[part][lane][bits / 8 - 1 - at] << (at % 8 * 8);
            }
        }
        const int64u *keys[PARTS - 1][LANES];
        const int8u *from[LANES];
        int8u *to[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            for (int part = 0; part < PARTS - 1; part++) keys[part][lane] = words[part][lane];
            from[lane] = bytes[PARTS - 1][lane];
            to[lane] = results[lane];
        }
        const mbx_RSA_Method *method = mbx_RSA_private_crt_Method(bits);
        int8u *buffer = aligned_alloc(64, (mbx_RSA_Method_BufSize(method) + 63) / 64 * 64);
        if (mbx_rsa_private_crt_mb8(from, to, keys[0], keys[1], keys[2], keys[3], keys[4], bits,
                                    method, buffer) != MBX_STATUS_OK)
            return 2;
        free(buffer);
        for (int lane = 0; lane < LANES; lane++) {
            for (int at = 0; at < bits / 8; at++) printf("%02x", results[lane][at]);
            printf("\n");
        }
        fflush(stdout);
    }
}
