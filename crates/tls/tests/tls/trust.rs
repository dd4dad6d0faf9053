//! Which certificates are accepted, and for which names.

use std::sync::Arc;

use rcgen::ExtendedKeyUsagePurpose;
use tls::{
    Certificate, CertificateFault, ClientAuth, ContextError, HandshakeError, KeyKind, Roots,
    RootsError, Verify, Version,
};

use crate::authority::{Authority, AuthorityExt as _, HOUR, Pair as Files, PairExt as _, leaf_of};
use crate::kit::{Failed, Side, client, client_options, establish, fail, server, server_options};

const P256: KeyKind = KeyKind::EcdsaP256;

/// The verdict on a server of a client that trusts `authority` and requires one of `names`.
fn client_says(authority: &Authority, files: &Files, names: &[&str]) -> Result<(), HandshakeError> {
    client_at(authority, files, names, "a.example")
}

fn client_at(
    authority: &Authority,
    files: &Files,
    names: &[&str],
    server_name: &str,
) -> Result<(), HandshakeError> {
    let mut options = client_options(Verify::Roots(authority.roots()));
    options.names = names.iter().map(|name| (*name).into()).collect();
    // The file may have been good when it was read.
    let certificate = files.certificate();
    let mut ours = Side::connect(&client(options), server_name);
    let mut theirs = Side::accept(&server(server_options(&certificate)));
    let (client, server) = crate::kit::talk(&mut ours, &mut theirs, usize::MAX);
    let error = client.err().map(Failed::ours);
    if let Some(error) = &error {
        let alert = error.alert().unwrap();
        let received = server.unwrap_err().ours();
        assert_eq!(received, HandshakeError::AlertReceived(alert), "{error}");
    }
    error.map_or(Ok(()), Err)
}

