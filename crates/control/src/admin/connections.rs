//! `/connections`: what workers report of their connections, a page at a time; and behind them those that stay with the process whose
//! place this one took.

use std::time::Duration;

use config::reports::{ConnectionSide, ConnectionSummaries};
use config::snapshot::Snapshot;
use serde::Serialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::Query;
use super::answer::Answer;
use super::old_process::{self, OldRow};
use crate::handover::ListedRows;
use crate::moves::{ConnectionId, Moved, NotMoved};
use crate::names::address_text;

/// Connections on a page.
const LIMIT_MAX: usize = 10_000;
const LIMIT_DEFAULT: usize = 100;

/// How long a worker may take to describe connections: some turns.
const WORKER_TIMEOUT: Duration = Duration::from_secs(1);

/// Answers of the old process for a page. Each has the connections in some hundred slots, of which there may be none.
const OLD_ANSWERS_MAX: usize = 1000;

/// Bytes of a target for another process.
const WRITTEN_TARGET_BYTES_MAX: usize = 1024;

/// Connections with the names of what they belong to, ready to be shown.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    rows: Vec<Row>,
    next: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Row {
    id: String,
    worker: u32,
    slot: u32,
    side: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    listener: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    cluster: String,
    peer: String,
    state: &'static str,
    age_seconds: f64,
    requests: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    streams: Option<usize>,
    inbox_bytes: usize,
    outbox_bytes: usize,
    #[serde(skip_serializing_if = "String::is_empty")]
    target: String,
}

impl Rows {
    /// Those of a worker as another process reads them.
    pub(crate) fn write(mut self, worker: u32) -> ListedRows {
        let write = |row: &mut Row| {
            // What is cut off is in the log. Several rows go in one packet.
            row.target.truncate(row.target.floor_char_boundary(WRITTEN_TARGET_BYTES_MAX));
            // Rows hold nothing that JSON cannot say.
            ((row.worker, row.slot), serde_json::to_string(row).unwrap_or_default())
        };
        let rows = self.rows.iter_mut().map(write).collect();
        let next = (worker.saturating_add(1), 0);
        let next = self.next.map_or(next, |slot| (worker, slot));
        ListedRows { rows, next: Some(next) }
    }

    /// Names what `described` belongs to. What `snapshot` no longer has is named as gone.
    pub(crate) fn new<F>(
        worker: u32,
        described: ConnectionSummaries,
        snapshot: &Snapshot<F>,
    ) -> Self {
        let gone = || "(removed)".to_owned();
        let rows = described.connections.into_iter().map(|connection| {
            let (side, listener, cluster, endpoint) = match connection.side {
                ConnectionSide::Downstream(id) => {
                    let found = snapshot.listener(id);
                    let name = found.map_or_else(gone, |(_, listener)| listener.name.to_string());
                    ("downstream", name, String::new(), None)
                }
                ConnectionSide::Upstream(id, endpoint) => {
                    let found = snapshot.cluster(id);
                    let name = found.map_or_else(gone, |cluster| cluster.name.to_string());
                    let endpoints = found.map_or(&[][..], |cluster| &cluster.endpoints);
                    let endpoint = endpoints.iter().find(|known| known.id == endpoint);
                    ("upstream", String::new(), name, endpoint)
                }
            };
            let peer = match (connection.peer, endpoint, connection.side) {
                (Some(peer), ..) => peer.to_string(),
                (None, Some(endpoint), _) => address_text(&endpoint.address),
                (None, None, ConnectionSide::Upstream(..)) => gone(),
                (None, None, ConnectionSide::Downstream(_)) => "unix".to_owned(),
            };
            let (slot, generation) = (connection.slot, connection.generation);
            Row {
                id: ConnectionId { worker, slot, generation }.to_string(),
                worker,
                slot,
                side,
                listener,
                cluster,
                peer,
                state: connection.state,
                age_seconds: connection.age.as_secs_f64(),
                requests: connection.requests,
                streams: connection.streams,
                inbox_bytes: connection.inbox_bytes,
                outbox_bytes: connection.outbox_bytes,
                target: connection.target,
            }
        });
        Self { rows: rows.collect(), next: described.next }
    }
}

/// What `?limit=` and `?after=` ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    limit: usize,
    /// Whose connections to begin with: those of this process, or of the old one with this id.
    process: Option<u32>,
    /// Where to begin.
    worker: u32,
    slot: u32,
}

impl Wanted {
    pub(super) fn new(limit: Option<&str>, after: Option<&str>) -> Result<Self, String> {
        let limit = match limit.map(str::parse::<usize>) {
            None => LIMIT_DEFAULT,
            Some(Ok(limit)) if (1..=LIMIT_MAX).contains(&limit) => limit,
            Some(_) => return Err(format!("limit: a number from 1 to {LIMIT_MAX}")),
        };
        let place = |after: &str| {
            let (process, after) = match after.split_once(':') {
                Some((process, after)) => (Some(process.parse().ok()?), after),
                None => (None, after),
            };
            let (worker, slot) = after.split_once('.')?;
            Some((process, worker.parse().ok()?, slot.parse().ok()?))
        };
        let (process, worker, slot) = match after {
            None => (None, 0, 0),
            Some(after) => {
                place(after).ok_or("after: the value from `next` of the previous page")?
            }
        };
        Ok(Self { limit, process, worker, slot })
    }
}

