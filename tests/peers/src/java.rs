//! Java's own client and the files that it keeps certificates in.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};

use crate::lab::Lab;
use crate::pki::Pair;
use crate::process::Finished;

const FETCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/Fetch.java");

/// Of the files; the client knows it.
const PASSWORD: &str = "nothing secret";

/// Has `java.net.http` send bodies to `/echo` of a server with this name and a certificate from
/// `ca.pem`, and show a certificate if it is given one.
pub(crate) fn fetch(
    lab: &Lab,
    server: SocketAddr,
    name: &str,
    own: Option<&Pair>,
) -> Result<Finished> {
    let hosts = lab.write("hosts", format!("{} {name}\n", server.ip()))?;
    let hosts = format!("-Djdk.net.hosts.file={}", hosts.to_string_lossy());
    let url = format!("https://{name}:{}/echo", server.port());
    let mut arguments = vec![&*hosts, FETCH, &*url, trust(lab)?];
    if let Some(own) = own {
        arguments.push(wrap(lab, own)?);
    }
    lab.run("java", &arguments)
}

/// Writes `trusted.p12`, with what `ca.pem` holds.
fn trust(lab: &Lab) -> Result<&'static str> {
    let file = "trusted.p12";
    _ = std::fs::remove_file(lab.folder().join(file));
    let import = ["-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem"];
    let store = ["-keystore", file, "-storetype", "PKCS12", "-storepass", PASSWORD];
    lab.run("keytool", &[&import[..], &store].concat())?.ok().context("keytool")?;
    Ok(file)
}

/// Writes `own.p12`, with a certificate and its key.
fn wrap(lab: &Lab, pair: &Pair) -> Result<&'static str> {
    let (chain, key) = (pair.chain.to_string_lossy(), pair.key.to_string_lossy());
    let (file, password) = ("own.p12", format!("pass:{PASSWORD}"));
    let export = ["pkcs12", "-export", "-in", &chain, "-inkey", &key, "-out", file];
    lab.run("openssl", &[&export[..], &["-passout", &password]].concat())?.ok()?;
    Ok(file)
}
