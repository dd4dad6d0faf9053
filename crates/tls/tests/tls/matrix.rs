//! Each version with each kind of key and each suite, with this crate or rustls as the peer.

use tls::{CipherSuite, Group, KeyKind, Verify, Version};

use crate::authority::{Authority, AuthorityExt as _, PairExt as _, leaf_of};
use crate::kit::{
    Side, client, client_options, establish, only, rustls_client, rustls_client_side,
    rustls_server, rustls_server_side, server, server_options,
};

const KINDS: [KeyKind; 5] =
    [KeyKind::Ed25519, KeyKind::EcdsaP256, KeyKind::EcdsaP384, KeyKind::EcdsaP521, KeyKind::Rsa];

/// Whether the suite is for such keys: those of TLS 1.3 are for all.
fn fits(suite: CipherSuite, kind: KeyKind) -> bool {
    match suite {
        CipherSuite::EcdheEcdsaWithAes128GcmSha256
        | CipherSuite::EcdheEcdsaWithAes256GcmSha384
        | CipherSuite::EcdheEcdsaWithChacha20Poly1305Sha256 => kind != KeyKind::Rsa,
        CipherSuite::EcdheRsaWithAes128GcmSha256
        | CipherSuite::EcdheRsaWithAes256GcmSha384
        | CipherSuite::EcdheRsaWithChacha20Poly1305Sha256 => kind == KeyKind::Rsa,
        CipherSuite::Tls13Aes128GcmSha256
        | CipherSuite::Tls13Aes256GcmSha384
        | CipherSuite::Tls13Chacha20Poly1305Sha256 => true,
    }
}

#[test]
fn every_suite_goes_with_every_kind_of_key_that_it_is_for() {
    let authority = Authority::new("root");
    let mut count = 0;
    for kind in KINDS {
        let files = authority.issue(&leaf_of(kind, &["a.example"]));
        for suite in CipherSuite::ALL.into_iter().filter(|suite| fits(*suite, kind)) {
            let mut options = server_options(&files.certificate());
            only(&mut options, suite);
            let ours_accepting = server(options);
            let ours_connecting = {
                let mut options = client_options(Verify::Roots(authority.roots()));
                options.versions = suite.version()..=suite.version();
                options.cipher_suites = vec![suite];
                client(options)
            };

            let mut pair = establish(
                Side::connect(&ours_connecting, "a.example"),
                Side::accept(&ours_accepting),
                usize::MAX,
            );
            for facts in [pair.client.facts(), pair.server.facts()] {
                assert_eq!(facts.version, suite.version());
                assert_eq!(facts.cipher_suite, suite);
                assert_eq!(facts.group, Some(Group::X25519));
                assert!(!facts.is_resumed);
            }
            assert_eq!(pair.server.facts().server_name.as_deref(), Some("a.example"));
            assert_eq!(pair.server.facts().peer, None);
            let peer = pair.client.facts().peer.as_ref().unwrap();
            assert_eq!(peer.fingerprint, files.certificate().fingerprint());
            pair.chat();

            let theirs = rustls_client_side(rustls_client(&authority));
            establish(theirs, Side::accept(&ours_accepting), usize::MAX).chat();
            let theirs = rustls_server_side(rustls_server(&files));
            let ours = Side::connect(&ours_connecting, "a.example");
            establish(ours, theirs, usize::MAX).chat();
            count += 1;
        }
    }
    assert_eq!(count, KINDS.len() * 6);
}

#[test]
fn every_group_is_agreed_on() {
    let authority = Authority::new("root");
    let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
    for version in Version::ALL {
        for group in Group::ALL {
            if version == Version::Tls12 && !group.is_in_tls12() {
                continue;
            }
            let mut accepting = server_options(&certificate);
            accepting.versions = version..=version;
            accepting.groups = vec![group];
            let mut connecting = client_options(Verify::Roots(authority.roots()));
            connecting.groups = Group::ALL.to_vec();
            // Not the first, so that the client is asked to try again in TLS 1.3.
            connecting.groups.sort_by_key(|one| *one == group);
            let mut pair = establish(
                Side::connect(&client(connecting), "a.example"),
                Side::accept(&server(accepting)),
                usize::MAX,
            );
            assert_eq!(pair.client.facts().group, Some(group));
            assert_eq!(pair.server.facts().group, Some(group));
            pair.chat();
        }
    }
}

#[test]
fn the_default_resists_quantum_computers() {
    let authority = Authority::new("root");
    let mut accepting = server_options(&authority.certificate(KeyKind::EcdsaP256, &["a.example"]));
    accepting.groups = Vec::new();
    let mut connecting = client_options(Verify::Roots(authority.roots()));
    connecting.groups = Vec::new();
    let pair = establish(
        Side::connect(&client(connecting), "a.example"),
        Side::accept(&server(accepting)),
        usize::MAX,
    );
    assert_eq!(pair.server.facts().group, Some(Group::X25519MlKem768));
    assert_eq!(pair.server.facts().cipher_suite, CipherSuite::Tls13Aes128GcmSha256);
}
