/*
 * Handshakes of TLS 1.3 in memory by OpenSSL, eight in flight: what its server's side and both sides
 * take, to hold beside an eighth of `eight_answers` and `eight_ends` together, and of `eight`, of handshake.rs.
 *
 *   openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=a.example \
 *     -addext subjectAltName=DNS:a.example -keyout target/p256.key -out target/p256.pem
 *   cc -O2 -o target/openssl-handshake crates/tls/benches/openssl.c -lssl -lcrypto
 *   target/openssl-handshake target/p256.pem target/p256.key
 *   cargo bench -p tls --bench handshake -- eight
 *
 * Alike on both: X25519, AES-128-GCM, no tickets, the client checks the certificate, and what a side
 * makes of a connection it lets go within its time. It is processor time of the thread.
 */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { EIGHT = 8, ROUNDS = 300 };

static double micros(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void check(int is_good) {
    if (!is_good) {
        ERR_print_errors_fp(stderr);
        exit(1);
    }
}

static SSL_CTX *context(const SSL_METHOD *method) {
    SSL_CTX *made = SSL_CTX_new(method);
    check(made != NULL);
    check(SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION));
    check(SSL_CTX_set_ciphersuites(made, "TLS_AES_128_GCM_SHA256"));
    check(SSL_CTX_set1_groups_list(made, "X25519"));
    SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
    return made;
}

static SSL *side(SSL_CTX *of, BIO *in, BIO *out) {
    SSL *made = SSL_new(of);
    check(made != NULL);
    BIO_up_ref(in);
    BIO_up_ref(out);
    SSL_set_bio(made, in, out);
    return made;
}

int main(int count, char **arguments) {
    static double servers[ROUNDS], whole[ROUNDS];
    if (count != 3) {
        fprintf(stderr, "usage: %s CERTIFICATE KEY\n", arguments[0]);
        return 2;
    }
    SSL_CTX *accepting = context(TLS_server_method()), *connecting = context(TLS_client_method());
    check(SSL_CTX_use_certificate_chain_file(accepting, arguments[1]) == 1);
    check(SSL_CTX_use_PrivateKey_file(accepting, arguments[2], SSL_FILETYPE_PEM) == 1);
    check(SSL_CTX_set_num_tickets(accepting, 0));
    check(SSL_CTX_load_verify_locations(connecting, arguments[1], NULL));
    SSL_CTX_set_verify(connecting, SSL_VERIFY_PEER, NULL);

    for (int round = 0; round < ROUNDS; round++) {
        SSL *client[EIGHT], *server[EIGHT];
        BIO *to_server[EIGHT], *to_client[EIGHT];
        double began = micros(), at, of_servers = 0;
        for (int i = 0; i < EIGHT; i++) {
            to_server[i] = BIO_new(BIO_s_mem());
            to_client[i] = BIO_new(BIO_s_mem());
            client[i] = side(connecting, to_client[i], to_server[i]);
            SSL_set_connect_state(client[i]);
            SSL_set_tlsext_host_name(client[i], "a.example");
            SSL_do_handshake(client[i]);
        }
        at = micros();
        for (int i = 0; i < EIGHT; i++) {
            server[i] = side(accepting, to_server[i], to_client[i]);
            SSL_set_accept_state(server[i]);
            SSL_do_handshake(server[i]);
        }
        of_servers += micros() - at;
        for (int i = 0; i < EIGHT; i++) {
            check(SSL_do_handshake(client[i]) == 1);
        }
        at = micros();
        for (int i = 0; i < EIGHT; i++) {
            check(SSL_do_handshake(server[i]) == 1);
            SSL_free(server[i]);
        }
        of_servers += micros() - at;
        for (int i = 0; i < EIGHT; i++) {
            SSL_free(client[i]);
            BIO_free(to_server[i]);
            BIO_free(to_client[i]);
        }
        servers[round] = of_servers / EIGHT;
        whole[round] = (micros() - began) / EIGHT;
    }
    qsort(servers, ROUNDS, sizeof *servers, ascending);
    qsort(whole, ROUNDS, sizeof *whole, ascending);
    printf("%s: a handshake's server %.1f us, both sides %.1f us (medians of %d rounds)\n",
           OpenSSL_version(OPENSSL_VERSION), servers[ROUNDS / 2], whole[ROUNDS / 2], ROUNDS);
    return 0;
}
