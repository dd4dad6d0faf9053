//! Which certificate a client gets.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::{ClientConfig, ClientConnection, SupportedCipherSuite};
use tls::{Certificate, ContextError, KeyKind, ServerContext, Verify, Version};

use crate::authority::{Authority, AuthorityExt as _};
use crate::kit::{Side, client, client_options, establish, server, server_options};

use KeyKind::{EcdsaP256, EcdsaP384, Ed25519, Rsa};

/// A server with these certificates.
fn with(certificates: &[&Arc<Certificate>]) -> Arc<ServerContext> {
    let mut options = server_options(certificates[0]);
    options.certificates = certificates.iter().map(|one| Arc::clone(one)).collect();
    server(options)
}

#[test]
fn an_exact_name_comes_before_a_wildcard_before_the_first() {
    let authority = Authority::new("root");
    let first = authority.certificate(EcdsaP256, &["first.example", "1.2.3.4"]);
    let wildcard = authority.certificate(EcdsaP256, &["*.b.example", "b.example"]);
    let exact = authority.certificate(EcdsaP256, &["A.b.example"]);
    let context = with(&[&first, &wildcard, &exact]);
    for (name, expected) in [
        (Some("a.b.example"), &exact),
        (Some("A.B.Example"), &exact),
        (Some("a.b.example."), &exact),
        (Some("c.b.example"), &wildcard),
        (Some("b.example"), &wildcard),
        // One label only.
        (Some("d.c.b.example"), &first),
        (Some("first.example"), &first),
        (Some("unknown"), &first),
        (Some(""), &first),
        (None, &first),
    ] {
        let chosen = context.certificate_for(name);
        assert_eq!(chosen.fingerprint(), expected.fingerprint(), "{name:?}");
        // And what is explained is what is done.
        let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
        let ours = Side::connect(&client(client_options(Verify::Nothing)), name);
        let pair = establish(ours, Side::accept(&context), usize::MAX);
        let peer = pair.client.facts().peer.as_ref().unwrap();
        assert_eq!(peer.fingerprint, expected.fingerprint(), "{name}");
    }
    // A client that connects to an address sends no name.
    let ours = Side::connect(&client(client_options(Verify::Nothing)), "1.2.3.4");
    let pair = establish(ours, Side::accept(&context), usize::MAX);
    assert_eq!(pair.server.facts().server_name, None);
    let peer = pair.client.facts().peer.as_ref().unwrap();
    assert_eq!(peer.fingerprint, first.fingerprint());
}

/// A client with these suites, and rustls' order of them.
fn limited(suites: &[SupportedCipherSuite]) -> Side {
    let provider =
        rustls::crypto::CryptoProvider { cipher_suites: suites.to_vec(), ..default_provider() };
    let verifier = crate::kit::TrustingVerifier::new();
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let name = "a.example".try_into().unwrap();
    Side::Rustls(Box::new(ClientConnection::new(Arc::new(config), name).unwrap().into()))
}

#[test]
fn the_cheapest_key_that_the_client_takes_signs() {
    let authority = Authority::new("root");
    let rsa = authority.certificate(Rsa, &["a.example"]);
    let p384 = authority.certificate(EcdsaP384, &["a.example"]);
    let p256 = authority.certificate(EcdsaP256, &["a.example"]);
    let ed25519 = authority.certificate(Ed25519, &["a.example"]);
    let context = with(&[&rsa, &p384, &p256, &ed25519]);
    assert_eq!(context.certificate_for(Some("a.example")).key_kind(), Ed25519);
    assert_eq!(context.certificate_for(None).key_kind(), Ed25519);
    let context = with(&[&rsa, &p384, &p256]);
    assert_eq!(context.certificate_for(Some("a.example")).key_kind(), EcdsaP256);
    assert_eq!(context.certificate_for(None).key_kind(), EcdsaP256);

    let ecdsa = cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    let only_rsa = cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
    for (suites, expected) in
        [(&[ecdsa][..], &p256), (&[only_rsa], &rsa), (&[only_rsa, ecdsa], &p256)]
    {
        let mut client = limited(suites);
        let mut server = Side::accept(&context);
        let results = crate::kit::talk(&mut client, &mut server, usize::MAX);
        assert_eq!(results, (Ok(()), Ok(())));
        let Side::Rustls(client) = client else { unreachable!("it was made as such") };
        let shown = client.peer_certificates().unwrap();
        let leaf = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &shown[0]);
        assert_eq!(leaf.as_ref(), expected.fingerprint());
    }
}

#[test]
fn a_key_that_no_suite_is_for_is_seen_before_any_connection() {
    let authority = Authority::new("root");
    let mut options = server_options(&authority.certificate(EcdsaP256, &["a.example"]));
    options.versions = Version::Tls12..=Version::Tls12;
    options.cipher_suites = vec![tls::CipherSuite::EcdheRsaWithAes128GcmSha256];
    assert_eq!(ServerContext::new(options).unwrap_err(), ContextError::NoSuiteForKeys);
}

#[test]
fn options_that_no_connection_can_come_of_are_refused() {
    let authority = Authority::new("root");
    let certificate = authority.certificate(EcdsaP256, &["a.example"]);
    let options = || server_options(&certificate);
    let error = |options| ServerContext::new(options).unwrap_err();

    let mut none = options();
    none.certificates.clear();
    assert_eq!(error(none), ContextError::NoCertificate);
    let mut reversed = options();
    reversed.versions = Version::Tls13..=Version::Tls12;
    assert_eq!(error(reversed), ContextError::VersionsEmpty);
    let mut other = options();
    other.versions = Version::Tls13..=Version::Tls13;
    other.cipher_suites = vec![tls::CipherSuite::EcdheEcdsaWithAes128GcmSha256];
    assert!(matches!(error(other), ContextError::CipherSuiteOfOtherVersion(_)));
    let mut groups = options();
    groups.versions = Version::Tls12..=Version::Tls12;
    groups.groups = vec![tls::Group::X25519MlKem768];
    assert_eq!(error(groups), ContextError::NoGroup(Version::Tls12));
    for name in [Vec::new(), vec![b'x'; 256]] {
        let mut alpn = options();
        alpn.alpn = vec![name.into()];
        assert_eq!(error(alpn), ContextError::AlpnInvalid);
    }
}
