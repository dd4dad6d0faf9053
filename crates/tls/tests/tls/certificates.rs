//! Chains and keys out of PEM: which belong together, and the errors for those that do not.

use std::sync::{Arc, Mutex};

use rcgen::KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tls::{Certificate, CertificateError, CertificatePart, KeyKind, Roots, RootsError};

use crate::authority::{Authority, HOUR, Pair, leaf_of, now};
use crate::kit::{Side, establish, rustls_client, rustls_client_side, server, server_options};

const P256: KeyKind = KeyKind::EcdsaP256;

fn read(pair: &Pair) -> Result<Certificate, CertificateError> {
    Certificate::from_pem(pair.chain.as_bytes(), pair.key.as_bytes())
}

fn pair() -> Pair {
    Authority::new("root").issue(&leaf_of(P256, &["a.example"]))
}

/// The error, which says something about itself.
fn error(pair: &Pair) -> CertificateError {
    let error = read(pair).unwrap_err();
    assert!(!error.hint().is_empty());
    let text = error.to_string();
    assert!(text.starts_with(|letter: char| letter.is_lowercase()), "{text}");
    error
}

#[test]
fn facts_of_a_certificate_are_told() {
    let authority = Authority::new("root");
    for kind in [KeyKind::Ed25519, P256, KeyKind::EcdsaP384, KeyKind::EcdsaP521, KeyKind::Rsa] {
        let pair = authority.issue(&leaf_of(
            kind,
            &["A.Example", "*.b.example", "10.0.0.1", "2001:db8::1", "spiffe://example/a"],
        ));
        let certificate = read(&pair).unwrap();
        assert_eq!(certificate.key_kind(), kind);
        let names: Vec<&str> = certificate.names().iter().map(|name| &**name).collect();
        assert_eq!(names, ["a.example", "*.b.example", "10.0.0.1", "2001:db8::1"]);
        assert_eq!(certificate.subject(), "O=Example\\, Inc.,CN=a service");
        assert!(certificate.not_before().abs_diff(now() - 3600) < 60);
        assert!(certificate.not_after().abs_diff(now() + 3600) < 60);
        assert_ne!(certificate.fingerprint(), [0; 32]);
    }
}

#[test]
fn keys_are_never_shown() {
    let pair = pair();
    let certificate = Arc::new(read(&pair).unwrap());
    let shown = format!("{certificate:?}");
    assert_eq!(
        shown,
        r#"Certificate { subject: "O=Example\\, Inc.,CN=a service", names: ["a.example"], .. }"#
    );
    let context = tls::ServerContext::new(tls::ServerOptions {
        certificates: vec![certificate],
        versions: tls::Version::Tls12..=tls::Version::Tls13,
        cipher_suites: Vec::new(),
        groups: Vec::new(),
        alpn: Vec::new(),
        client_auth: tls::ClientAuth::Off,
        client_names: Vec::new(),
        resumption: tls::Resumption::Tickets,
    });
    let context = Arc::new(context.unwrap());
    let key = KeyPair::from_pem(&pair.key).unwrap();
    let octets = format!("{:?}", &key.serialized_der()[40..50]);
    let octets = octets.trim_matches(['[', ']']);
    let handshake = tls::Handshake::accept(&context);
    for shown in [shown, format!("{context:?}"), format!("{handshake:?}")] {
        assert!(!shown.contains(octets) && shown.len() < 500, "{shown}");
    }
}

#[test]
fn a_chain_has_each_issuer_behind_what_it_has_signed() {
    let root = Authority::new("root");
    let middle = root.intermediate("middle");
    let leaf = middle.issue(&leaf_of(P256, &["a.example"]));
    let chain = |parts: &[&str]| Pair { chain: parts.concat(), key: leaf.key.clone() };
    let (first, middle, root) = (&*leaf.chain, &*middle.pem(), &*root.pem());
    for good in
        [&[first][..], &[first, middle], &[first, middle, root], &["# Leaf\n", first, middle]]
    {
        assert!(read(&chain(good)).is_ok());
    }
    assert_eq!(error(&chain(&[first, root])), CertificateError::IssuerNotNext(1));
    assert_eq!(error(&chain(&[first, middle, middle])), CertificateError::IssuerNotNext(2));
    assert_eq!(error(&chain(&[middle, first])), CertificateError::LeafNotFirst(2));
    assert_eq!(error(&chain(&[root, middle, first])), CertificateError::LeafNotFirst(3));
    assert_eq!(error(&chain(&[middle, root])), CertificateError::KeyOther);
    // A certificate with the same name, and another key.
    let other = Authority::new("root").intermediate("middle").pem();
    assert_eq!(error(&chain(&[first, &other])), CertificateError::IssuerNotNext(1));
}

#[test]
fn what_is_missing_or_too_much_is_said() {
    let pair = pair();
    let with = |chain: &str, key: &str| error(&Pair { chain: chain.into(), key: key.into() });
    assert_eq!(with("", &pair.key), CertificateError::ChainEmpty);
    assert_eq!(with("nothing", &pair.key), CertificateError::ChainEmpty);
    assert_eq!(with(&pair.key, &pair.key), CertificateError::ChainEmpty);
    assert_eq!(with(&pair.chain, ""), CertificateError::KeyMissing);
    assert_eq!(with(&pair.chain, &pair.chain), CertificateError::KeyMissing);
    let twice = [&*pair.key, &pair.key].concat();
    assert_eq!(with(&pair.chain, &twice), CertificateError::KeysSeveral);
    // Both may stand in one file.
    let both = [&*pair.key, &pair.chain].concat();
    assert!(read(&Pair { chain: both.clone(), key: both }).is_ok());
}

