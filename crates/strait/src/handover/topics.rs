//! What a process knows and counts that the next one goes on with, beside connections: the list of all topics.
//!
//! Whatever keeps something for a worker or the process, and not for a connection, is part of one of them, or has a topic of
//! its own here: both sides go through the list and handle each, and docs/handover.md describes each.

/// One value of what a process keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    /// Counters and histograms.
    Totals,
    /// Endpoints that are ejected, unhealthy or drained, and the limits and values that go with them.
    Health,
    /// Slow requests.
    Slow,
    /// The process's own keys of session tickets.
    TicketKeys,
    /// Sessions that are valid for early data.
    EarlySessions,
    /// What workers have learned of clusters and endpoints.
    Balancing,
    /// How the handover went.
    Summary,
}

/// When a process sends a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// As soon as the other process serves.
    Serving,
    /// At COMMIT.
    Commit,
    /// To the service manager's store, at the end of the process.
    Stored,
}

impl Topic {
    /// In the order in which they are sent: of what the other process needs to serve, health comes first.
    pub(super) const ALL: [Self; 7] = [
        Self::Totals,
        Self::Health,
        Self::Slow,
        Self::TicketKeys,
        Self::EarlySessions,
        Self::Balancing,
        Self::Summary,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Totals => "totals",
            Self::Health => "health",
            Self::Slow => "slow",
            Self::TicketKeys => "ticket_keys",
            Self::EarlySessions => "early_sessions",
            Self::Balancing => "balancing",
            Self::Summary => "summary",
        }
    }

    /// The topic of this name; none if this version does not know it.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.name() == name)
    }

    /// When it is sent.
    pub(super) const fn sent(self) -> &'static [Sent] {
        match self {
            Self::Health | Self::TicketKeys => &[Sent::Serving, Sent::Commit, Sent::Stored],
            Self::Totals | Self::Slow | Self::EarlySessions => &[Sent::Commit, Sent::Stored],
            // Not again at COMMIT: the other process takes its own turns from the first on.
            Self::Balancing => &[Sent::Serving, Sent::Stored],
            Self::Summary => &[Sent::Commit],
        }
    }

    /// Those that are sent then, each with what `write` returns for it; none if `write` has none for one of them.
    pub(super) fn written<V>(
        sent: Sent,
        mut write: impl FnMut(Self) -> Option<V>,
    ) -> Option<Vec<(String, V)>> {
        let due = Self::ALL.into_iter().filter(|topic| topic.sent().contains(&sent));
        due.map(|topic| Some((topic.name().to_owned(), write(topic)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the table of topics: name, and when it is sent.
    fn documented() -> Vec<(String, String)> {
        let page = include_str!("../../../../docs/handover.md");
        let (_, section) = page.split_once("\n## State\n").unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        let row = |row: &str| {
            let (name, rest) = row.split_once("` | ").unwrap();
            (name.to_owned(), rest.split(" | ").next().unwrap().to_owned())
        };
        rows.map(row).collect()
    }

    #[test]
    fn the_documentation_describes_each_topic_and_no_other() {
        let mut documented = documented();
        let text = |sent: &Sent| match sent {
            Sent::Serving => "serving",
            Sent::Commit => "commit",
            Sent::Stored => "store",
        };
        let row = |topic: Topic| {
            let sent: Vec<_> = topic.sent().iter().map(text).collect();
            (topic.name().to_owned(), sent.join(", "))
        };
        let mut known = Topic::ALL.map(row).to_vec();
        known.sort();
        documented.sort();
        assert_eq!(documented, known);
        for topic in Topic::ALL {
            assert_eq!(Topic::named(topic.name()), Some(topic));
        }
    }

    #[test]
    fn what_cannot_be_written_sends_nothing_behind_it() {
        let mut asked = Vec::new();
        let written = Topic::written(Sent::Commit, |topic| {
            asked.push(topic);
            (topic != Topic::Health).then_some(())
        });
        assert_eq!(written, None);
        // Sessions for early data are given away when they are written.
        assert_eq!(asked, [Topic::Totals, Topic::Health]);
    }
}
