//! The form in which connections are written down: it changes together with its number.
//!
//! Another process may be of another version. It refuses a form whose number it does not know; one that is not
//! what its number says it would misread. `tests/forms` has what connections in several states are written
//! down as, in files that begin with the number. Where one differs, the form has changed: raise
//! `save::VERSION`, remove the files, and run `BLESS=1 cargo test -p proxy --test conversations forms`, which
//! writes the corpus of the fuzz target `saved`, too.

use std::fs;
use std::path::Path;
use std::time::Duration;

use proxy::save::VERSION;

use crate::frames::Speaker;
use crate::http2::TO_HTTP2;
use crate::keep_alive::CONFIG;
use crate::kit::{Peer, Talk, Variant, hold};
use crate::{rpc, saved};

const LOG: &str = "access_log: { output: stdout, fields: [request_headers.x-tenant] }\n";

/// What the fuzz target `saved` begins with: the same, as scripts of its check.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/saved");

/// Compares what a state is written down as with what is kept of it.
fn compare(config: &str, name: &str, state: impl Fn(&mut Talk<'_>) -> Peer) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forms");
    let file = folder.join(format!("{VERSION}-{name}"));
    hold(config, |talk| {
        if talk.variant() != Variant::Plain {
            return talk.leave_out();
        }
        let peer = state(talk);
        let saved = talk.saved(peer);
        if std::env::var_os("BLESS").is_some() && !file.exists() {
            fs::write(&file, &saved).unwrap();
        }
        let kept = fs::read(&file).unwrap_or_default();
        assert!(kept == saved, "{name} is not written down as form {VERSION} has it");
        for choice in [0, 10, 20, 46] {
            let script = [&[choice | setting_of(name)], &saved[..]].concat();
            let file = Path::new(CORPUS).join(format!("{name}-{choice}"));
            if std::env::var_os("BLESS").is_some() {
                fs::write(&file, &script).unwrap();
            }
            assert!(fs::read(&file).unwrap_or_default() == script, "{}", file.display());
        }
    });
}

/// The bits of a script that say which configuration its form is of.
fn setting_of(name: &str) -> u8 {
    u8::from(name.contains("http2")) | if name.contains("rpc") { 0x40 } else { 0 }
}

/// Whatever becomes of a byte on the way, nothing panics and nothing is left behind.
#[test]
fn a_kept_form_of_which_a_byte_has_changed_is_refused_or_taken_up() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forms");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let form = fs::read(&path).unwrap();
        let setting = setting_of(&path.to_string_lossy());
        for place in 2..form.len() {
            for (turn, value) in [0, 1, 2, 0x7f, 0x80, 0xff].into_iter().enumerate() {
                // What happens to the connection afterwards differs from value to value and place to place.
                let choice = u8::try_from((turn + place) % 32 * 2).unwrap() | setting;
                let mut script = [&[choice], &form[..]].concat();
                script[1 + place] = value;
                // Shown if the check fails.
                println!("{} with {value} at {place}, choice {choice}", path.display());
                saved::check(&script);
            }
        }
        for end in 0..form.len() {
            saved::check(&[&[setting], &form[..end]].concat());
        }
    }
}

#[test]
fn no_file_is_of_another_form() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forms");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name.starts_with(&format!("{VERSION}-")), "{name}");
    }
}

#[test]
fn an_exchange_of_http1_amid_its_response() {
    compare(&format!("{CONFIG}{LOG}"), "http1-responding", |talk| {
        let client = talk.client();
        talk.says(
            client,
            "POST /a?b HTTP/1.1\r\nHost: x\r\nX-Tenant: t\r\nContent-Length: 9\r\n\r\nhalf",
        );
        let upstream = talk.upstream();
        talk.passes(Duration::from_millis(5));
        talk.says(upstream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nhalf");
        client
    });
}

#[test]
fn an_exchange_of_http1_that_waits_for_its_response() {
    compare(CONFIG, "http1-attempting", |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\n");
        talk.upstream();
        client
    });
}

#[test]
fn an_exchange_in_the_queue() {
    compare(&format!("{CONFIG}    connections_max: 1\n"), "http1-waiting", |talk| {
        let (first, second) = (talk.client(), talk.client());
        talk.says(first, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.says(second, "GET /second HTTP/1.1\r\nHost: x\r\n\r\n");
        second
    });
}

#[test]
fn calls_on_streams_both_ways() {
    compare(TO_HTTP2, "http2-calls", |talk| {
        let mut client = Speaker::client(talk);
        let head = "POST /a.B/C HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc\r\nConnection: te\r\nTE: trailers\r\n\r\n";
        let call = client.asks(talk, head, false);
        let mut upstream = Speaker::upstream(talk);
        client.sends(talk, call, b"\0\0\0\0\x03ab", false);
        upstream.hears(talk);
        client.gets(talk, "/other");
        client.peer
    });
}

#[test]
fn calls_of_rpc_both_ways() {
    compare(rpc::CONFIG, "rpc-calls", |talk| {
        let client = talk.client();
        talk.says(client, rpc::call(7, "pay", "12"));
        let upstream = talk.upstream();
        talk.says(client, &rpc::call(8, "long", "a body")[..40]);
        talk.heard(upstream);
        client
    });
}

#[test]
fn a_tunnel() {
    compare(CONFIG, "tunnel", |talk| {
        let client = talk.client();
        talk.says(
            client,
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        let upstream = talk.upstream();
        talk.says(
            upstream,
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        client
    });
}

#[test]
fn an_idle_upstream_connection() {
    compare(CONFIG, "idle-upstream", |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let upstream = talk.upstream();
        talk.says(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
        upstream
    });
}