#[test]
fn what_cannot_be_read_is_said() {
    let pair = pair();
    let with = |chain: &str, key: &str| error(&Pair { chain: chain.into(), key: key.into() });
    let broken = pair.chain.replacen("MII", "!!!", 1);
    assert_eq!(with(&broken, &pair.key), CertificateError::ChainUnreadable(1));
    let zeros = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert_eq!(with(zeros, &pair.key), CertificateError::ChainUnreadable(1));
    let second = [&*pair.chain, zeros].concat();
    assert_eq!(with(&second, &pair.key), CertificateError::ChainUnreadable(2));
    let cut = &pair.chain[..pair.chain.len() / 2];
    assert_eq!(with(cut, &pair.key), CertificateError::ChainUnreadable(1));
    for key in [
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\n!!!!\n-----END PRIVATE KEY-----\n",
        &pair.key[..pair.key.len() / 2],
    ] {
        assert_eq!(with(&pair.chain, key), CertificateError::KeyUnreadable);
    }
    for key in [
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
    ] {
        assert_eq!(with(&pair.chain, key), CertificateError::KeyEncrypted);
    }
}

#[test]
fn a_key_is_that_of_its_certificate() {
    let authority = Authority::new("root");
    let one = authority.issue(&leaf_of(P256, &["a.example"]));
    for kind in [P256, KeyKind::EcdsaP384, KeyKind::Ed25519, KeyKind::Rsa] {
        let other = authority.issue(&leaf_of(kind, &["a.example"]));
        let mixed = Pair { chain: one.chain.clone(), key: other.key };
        assert_eq!(error(&mixed), CertificateError::KeyOther);
    }
    assert_eq!(CertificateError::KeyOther.part(), CertificatePart::Key);
    assert_eq!(CertificateError::IssuerNotNext(1).part(), CertificatePart::Chain);
}

#[test]
fn certificates_have_dates() {
    let authority = Authority::new("root");
    let mut leaf = leaf_of(P256, &["a.example"]);
    let error = |leaf: &pki::Leaf| {
        let error = read(&authority.issue(leaf)).unwrap().check_time(now()).unwrap_err();
        assert!(!error.hint().is_empty());
        error
    };
    leaf.validity = -2 * HOUR..-HOUR;
    assert!(matches!(error(&leaf), CertificateError::Expired { .. }));
    leaf.validity = HOUR..2 * HOUR;
    let early = error(&leaf);
    assert!(matches!(early, CertificateError::NotValidYet { .. }));
    // Nothing looks at it again by itself.
    assert!(early.hint().contains("reload (SIGHUP) when"), "{}", early.hint());
    // To the second.
    let pair = pair();
    let certificate = read(&pair).unwrap();
    let at = |now| certificate.check_time(now);
    let (not_before, not_after) = (certificate.not_before(), certificate.not_after());
    assert_eq!((at(not_before), at(not_after)), (Ok(()), Ok(())));
    assert_eq!(at(not_before - 1).unwrap_err(), CertificateError::NotValidYet { not_before });
    assert_eq!(at(not_after + 1).unwrap_err(), CertificateError::Expired { not_after });
}

/// RSA with 1,024 bits: made with OpenSSL, good until 2126.
const SHORT_CHAIN: &str = include_str!("keys/rsa1024.crt");
const SHORT_KEY: &str = include_str!("keys/rsa1024.key");

#[test]
fn keys_that_are_too_short_are_refused_by_what_they_are() {
    let error = error(&Pair { chain: SHORT_CHAIN.into(), key: SHORT_KEY.into() });
    assert_eq!(error, CertificateError::KeyUnsupported("RSA with 1024 bits".into()));
    assert_eq!(error.to_string(), "keys of type RSA with 1024 bits are not supported");
}

#[test]
fn roots_are_all_read_or_none() {
    let (one, other) = (Authority::new("one").pem(), Authority::new("other").pem());
    let roots = Roots::from_pem([&*one, &other].concat().as_bytes()).unwrap();
    assert_eq!(roots.len(), 2);
    assert_eq!(format!("{roots:?}"), "Roots { len: 2 }");
    assert_eq!(Roots::from_pem(b"").unwrap_err(), RootsError::Empty);
    let zeros = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let error = Roots::from_pem([&*one, zeros].concat().as_bytes()).unwrap_err();
    assert_eq!(error, RootsError::Unreadable(2));
}

/// Takes any server, and remembers its answer of the authority.
#[derive(Debug, Default)]
struct Curious {
    response: Mutex<Vec<u8>>,
}

impl ServerCertVerifier for Curious {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        response: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.response.lock().unwrap() = response.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

#[test]
fn an_answer_of_the_authority_is_shown_to_clients_that_ask() {
    let authority = Authority::new("root");
    let files = authority.issue(&leaf_of(P256, &["a.example"]));
    // A sequence that begins with success; the rest is for clients.
    let answer = [0x30, 5, 10, 1, 0, 5, 0];
    let certificate = read(&files).unwrap().with_ocsp_response(&answer).unwrap();
    let curious = Arc::new(Curious::default());
    let mut config = rustls_client(&authority);
    config.dangerous().set_certificate_verifier(Arc::clone(&curious) as _);
    let ours = Side::accept(&server(server_options(&Arc::new(certificate))));
    establish(rustls_client_side(config), ours, usize::MAX);
    assert_eq!(*curious.response.lock().unwrap(), answer);
    for wrong in [&b""[..], b"-----BEGIN", &[0x30, 3, 10, 1, 6], &[0x30, 9, 10, 1, 0], &[10, 1, 0]]
    {
        let error = read(&files).unwrap().with_ocsp_response(wrong).unwrap_err();
        assert_eq!(error, CertificateError::OcspUnreadable, "{wrong:?}");
        assert!(!error.hint().is_empty());
    }
}