/// A certificate that was good for an hour, an hour ago; or is from now on, or for long.
fn files(authority: &Authority, names: &[&'static str]) -> Files {
    let mut leaf = leaf_of(P256, names);
    leaf.validity = -2 * HOUR..HOUR;
    authority.issue(&leaf)
}

#[test]
fn a_server_has_to_come_from_an_authority_that_is_trusted() {
    let (authority, other) = (Authority::new("root"), Authority::new("other"));
    let unknown = HandshakeError::CertificateRejected(CertificateFault::UnknownIssuer);
    let good = files(&authority, &["a.example"]);
    assert_eq!(client_says(&authority, &good, &[]), Ok(()));
    let bad = files(&other, &["a.example"]);
    assert_eq!(client_says(&authority, &bad, &[]), Err(unknown.clone()));
    // The same name of the authority is not enough.
    let bad = files(&Authority::new("root"), &["a.example"]);
    let error = client_says(&authority, &bad, &[]).unwrap_err();
    assert!(
        error == unknown
            || error == HandshakeError::CertificateRejected(CertificateFault::BadSignature),
        "{error}"
    );
}

#[test]
fn a_chain_leads_to_an_authority() {
    let authority = Authority::new("root");
    let intermediate = authority.intermediate("intermediate");
    let mut chain = files(&intermediate, &["a.example"]);
    assert_eq!(
        client_says(&authority, &chain, &[]),
        Err(HandshakeError::CertificateRejected(CertificateFault::UnknownIssuer))
    );
    chain.chain.push_str(&intermediate.pem());
    assert_eq!(client_says(&authority, &chain, &[]), Ok(()));
}

#[test]
fn a_server_has_to_be_who_was_asked_for() {
    let authority = Authority::new("root");
    let good = files(&authority, &["a.example", "10.1.2.3", "*.b.example"]);
    for name in ["a.example", "10.1.2.3", "c.b.example"] {
        assert_eq!(client_at(&authority, &good, &[], name), Ok(()), "{name}");
    }
    for name in ["b.example", "10.1.2.4", "d.c.b.example"] {
        let error = client_at(&authority, &good, &[], name).unwrap_err();
        assert_eq!(error.word(), "name_mismatch");
        let text = error.to_string();
        assert!(text.contains("a.example, "), "{text}");
        assert!(text.contains("10.1.2.3"), "{text}");
    }
}

#[test]
fn names_take_the_place_of_the_one_that_was_asked_for() {
    let authority = Authority::new("root");
    let good = files(&authority, &["b.example", "spiffe://example/ns/default/sa/b"]);
    for names in [
        &["spiffe://example/ns/default/sa/b"][..],
        &["spiffe://example/ns/default/sa/a", "spiffe://example/ns/default/sa/b"],
        &["b.example"],
        &["spiffe://example/x", "b.example"],
    ] {
        assert_eq!(client_says(&authority, &good, names), Ok(()), "{names:?}");
    }
    for names in [
        &["a.example"][..],
        &["spiffe://example/ns/default/sa/B"],
        &["spiffe://example/ns/default/sa"],
        &["spiffe://example/ns/default/sa/b/"],
    ] {
        let error = client_says(&authority, &good, names).unwrap_err();
        assert_eq!(error.word(), "name_mismatch", "{names:?}");
    }
    // The issuer is checked all the same.
    let bad = files(&Authority::new("other"), &["spiffe://example/ns/default/sa/b"]);
    let error = client_says(&authority, &bad, &["spiffe://example/ns/default/sa/b"]).unwrap_err();
    assert_eq!(error.word(), "certificate_unknown_issuer");
}

#[test]
fn what_is_no_name_is_refused_when_the_context_is_made() {
    let mut options = client_options(Verify::Nothing);
    options.names = vec!["not a name".into()];
    let error = tls::ClientContext::new(options).unwrap_err();
    assert_eq!(error, ContextError::NameInvalid("not a name".into()));
}

#[test]
fn dates_and_purposes_are_looked_at() {
    let authority = Authority::new("root");
    let mut leaf = leaf_of(P256, &["a.example"]);
    leaf.validity = -2 * HOUR..-HOUR;
    let error = client_says(&authority, &authority.issue(&leaf), &[]).unwrap_err();
    assert_eq!(error.word(), "certificate_expired");
    let mut leaf = leaf_of(P256, &["a.example"]);
    leaf.validity = -2 * HOUR..HOUR;
    leaf.purposes = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let error = client_says(&authority, &authority.issue(&leaf), &[]).unwrap_err();
    assert_eq!(error.word(), "certificate_purpose_invalid");
}

#[test]
fn a_certificate_that_is_not_valid_yet_is_refused() {
    let authority = Authority::new("root");
    let mut leaf = leaf_of(P256, &["a.example"]);
    leaf.validity = HOUR..2 * HOUR;
    let certificate = authority.issue(&leaf).certificate();
    let connecting = client(client_options(Verify::Roots(authority.roots())));
    let accepting = server(server_options(&certificate));
    let (result, _) = fail(Side::connect(&connecting, "a.example"), Side::accept(&accepting));
    assert_eq!(result.unwrap_err().ours().word(), "certificate_not_valid_yet");
}

#[test]
fn nothing_is_verified_where_nothing_shall_be() {
    let certificate = files(&Authority::new("unknown"), &["b.example"]).certificate();
    for version in Version::ALL {
        let mut options = client_options(Verify::Nothing);
        options.versions = version..=version;
        options.names = vec!["spiffe://example/a".into()];
        let ours = Side::connect(&client(options), "a.example");
        let accepting = server(server_options(&certificate));
        let mut pair = establish(ours, Side::accept(&accepting), usize::MAX);
        let peer = pair.client.facts().peer.clone().unwrap();
        assert_eq!(peer.dns_names, ["b.example".into()]);
        pair.chat();
    }
}

#[test]
fn clients_show_certificates_where_they_have_to() {
    let (authority, other) = (Authority::new("root"), Authority::new("other"));
    let certificate = authority.certificate(P256, &["a.example"]);
    let good = authority.issue(&leaf_of(P256, &["spiffe://example/b", "b.example"]));
    let bad = other.issue(&leaf_of(P256, &["spiffe://example/b"]));
    let mut for_servers = leaf_of(P256, &["spiffe://example/b"]);
    for_servers.purposes = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let for_servers = authority.issue(&for_servers);
    let mut late = leaf_of(P256, &["spiffe://example/b"]);
    late.validity = -2 * HOUR..-HOUR;
    let late = authority.issue(&late);

    let (shown, late) = (good.certificate(), late.certificate());
    let (bad, for_servers) = (bad.certificate(), for_servers.certificate());
    let off = || ClientAuth::Off;
    let optional = || ClientAuth::Optional(authority.roots());
    let required = || ClientAuth::Required(authority.roots());
    /// Whether the client shows a certificate, or why its handshake fails.
    type Outcome = Result<bool, &'static str>;
    let cases: [(ClientAuth, Option<&Arc<Certificate>>, Outcome); 11] = [
        (off(), None, Ok(false)),
        (off(), Some(&shown), Ok(false)),
        (optional(), None, Ok(false)),
        (optional(), Some(&shown), Ok(true)),
        (optional(), Some(&bad), Err("certificate_unknown_issuer")),
        (optional(), Some(&late), Err("certificate_expired")),
        (required(), None, Err("certificate_required")),
        (required(), Some(&shown), Ok(true)),
        (required(), Some(&bad), Err("certificate_unknown_issuer")),
        (required(), Some(&late), Err("certificate_expired")),
        (required(), Some(&for_servers), Err("certificate_purpose_invalid")),
    ];
    for version in Version::ALL {
        for (client_auth, shown, expected) in &cases {
            let mut accepting = server_options(&certificate);
            accepting.versions = version..=version;
            accepting.client_auth = client_auth.clone();
            let mut connecting = client_options(Verify::Roots(authority.roots()));
            connecting.certificate = shown.cloned();
            let mut ours = Side::connect(&client(connecting), "a.example");
            let mut theirs = Side::accept(&server(accepting));
            let (received, result) = crate::kit::talk(&mut ours, &mut theirs, usize::MAX);
            match (result, expected) {
                (Ok(()), Ok(is_known)) => {
                    let pair = crate::kit::Pair {
                        client: ours.finish().unwrap(),
                        server: theirs.finish().unwrap(),
                    };
                    let peer = pair.server.facts().peer.as_ref();
                    assert_eq!(peer.is_some(), *is_known);
                    if let Some(peer) = peer {
                        assert_eq!(peer.uris, ["spiffe://example/b".into()]);
                        assert_eq!(peer.dns_names, ["b.example".into()]);
                        assert_eq!(&*peer.subject, "O=Example\\, Inc.,CN=a service");
                        assert_eq!(&*peer.issuer, "CN=root");
                        assert_eq!(peer.leaf_pem(), good.chain.replace('\r', ""));
                        assert_eq!(peer.fingerprint, good.certificate().fingerprint());
                        let kept = postcard::to_allocvec(pair.server.facts()).unwrap();
                        assert_eq!(postcard::from_bytes(&kept).as_ref(), Ok(pair.server.facts()));
                    }
                }
                (Err(error), Err(word)) => {
                    let error = error.ours();
                    assert_eq!(error.word(), *word);
                    // In TLS 1.3 the client is done before the alert reaches it.
                    if version == Version::Tls12 {
                        let alert = error.alert().unwrap();
                        let received = received.unwrap_err().ours();
                        let HandshakeError::AlertReceived(was) = received else {
                            panic!("{received}")
                        };
                        let is_received = was == alert || *word == "certificate_required";
                        assert!(is_received, "{was} {alert}");
                    }
                }
                (result, _) => panic!("{version} {client_auth:?}: {result:?}, not {expected:?}"),
            }
        }
    }
}

/// The verdict of a server that trusts `roots` on a client with `certificate`.
fn server_says(
    authority: &Authority,
    roots: &Arc<Roots>,
    names: &[&str],
    certificate: &Arc<Certificate>,
) -> Result<(), &'static str> {
    let mut accepting = server_options(&authority.certificate(P256, &["a.example"]));
    accepting.client_auth = ClientAuth::Required(Arc::clone(roots));
    accepting.client_names = names.iter().map(|&name| name.into()).collect();
    let mut connecting = client_options(Verify::Roots(authority.roots()));
    connecting.certificate = Some(Arc::clone(certificate));
    let mut ours = Side::connect(&client(connecting), "a.example");
    let mut theirs = Side::accept(&server(accepting));
    let (_, result) = crate::kit::talk(&mut ours, &mut theirs, usize::MAX);
    result.map_err(|error| error.ours().word())
}

