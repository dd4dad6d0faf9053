//! sslyze finds a listener with defaults to take two versions and their suites with AEAD and forward
//! secrecy alone, with none of the weaknesses that it knows: as Mozilla's intermediate profile has it.
//!
//! It is not asked about tickets: it takes a session to be new if it brings a new ticket.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Sslyze], holds };

const OLD_VERSIONS: [&str; 4] = ["ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"];

const SUITES: [(&str, &[&str]); 2] = [
    (
        "tls_1_2",
        &[
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        ],
    ),
    (
        "tls_1_3",
        &["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"],
    ),
];

const CURVES: [&str; 3] = ["X25519", "secp256r1", "secp384r1"];

/// All that it knows apart from tickets and the certificate, whose numbers are too long to be read.
const SCANS: [&str; 15] = [
    "--sslv2",
    "--sslv3",
    "--tlsv1",
    "--tlsv1_1",
    "--tlsv1_2",
    "--tlsv1_3",
    "--heartbleed",
    "--openssl_ccs",
    "--robot",
    "--compression",
    "--reneg",
    "--fallback",
    "--early_data",
    "--ems",
    "--elliptic_curves",
];

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = super::secured_with_both_keys(lab, origin.address())?;
    let program = Peer::Sslyze.program().context("sslyze")?;
    let server = strait.address().to_string();
    let name = format!("--sni={}", super::NAME);
    let run = |options: &[&str]| {
        lab.run(&program.to_string_lossy(), &[options, &[&name, &server]].concat())
    };
    run(&[&["--mozilla_config=disable", "--json_out=scan.json"], &SCANS[..]].concat())?.ok()?;
    let scan: Value = serde_json::from_slice(&std::fs::read(lab.folder().join("scan.json"))?)?;
    let found = |path: &str| {
        let path = format!("/server_scan_results/0/scan_result/{path}");
        scan.pointer(&path).with_context(|| format!("{path} in {scan}"))
    };
    for version in OLD_VERSIONS {
        let path = format!("{version}_cipher_suites/result/is_tls_version_supported");
        ensure!(found(&path)? == &json!(false), "{version}");
    }
    let names = |path: &str, of: &str| {
        let name = |each: &Value| each.pointer(of)?.as_str().map(str::to_owned);
        let list = found(path)?.as_array().with_context(|| format!("{path} is no list"))?;
        let mut names: Vec<_> = list.iter().filter_map(name).collect();
        names.sort();
        anyhow::Ok(names)
    };
    for (version, suites) in SUITES {
        let path = format!("{version}_cipher_suites/result/accepted_cipher_suites");
        let accepted = names(&path, "/cipher_suite/name")?;
        ensure!(accepted == suites, "{version}: {accepted:?}");
    }
    let curves = names("elliptic_curves/result/supported_curves", "/name")?;
    ensure!(curves == CURVES, "{curves:?}");
    for (path, wanted) in [
        ("heartbleed/result/is_vulnerable_to_heartbleed", json!(false)),
        ("openssl_ccs_injection/result/is_vulnerable_to_ccs_injection", json!(false)),
        ("robot/result/robot_result", json!("NOT_VULNERABLE_RSA_NOT_SUPPORTED")),
        ("tls_compression/result/supports_compression", json!(false)),
        ("session_renegotiation/result/client_renegotiations_success_count", json!(0)),
        ("session_renegotiation/result/supports_secure_renegotiation", json!(true)),
        ("tls_fallback_scsv/result/supports_fallback_scsv", json!(true)),
        ("tls_1_3_early_data/result/supports_early_data", json!(false)),
        ("tls_extended_master_secret/result/supports_ems_extension", json!(true)),
    ] {
        ensure!(found(path)? == &wanted, "{path}: {}", found(path)?);
    }
    // It exits with an error for the certificate alone.
    let printed = run(&["--mozilla_config=intermediate"])?.output;
    let (_, profile) = printed.split_once(r#"Mozilla's "intermediate""#).context("no verdict")?;
    let objections = profile.lines().filter_map(|line| line.trim().strip_prefix("* "));
    for objection in objections {
        // No public CA has signed the certificate.
        ensure!(objection.contains("certificate"), "{printed}");
    }
    Ok(())
}
