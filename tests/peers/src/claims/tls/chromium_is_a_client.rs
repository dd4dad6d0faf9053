//! Chromium, which knows the authority, loads a page and all that belongs to it: over HTTP/2 in TLS 1.3,
//! with a key exchange that quantum computers do not break. One that does not know it shows nothing.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Chromium, Peer::Certutil, Peer::Nginx], holds };

const SCRIPTS: usize = 40;

/// X25519MLKEM768, by its number in IANA's registry.
const GROUP: &str = r#""key_exchange_group":4588"#;

fn holds(lab: &Lab) -> Result<()> {
    let nginx = Nginx::start(lab, &site(lab)?)?;
    let strait = super::secured(lab, nginx.address())?;
    let printed = show(lab, &strait)?;
    ensure!(!printed.contains("It begins"), "{printed}");
    let asked = strait.metric("strait_exchanges_started_total")?;
    ensure!(asked == 0.0, "{asked} requests of a client that does not trust the CA");

    let database = lab.folder().join(".pki/nssdb");
    std::fs::create_dir_all(&database)?;
    let database = format!("sql:{}", database.display());
    lab.run("certutil", &["-d", &database, "-N", "--empty-password"])?.ok()?;
    let add = ["-d", &database, "-A", "-t", "C,,", "-n", "ca", "-i", "ca.pem"];
    lab.run("certutil", &add)?.ok()?;
    let printed = show(lab, &strait)?;
    let all: String = (0..SCRIPTS).map(|n| format!(" {n}")).collect();
    ensure!(printed.contains(&format!("<p>It begins{all}</p>")), "{printed}");
    // Beside the page, it asks for an icon.
    super::are_logged(&strait, SCRIPTS + 1, ("2.0", "1.3"), None)?;
    let events = std::fs::read_to_string(lab.folder().join("events.json"))?;
    ensure!(events.contains(GROUP), "another group");
    Ok(())
}

/// A page whose scripts, in their order, each add to it; and nginx's configuration for it.
fn site(lab: &Lab) -> Result<String> {
    let scripts: String = (0..SCRIPTS).map(|n| format!("<script src=/{n}.js></script>")).collect();
    let page = format!("<!doctype html><title>Shop</title><p>It begins</p>{scripts}");
    lab.write("page.html", page)?;
    for n in 0..SCRIPTS {
        let script = format!("document.querySelector('p').textContent += ' {n}'");
        lab.write(&format!("{n}.js"), script)?;
    }
    Ok(format!(
        "  types {{ text/html html; text/javascript js; }}
  server {{ listen LISTEN; root {}; }}",
        lab.folder().display()
    ))
}

/// What becomes of the page, in a browser that has nothing but what is in the lab's folder.
fn show(lab: &Lab, strait: &Strait) -> Result<String> {
    let home = format!("HOME={}", lab.folder().display());
    // Whatever else it would ask for, it finds nothing.
    let place = format!("MAP {} {}, MAP * ~NOTFOUND", super::NAME, strait.address());
    let place = format!("--host-resolver-rules={place}");
    let url = format!("https://{}/page.html", super::NAME);
    let browser = [
        &*home,
        "chromium",
        "--headless=new",
        // It would not start as root otherwise.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-first-run",
        "--user-data-dir=profile",
        "--log-net-log=events.json",
        "--dump-dom",
        &place,
        &url,
    ];
    Ok(lab.run("env", &browser)?.output)
}