#[test]
fn clients_may_have_to_have_a_name() {
    let authority = Authority::new("root");
    let names = ["spiffe://example/ns/shop/sa/web", "web.example"];
    let certificate = authority.certificate(P256, &names);
    for (asked, expected) in [
        (&[][..], Ok(())),
        (&["spiffe://example/ns/shop/sa/web"], Ok(())),
        (&["spiffe://example/ns/shop/*"], Ok(())),
        (&["web.example"], Ok(())),
        (&["api.example", "spiffe://example/*"], Ok(())),
        (&["spiffe://example/ns/shop/sa/we"], Err("certificate_not_accepted")),
        (&["spiffe://example/ns/shop/sa/web2"], Err("certificate_not_accepted")),
        (&["spiffe://other/*", "api.example"], Err("certificate_not_accepted")),
    ] {
        let said = server_says(&authority, &authority.roots(), asked, &certificate);
        assert_eq!(said, expected, "{asked:?}");
    }
    for name in ["", "a b", "*", "example/*"] {
        let mut options = server_options(&certificate);
        options.client_auth = ClientAuth::Optional(authority.roots());
        options.client_names = vec![name.into()];
        let error = tls::ServerContext::new(options).err();
        assert_eq!(error, Some(ContextError::NameInvalid(name.into())));
    }
}

