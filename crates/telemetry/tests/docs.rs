//! The generated pages agree with the declarations. `BLESS=1` rewrites them.

use std::fs;
use std::path::Path;

fn check(name: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, expected).expect("docs/ can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/{name} is not up to date: run `BLESS=1 cargo test -p telemetry --test docs`"
    );
}

#[test]
fn metrics_page_is_up_to_date() {
    check("METRICS.md", &telemetry::metrics_reference());
}

#[test]
fn access_log_page_is_up_to_date() {
    check("access-log.md", &telemetry::access_log_reference());
}
