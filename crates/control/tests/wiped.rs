//! No memory that is given back holds the text of a private key. An allocator looks at each block when it
//! is freed: what a process has in memory later may have been overwritten by chance.
#![expect(clippy::unwrap_used, reason = "a test that finds nothing has failed")]
#![expect(unsafe_code, reason = "an allocator is an unsafe trait, and this one is in no product")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use config::{FilterKinds, Loader, ResourceKind, Text, Update};

const LINE_LEN: usize = 64;

/// A line of a private key, outside of what is freed.
static LINE: OnceLock<[u8; LINE_LEN]> = OnceLock::new();

/// Blocks that had it when they were freed.
static FOUND: AtomicUsize = AtomicUsize::new(0);

struct Looking;

/// Whether the line stands in a block.
fn holds_line(pointer: *const u8, len: usize) -> bool {
    let Some(line) = LINE.get() else { return false };
    // SAFETY: the place is within the block, which is its caller's until it is freed. What was never
    // written reads as whatever it is, since a volatile read is made as it stands.
    let at = |place: usize| unsafe { pointer.wrapping_add(place).read_volatile() };
    let places = (len + 1).saturating_sub(LINE_LEN);
    (0..places).any(|begin| line.iter().zip(begin..).all(|(octet, place)| at(place) == *octet))
}

// SAFETY: every call goes to the system's allocator as it came, and its answer back. A block that
// grows is one that is made, copied and freed, as the trait does it by itself.
unsafe impl GlobalAlloc for Looking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps to the contract of this same function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if holds_line(pointer, layout.size()) {
            FOUND.fetch_add(1, Ordering::Relaxed);
            // The next owner of the block may not write to all of it, and has not held the key.
            for place in 0..layout.size() {
                // SAFETY: the place is within the block, which is its caller's until it is freed.
                unsafe { pointer.wrapping_add(place).write_volatile(0) };
            }
        }
        // SAFETY: as above; the pointer came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Looking = Looking;

/// A line of the key at `path` that only the key has: it is in its second half, behind the public one.
fn private_line(path: &Path) -> [u8; LINE_LEN] {
    let mut text = [0; 8192];
    let len = File::open(path).unwrap().read(&mut text).unwrap();
    let lines = text.get(..len).unwrap().split(|octet| *octet == b'\n');
    let mut lines = lines.map(<[u8]>::trim_ascii).filter(|line| line.len() == LINE_LEN);
    lines.nth(16).unwrap().try_into().unwrap()
}

/// A secret with the certificate and the key in `folder`, in memory that is never moved: in YAML, or in JSON.
fn secret(folder: &Path, is_json: bool) -> Text {
    let mut text = String::with_capacity(1 << 16);
    text.push_str(if is_json { "{\"name\":\"site\"" } else { "name: site\n" });
    for (part, file) in [("chain", "site-rsa.pem"), ("key", "site-rsa.key")] {
        let mut pem = [0; 8192];
        let len = File::open(folder.join(file)).unwrap().read(&mut pem).unwrap();
        let pem = std::str::from_utf8(pem.get(..len).unwrap()).unwrap();
        text.push_str(if is_json { ",\"" } else { "" });
        text.push_str(part);
        text.push_str(if is_json { "\":\"" } else { ": |\n" });
        for line in pem.lines() {
            text.push_str(if is_json { "" } else { "  " });
            text.push_str(line);
            text.push_str(if is_json { "\\n" } else { "\n" });
        }
        text.push_str(if is_json { "\"" } else { "" });
    }
    text.push_str(if is_json { "}" } else { "" });
    text.into()
}

fn text(chain: &str, key: &str) -> String {
    format!(
        "listeners:
- name: edge
  address: 127.0.0.1:8443
  tls: {{ certificates: [{{ chain: {chain}, key: {key} }}] }}
  routes: all
routes: [{{ name: all, rules: [{{ match: {{ prefix: / }}, respond: {{ status: 204 }} }}] }}]
"
    )
}

#[test]
fn what_held_the_text_of_a_key_is_wiped_before_it_is_freed() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/tests/certificates");
    let folder = std::env::temp_dir().join(format!("strait-wiped-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for file in ["site.pem", "site.key", "site-rsa.pem", "site-rsa.key"] {
        fs::copy(from.join(file), folder.join(file)).unwrap();
    }
    LINE.set(private_line(&from.join("site-rsa.key"))).unwrap();
    // Chain and key may share a file.
    let both = ["site-rsa.pem", "site-rsa.key"].map(|file| fs::read(from.join(file)).unwrap());
    fs::write(folder.join("both.pem"), both.concat()).unwrap();
    drop(both);
    // What is freed is looked at: the key, and what was made of both.
    assert_eq!(FOUND.swap(0, Ordering::Relaxed), 2);

    let path = folder.join("strait.yaml");
    let mut loader = Loader::<()>::new(FilterKinds::new()).unwrap();
    for (chain, key) in
        [("site-rsa.pem", "site-rsa.key"), ("both.pem", "both.pem"), ("site.pem", "site.key")]
    {
        let files = control::Files::beside(&path);
        let snapshot = loader.load_with("strait.yaml", &text(chain, key), &files).unwrap();
        drop((snapshot, files));
        assert_eq!(FOUND.load(Ordering::Relaxed), 0, "{chain} {key}");
    }
    drop(loader);
    assert_eq!(FOUND.load(Ordering::Relaxed), 0);

    let mut loader = Loader::<()>::new(FilterKinds::new()).unwrap();
    loader.expect_sources();
    let listener = text("secret:site", "secret:site");
    let listener = listener.split_once("- ").unwrap().1.split_once("routes: [").unwrap().0;
    let listener = listener.replace("\n  ", "\n");
    loader.load("f", "listeners: []\nroutes: [{ name: all, rules: [] }]").unwrap();
    for is_json in [false, true] {
        let update = |kind, name: &str, content| Update {
            kind,
            name: name.into(),
            version: "1".into(),
            content: Some(content),
        };
        let updates = vec![
            update(ResourceKind::Secret, "site", secret(&folder, is_json)),
            update(ResourceKind::Listener, "edge", listener.as_str().into()),
        ];
        let files = control::Files::beside(&path);
        let done = loader.prepare_updates(&"folder".into(), updates, &[], &files);
        assert!(done.verdicts.iter().all(|it| it.refused.is_none()), "{:?}", done.verdicts);
        if let Some(prepared) = done.prepared {
            loader.keep(prepared);
        }
        assert_eq!(FOUND.load(Ordering::Relaxed), 0, "a delivered secret, in JSON: {is_json}");
    }
    drop(loader);
    assert_eq!(FOUND.load(Ordering::Relaxed), 0);
    fs::remove_dir_all(folder).unwrap();
}
