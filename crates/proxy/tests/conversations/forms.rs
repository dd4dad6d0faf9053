//! The form in which connections are written down: it changes together with its number.
//!
//! Another process may be of another version. It refuses a form whose number it does not know; one that is not
//! what its number says it would misread. `tests/forms` has what connections in many states are written
//! down as, in files that begin with the number, and each conversation here goes on from its file. Where one differs, the form has
//! changed: raise `save::VERSION`, remove the files, and run `BLESS=1 cargo test -p proxy --test conversations forms`, which
//! writes the corpus of the fuzz target `saved`, too.

mod http1;
mod http2;
mod relays;
mod tls;

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use proxy::save::VERSION;

use crate::kit::{Kinds, Peer, Setting, Talk, Variant};
use crate::saved;

/// What the fuzz target `saved` begins with: the same, as scripts of its check.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/saved");

/// Where the files are.
const FORMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/forms");

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The file of one state.
struct Kept<'n> {
    name: &'n str,
    is_used: Cell<bool>,
}

impl Kept<'_> {
    /// A peer's connection, and all that belongs to it, goes on from the file, with which it is compared.
    fn here(&self, talk: &mut Talk<'_>, peer: Peer) {
        talk.goes_on_from(peer, |saved| self.compared(&saved));
        assert!(!self.is_used.replace(true), "{} is one state", self.name);
    }

    fn compared(&self, saved: &[u8]) -> Vec<u8> {
        let file = Path::new(FORMS).join(format!("{VERSION}-{}", self.name));
        let kept = blessed(&file, saved);
        assert!(kept == saved, "{} is not written down as form {VERSION} has it", self.name);
        for choice in choices_of(self.name) {
            let script = [&[choice | setting_of(self.name)], saved].concat();
            let file = Path::new(CORPUS).join(format!("{}-{choice}", self.name));
            assert!(blessed(&file, &script) == script, "{}", file.display());
        }
        kept
    }
}

/// What a file has; with `BLESS`, this.
fn blessed(file: &PathBuf, content: &[u8]) -> Vec<u8> {
    if std::env::var_os("BLESS").is_some() && !file.exists() {
        fs::write(file, content).unwrap();
    }
    fs::read(file).unwrap_or_default()
}

/// Holds a conversation that goes on from the file with this name at one place.
fn keep(name: &str, config: &str, script: impl Fn(&mut Talk<'_>, &Kept<'_>)) {
    keep_of(name, &Setting::of(config), script);
}

/// The same, with filters of the test's own.
fn keep_with(name: &str, config: &str, kinds: Kinds, script: impl Fn(&mut Talk<'_>, &Kept<'_>)) {
    keep_of(name, &Setting::with(config, kinds), script);
}

fn keep_of(name: &str, setting: &Setting, script: impl Fn(&mut Talk<'_>, &Kept<'_>)) {
    // Shown if the script fails.
    println!("state {name}");
    let kept = Kept { name, is_used: Cell::new(false) };
    let mut talk = Talk::new(setting, Variant::Plain);
    script(&mut talk, &kept);
    assert!(kept.is_used.get(), "{name} is kept");
    talk.assert_at_rest();
}

/// What peers do in the scripts of the fuzz target `saved` that begin with this state.
fn choices_of(name: &str) -> Vec<u8> {
    let is_first = FIRST.contains(&name);
    if is_first { vec![0, 10, 20, 46] } else { vec![10] }
}

/// States whose scripts have several continuations.
const FIRST: [&str; 7] = [
    "http1-attempting",
    "http1-responding",
    "http1-waiting",
    "http2-calls",
    "idle-upstream",
    "rpc-calls",
    "tunnel",
];

/// The bits of a script that say which configuration its form is of.
fn setting_of(name: &str) -> u8 {
    u8::from(name.contains("http2")) | if name.contains("rpc") { 0x40 } else { 0 }
}

/// Whatever becomes of a byte on the way, nothing panics and nothing is left behind.
#[test]
fn a_kept_form_of_which_a_byte_has_changed_is_refused_or_taken_up() {
    for entry in fs::read_dir(FORMS).unwrap() {
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

/// The conversations.
const SOURCES: [&str; 4] = [
    include_str!("forms/http1.rs"),
    include_str!("forms/http2.rs"),
    include_str!("forms/relays.rs"),
    include_str!("forms/tls.rs"),
];

#[test]
fn each_file_is_of_a_state_and_of_this_form() {
    for entry in fs::read_dir(FORMS).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let state = name.strip_prefix(&format!("{VERSION}-"));
        let state = state.unwrap_or_else(|| panic!("{name}: another form"));
        let of_suite = tls::SUITES.iter().find_map(|(suite, _)| state.strip_prefix(suite));
        let state = format!("\"{}\"", of_suite.unwrap_or(state));
        assert!(SOURCES.iter().any(|source| source.contains(&state)), "{name} is of no state");
    }
}
