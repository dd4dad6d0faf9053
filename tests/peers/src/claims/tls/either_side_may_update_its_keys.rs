//! A client and an upstream of TLS 1.3 take new keys, and ask Strait to, between and within messages;
//! what is said before and after arrives.

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::openssl::Session;
use crate::origin::Origin;
use crate::pattern;
use crate::peer::Peer;
use crate::pki::Authority;
use crate::process::Process;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Openssl, Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    client_updates(lab).context("client")?;
    upstream_updates(lab).context("upstream")
}

fn client_updates(lab: &Lab) -> Result<()> {
    const LEN: usize = 1_000_000;
    let origin = Origin::start()?;
    let strait = super::secured(lab, origin.address())?;
    let options = ["-tls1_3", "-msg", "-msgfile", "messages"];
    let mut session = Session::connect(lab, strait.address(), super::NAME, &options)?;
    let download = format!("GET /bytes/{LEN} HTTP/1.1\r\nhost: shop.example\r\n\r\n");
    for _ in 0..3 {
        // Its own keys, then those of both.
        for command in ["k", "K"] {
            session.types(&download)?;
            pattern::check(&*session.body(LEN)?, LEN)?;
            session.commands(command, "KEYUPDATE")?;
            // Digits, none of which is a command.
            let upload = "0123456789".repeat(10_000);
            let (front, rest) = upload.split_at(30_000);
            let len = upload.len();
            session.types(format!(
                "GET /echo HTTP/1.1\r\nhost: shop.example\r\ncontent-length: {len}\r\n\r\n{front}"
            ))?;
            session.commands(command, "KEYUPDATE")?;
            session.types(rest)?;
            ensure!(session.body(len)? == upload.as_bytes(), "another echo");
        }
    }
    let messages = std::fs::read_to_string(lab.folder().join("messages"))?;
    let (sent, answered) = (
        messages.matches(">>> TLS 1.3, Handshake [length 0005], KeyUpdate").count(),
        messages.matches("<<< TLS 1.3, Handshake [length 0005], KeyUpdate").count(),
    );
    ensure!((sent, answered) == (12, 6), "{sent} sent, {answered} answered");
    Ok(())
}

fn upstream_updates(lab: &Lab) -> Result<()> {
    let pair = Authority::new(lab, "ca")?.issue(lab, "site", super::NAME)?;
    let (mut server, address) = Session::listen(lab, &pair, &["-tls1_3", "-msg"])?;
    let cluster = format!("tls: {{ server_name: {}, ca: ca.pem }}", super::NAME);
    let options = Options { cluster: &cluster, ..Options::default() };
    let strait = Strait::forwarding_to(lab, address, options)?;
    let arguments = ["-sS", "--max-time", "50", &strait.url("/up")];
    let mut curl = Process::start(lab.folder(), "curl", &arguments)?;
    server.prints("GET /up HTTP/1.1")?;
    server.commands("k", ">>> TLS 1.3, Handshake [length 0005], KeyUpdate")?;
    server.types("HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n01234")?;
    let answer = "<<< TLS 1.3, Handshake [length 0005], KeyUpdate";
    for piece in ["56789", "01234", "56789"] {
        server.commands("K", answer)?;
        server.types(piece)?;
    }
    ensure!(curl.wait(wait::SOON)?.success(), "{}", curl.output());
    ensure!(curl.output() == "01234567890123456789", "{}", curl.output());
    Ok(())
}
