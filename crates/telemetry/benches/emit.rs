//! What an event costs the worker, and what a line of the access log costs control.
fn main() {
    divan::main();
}
