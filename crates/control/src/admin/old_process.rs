//! What `/connections` shows of the process whose place this one took, as long as that ends what it still has.
//!
//! It shows its connections itself, as objects in JSON, so that one of another version may say more of each or less. What comes is not
//! trusted: what is no object, or has no name, is left out.

use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::{mpsc, oneshot};

use super::Query;
use crate::moves::ConnectionId;

/// How long it may take to answer: it asks a worker, which may take a second.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// The process whose place this one took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldProcess {
    /// Its id.
    pub pid: u32,
    /// Whether it lists its connections. One of an earlier version does not.
    pub lists_connections: bool,
}

/// Some of its connections.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct OldRows {
    pub(super) rows: Vec<OldRow>,
    /// The worker and the slot to go on with, if there are more.
    pub(super) next: Option<(u32, u32)>,
}

/// One of them.
#[derive(Debug, PartialEq)]
pub(super) struct OldRow {
    /// Its worker and slot.
    pub(super) place: (u32, u32),
    /// What is shown of it, as an object in JSON.
    pub(super) text: String,
}

impl OldRows {
    /// Reads what the process with the id `pid` says of its connections, which get names that no connection of this one has.
    pub(crate) fn read(pid: u32, rows: &[String], next: Option<(u32, u32)>) -> Self {
        let rows = rows.iter().filter_map(|row| OldRow::read(pid, row));
        Self { rows: rows.collect(), next }
    }
}

/// What has to be in a row.
#[derive(Deserialize)]
struct Named<'r> {
    id: &'r str,
    process: Option<IgnoredAny>,
}

impl OldRow {
    /// Nothing is put together from parts: a map of each of ten thousand rows would leave the memory of the process in pieces.
    fn read(pid: u32, row: &str) -> Option<Self> {
        let named: Named<'_> = serde_json::from_str(row).ok()?;
        let id: ConnectionId = named.id.parse().ok()?;
        let members = row.strip_prefix('{').filter(|_| named.process.is_none())?;
        let (before, id_on) =
            members.split_at_checked(named.id.as_ptr().addr() - members.as_ptr().addr())?;
        let text = format!("{{\"process\":{pid},{before}{pid}:{id_on}");
        Some(Self { place: (id.worker, id.slot), text })
    }
}

/// That process, if it is there.
pub(super) async fn find(queries: &mpsc::Sender<Query>) -> Option<OldProcess> {
    let (reply, answer) = oneshot::channel();
    queries.send(Query::OldProcess { reply }).await.ok()?;
    tokio::time::timeout(TIMEOUT, answer).await.ok()?.ok()?
}

/// Its connections from a worker and a slot on; none if it does not answer in time.
pub(super) async fn connections(
    (worker, slot): (u32, u32),
    queries: &mpsc::Sender<Query>,
) -> Option<OldRows> {
    let (reply, answer) = oneshot::channel();
    queries.send(Query::OldConnections { worker, slot, reply }).await.ok()?;
    tokio::time::timeout(TIMEOUT, answer).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_another_process_get_its_name_and_damaged_ones_are_left_out() {
        let row = r#"{"id":"1.17.2","worker":1,"slot":17,"state":"idle","a later field":[1]}"#;
        let read = |row: &str| OldRows::read(9, &[row.to_owned()], None).rows;
        let [OldRow { place, text: shown }] = &*read(row) else { panic!() };
        assert_eq!(*place, (1, 17));
        assert!(
            shown.contains(r#""id":"9:1.17.2""#) && shown.contains(r#""process":9"#),
            "{shown}"
        );
        assert!(shown.contains("a later field"), "{shown}");
        let shown: serde_json::Value = serde_json::from_str(shown).unwrap();
        assert_eq!((&shown["slot"], &shown["state"]), (&17.into(), &"idle".into()));
        for end in 0..row.len() {
            assert_eq!(read(&row[..end]), [], "{end}");
        }
        for damaged in [
            "[]",
            "{}",
            r#"{"id":7}"#,
            r#"{"id":"9:1.2.3"}"#,
            r#"{"id":"1.2.3","id":"1.2.3"}"#,
            r#"{"id":"1.2.3","process":1}"#,
            r#"{"id":"1.2\u002e3"}"#,
            r#"["1.2.3"]"#,
            r#" {"id":"1.2.3"}"#,
            r#"{"id":"1.2.3"}}"#,
            "null",
            "\0",
        ] {
            assert_eq!(read(damaged), [], "{damaged}");
        }
        assert_eq!(read(&format!("{}1", "[".repeat(60_000))), []);
    }
}