#[test]
fn what_was_taken_back_is_refused_on_both_sides() {
    let authority = Authority::new("root");
    let (good, bad) = (authority.numbered(7), authority.numbered(8));
    let lists = |lists: &[String]| {
        let roots = Roots::from_pem(authority.pem().as_bytes()).unwrap();
        Arc::new(roots.with_revocations(lists.concat().as_bytes()).unwrap())
    };
    let current = lists(&[authority.revocations(&[8, 9], HOUR)]);
    let late = lists(&[authority.revocations(&[8], -HOUR / 2)]);
    let others = lists(&[Authority::new("other").revocations(&[7], HOUR)]);
    let (revoked, unknown) = ("certificate_revoked", "certificate_revocation_unknown");
    for (roots, certificate, expected) in [
        (&current, &good, Ok(())),
        (&current, &bad, Err(revoked)),
        (&late, &good, Err(unknown)),
        (&others, &good, Err(unknown)),
    ] {
        assert_eq!(server_says(&authority, roots, &[], certificate), expected);
        let options = client_options(Verify::Roots(Arc::clone(roots)));
        let mut ours = Side::connect(&client(options), "a.example");
        let mut theirs = Side::accept(&server(server_options(certificate)));
        let (said, _) = crate::kit::talk(&mut ours, &mut theirs, usize::MAX);
        assert_eq!(said.map_err(|error| error.ours().word()), expected);
    }
}

/// What `openssl ca -gencrl` makes where openssl.cnf sets neither `crl_extensions` nor `crlnumber`.
const FIRST_VERSION: &str = "\
-----BEGIN X509 CRL-----
MIGTMDswCgYIKoZIzj0EAwIwDTELMAkGA1UEAwwCdjEXDTI2MTEzMDIxMDczMloY
DzIxMjYxMTA2MjEwNzMyWjAKBggqhkjOPQQDAgNIADBFAiEAmFqXgiIOE5CJn7od
D05ajacwJEDe7usUGt5hoBokaa8CIEJnVmOQgY0sDzEaZt7fuguLrOOxpCCsSt2D
ULTjVLgT
-----END X509 CRL-----
";

#[test]
fn lists_that_are_none_are_refused() {
    let roots = || Roots::from_pem(Authority::new("root").pem().as_bytes()).unwrap();
    let broken = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
    for (pem, error) in [
        ("", RootsError::ListMissing),
        ("x", RootsError::ListMissing),
        (broken, RootsError::ListUnreadable(1)),
        (FIRST_VERSION, RootsError::ListVersion(1)),
    ] {
        assert_eq!(roots().with_revocations(pem.as_bytes()).err(), Some(error), "{pem}");
    }
}