/// The page: asks one worker after the other until there are enough, and then the old process.
pub(super) async fn page(wanted: Wanted, workers: u32, queries: &mpsc::Sender<Query>) -> Answer {
    let mut page = Listed::default();
    let old_place = match wanted.process {
        Some(pid) => Some((Some(pid), wanted.worker, wanted.slot)),
        None => match page.add_own(wanted, workers, queries).await {
            Ok(()) if page.next.is_none() => Some((None, 0, 0)),
            Ok(()) => None,
            Err(answer) => return answer,
        },
    };
    if let Some((pid, worker, slot)) = old_place {
        page.add_old(wanted.limit, pid, (worker, slot), queries).await;
    }
    Answer::json_bytes(200, page.render())
}

/// What a page shows.
#[derive(Debug, Default)]
struct Listed {
    rows: Vec<Row>,
    old: Vec<OldRow>,
    /// The old process, and why its connections are not shown, if they are not.
    old_process: Option<(u32, Option<&'static str>)>,
    /// The path of the next page.
    next: Option<String>,
}

impl Listed {
    /// Adds connections of this process.
    async fn add_own(
        &mut self,
        wanted: Wanted,
        workers: u32,
        queries: &mpsc::Sender<Query>,
    ) -> Result<(), Answer> {
        let rows = &mut self.rows;
        let (mut worker, mut first) = (wanted.worker, wanted.slot);
        while worker < workers {
            let (reply, answer) = oneshot::channel();
            let query = Query::Connections { worker, first, reply };
            let is_asked = queries.send(query).await.is_ok();
            let Ok(Ok(found)) = tokio::time::timeout(WORKER_TIMEOUT, answer).await else {
                let why = if is_asked { "did not answer in time" } else { "has ended" };
                return Err(Answer::text(503, format!("worker {worker} {why}\n")));
            };
            let room = wanted.limit - rows.len();
            let cut = found.rows.get(room).map(|row| row.slot);
            rows.extend(found.rows.into_iter().take(room));
            (worker, first) = match cut.or(found.next) {
                Some(slot) => (worker, slot),
                None => (worker + 1, 0),
            };
            if rows.len() == wanted.limit && worker < workers {
                self.next =
                    Some(format!("/connections?limit={}&after={worker}.{first}", wanted.limit));
                break;
            }
        }
        Ok(())
    }

    /// Adds connections of the old process, if there is one: of that with the id `pid`, where the page before named it.
    async fn add_old(
        &mut self,
        limit: usize,
        pid: Option<u32>,
        (mut worker, mut slot): (u32, u32),
        queries: &mpsc::Sender<Query>,
    ) {
        let Some(old) = old_process::find(queries).await else { return };
        if pid.is_some_and(|pid| pid != old.pid) {
            // That has ended meanwhile.
            return;
        }
        if !old.lists_connections {
            self.old_process = Some((old.pid, Some("its version does not list its connections")));
            return;
        }
        self.old_process = Some((old.pid, None));
        for answer in 0.. {
            let room = limit.saturating_sub(self.rows.len() + self.old.len());
            if room == 0 || answer == OLD_ANSWERS_MAX {
                let place = format!("{}:{worker}.{slot}", old.pid);
                self.next = Some(format!("/connections?limit={limit}&after={place}"));
                return;
            }
            let Some(found) = old_process::connections((worker, slot), queries).await else {
                self.old_process = Some((old.pid, Some("it did not answer in time")));
                return;
            };
            let cut = found.rows.get(room).map(|row| row.place);
            self.old.extend(found.rows.into_iter().take(room));
            // It goes on, whatever the other process says.
            match cut.or(found.next).filter(|next| *next > (worker, slot)) {
                Some(next) => (worker, slot) = next,
                None => return,
            }
        }
    }

