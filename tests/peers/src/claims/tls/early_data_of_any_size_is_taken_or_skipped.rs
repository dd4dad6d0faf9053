//! s_client sends all the early data that it may, in records as large and as small as it makes them:
//! a listener that takes early data answers it, and every other goes on after the handshake, also
//! where that takes a HelloRetryRequest.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::pattern::Pattern;
use crate::peer::Peer;
use crate::ports;
use crate::strait::{Options, Strait, local};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Openssl], holds };

/// What a client may send of it, as a ticket says.
const EARLY_DATA_BYTES_MAX: usize = 16 << 10;

/// s_client reads the file of its early data in pieces of this size, and makes a record of each.
const PIECE: usize = 8 << 10;

/// The smallest records that OpenSSL makes.
const SMALL: [&str; 2] = ["-max_send_frag", "512"];

/// The first group is unknown to Strait, so that it asks for a share of the second.
const RETRY: [&str; 2] = ["-groups", "P-521:X25519"];

const ACCEPTED: &str = "Early data was accepted";
const REJECTED: &str = "Early data was rejected";

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    super::issue_site(lab)?;
    let taking = local(ports::free()?);
    let tls = "certificates: [{ chain: site.pem, key: site.key }]";
    let listeners = format!(
        "- name: early
  address: \"{taking}\"
  tls: {{ {tls}, early_data: true }}
  routes: everything"
    );
    let refusing = format!("tls: {{ {tls}, early_data: false }}");
    let options = Options { listener: &refusing, listeners: &listeners, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    for (file, len) in [("whole", PIECE), ("two", EARLY_DATA_BYTES_MAX)] {
        lab.write(file, request(len)?)?;
    }

    let mut accepted = 0;
    for file in ["whole", "two"] {
        for records in [&[][..], &SMALL] {
            for groups in [&[][..], &RETRY] {
                let client = [&["-tls1_3"], records, groups].concat();
                super::visit(lab, taking, &["-tls1_3", "-sess_out", "session"])?;
                let come = [&client[..], &["-sess_in", "session", "-early_data", file]].concat();
                let is_retried = !groups.is_empty();
                // The session is of the other listener: it is not known here, and still good there.
                for (server, is_taken) in [(strait.address(), false), (taking, !is_retried)] {
                    let printed = super::visit(lab, server, &come)?;
                    let verdict = if is_taken { ACCEPTED } else { REJECTED };
                    ensure!(printed.contains(verdict), "{come:?}, not {verdict:?}: {printed}");
                    let answers = printed.matches("HTTP/1.1 200 OK").count();
                    ensure!(answers == 1 + usize::from(is_taken), "{come:?}: {answers}: {printed}");
                    ensure!(printed.contains("GET /seen HTTP/1.1"), "{come:?}: {printed}");
                    ensure!(printed.contains("as sent") == is_taken, "{come:?}: {printed}");
                    accepted += u32::from(is_taken);
                }
            }
        }
    }
    let page = strait.admin("/metrics")?.text();
    let early =
        format!("strait_tls_handshakes_total{{listener=\"early\",kind=\"early\"}} {accepted}\n");
    ensure!(page.contains(&early), "no {early:?} in {page}");
    ensure!(strait.metric("strait_tls_handshakes_failed_total")? == 0.0, "{page}");
    Ok(())
}

/// A request of this length, with a body of the pattern that the upstream checks. GET is safe, and
/// may come early.
fn request(len: usize) -> Result<Vec<u8>> {
    let head = |body: usize| {
        format!("GET /check/{body} HTTP/1.1\r\nHost: early\r\nContent-Length: {body}\r\n\r\n")
    };
    // The lengths that stand in the head have as many digits as that of the whole.
    let body = len - head(len).len();
    let head = head(body);
    ensure!(head.len() + body == len, "{} bytes of head for {len}", head.len());
    let mut request = head.into_bytes();
    Pattern::new().write(&mut request, body)?;
    Ok(request)
}