    /// One connection a line, so that `grep` is of use.
    fn render(&self) -> Vec<u8> {
        let mut out = b"{\"connections\":[".to_vec();
        // Rows hold nothing that JSON cannot say.
        let own = self.rows.iter().map(|row| serde_json::to_vec(row).unwrap_or_default());
        let old = self.old.iter().map(|row| row.text.clone().into_bytes());
        for (place, row) in own.chain(old).enumerate() {
            out.extend_from_slice(if place == 0 { b"\n" } else { b",\n" });
            out.extend(row);
        }
        let old_process =
            self.old_process.map(|(pid, error)| json!({ "pid": pid, "error": error }));
        let (next, old_process) = (json!(self.next), json!(old_process));
        out.extend_from_slice(
            format!("\n],\"next\":{next},\"old_process\":{old_process}}}\n").as_bytes(),
        );
        out
    }
}

/// What came of a move.
pub(super) fn moved(result: Result<Moved, NotMoved>) -> Answer {
    match result {
        Ok(Moved { connection, group }) => {
            Answer::json(&serde_json::json!({ "id": connection.to_string(), "moved": group }))
        }
        Err(error) => Answer::text(error.status(), format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_places_are_checked() {
        let of = |process, limit, worker, slot| Ok(Wanted { limit, process, worker, slot });
        let wanted = |limit, worker, slot| of(None, limit, worker, slot);
        assert_eq!(Wanted::new(None, None), wanted(100, 0, 0));
        assert_eq!(Wanted::new(Some("10000"), Some("3.17")), wanted(10_000, 3, 17));
        assert_eq!(Wanted::new(None, Some("4711:3.17")), of(Some(4711), 100, 3, 17));
        for limit in ["0", "10001", "-1", "x", ""] {
            assert!(Wanted::new(Some(limit), None).unwrap_err().starts_with("limit"), "{limit}");
        }
        for after in ["", "1", "1.", ".1", "a.b", "1.2.3", ":1.2", "a:1.2", "1:2:1.2", "-1:1.2"] {
            assert!(Wanted::new(None, Some(after)).unwrap_err().starts_with("after"), "{after}");
        }
    }

    fn row(worker: u32, slot: u32) -> Row {
        Row {
            id: String::new(),
            worker,
            slot,
            side: "downstream",
            listener: "edge".to_owned(),
            cluster: String::new(),
            peer: "127.0.0.1:1".to_owned(),
            state: "idle",
            age_seconds: 0.5,
            requests: 1,
            streams: None,
            inbox_bytes: 0,
            outbox_bytes: 0,
            target: String::new(),
        }
    }

    #[test]
    fn the_documentation_has_every_key() {
        let page = include_str!("../../../../docs/admin.md");
        let (_, section) = page.split_once("\n## `/connections`\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let texts = || "x".to_owned();
        let whole = Row { cluster: texts(), target: texts(), streams: Some(1), ..row(0, 0) };
        let row = serde_json::to_value(whole).unwrap();
        for key in row.as_object().unwrap().keys() {
            assert!(section.contains(&format!("\n| `{key}` | ")), "{key}");
        }
        let page: serde_json::Value = serde_json::from_slice(&Listed::default().render()).unwrap();
        for key in page.as_object().unwrap().keys() {
            assert!(section.contains(&format!("`{key}`")), "{key}");
        }
    }

    /// A data path whose workers have connections in the slots 0, 2, 4 …, up to `count` each.
    async fn slots_of(
        wanted: Wanted,
        workers: u32,
        count: u32,
    ) -> (Vec<(u32, u32)>, Option<String>) {
        let (sender, mut queries) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(Query::Connections { worker, first, reply }) = queries.recv().await {
                let last = (first + 4).min(2 * count);
                let rows = (first..last).filter(|slot| slot % 2 == 0).map(|slot| row(worker, slot));
                let next = (last < 2 * count).then_some(last);
                let _ = reply.send(Rows { rows: rows.collect(), next });
            }
        });
        let answer = page(wanted, workers, &sender).await;
        let page: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        let number =
            |row: &serde_json::Value, key: &str| u32::try_from(row[key].as_u64().unwrap()).unwrap();
        let rows = page["connections"].as_array().unwrap();
        let slots = rows.iter().map(|row| (number(row, "worker"), number(row, "slot"))).collect();
        (slots, page["next"].as_str().map(str::to_owned))
    }

    #[tokio::test]
    async fn pages_of_any_size_show_every_connection_once() {
        let whole: Vec<_> = (0..2).flat_map(|w| (0..5).map(move |slot| (w, 2 * slot))).collect();
        for limit in 1..=11 {
            let mut seen = Vec::new();
            let mut after: Option<String> = None;
            loop {
                let wanted = Wanted::new(Some(&limit.to_string()), after.as_deref()).unwrap();
                let (slots, next) = slots_of(wanted, 2, 5).await;
                assert!(slots.len() <= limit);
                seen.extend(slots);
                let Some(next) = next else { break };
                after = Some(next.split_once("after=").unwrap().1.to_owned());
            }
            assert_eq!(seen, whole, "limit {limit}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_does_not_answer_is_named() {
        let (sender, mut queries) = mpsc::channel(1);
        let silent = tokio::spawn(async move {
            let query = queries.recv().await;
            std::future::pending::<()>().await;
            drop(query);
        });
        let answer = page(Wanted::new(None, None).unwrap(), 1, &sender).await;
        assert_eq!(
            (answer.status, answer.body),
            (503, b"worker 0 did not answer in time\n".to_vec())
        );
        silent.abort();
    }
}
