//! Keys, answers, and what the screen then looks like.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::{Value, json};

use super::sample::{Answer, Memory};
use super::screen;
use super::state::{Then, Top, TopSort, View};
use crate::arguments::TopOptions;

fn top() -> Top {
    Top::new(&TopOptions {
        admin: "127.0.0.1:9901".to_owned(),
        view: View::Clusters,
        sort: TopSort::Exchanges,
        filter: None,
        interval: Duration::from_secs(1),
        once: false,
        limit: 100,
    })
}

fn cluster(name: &str, requests: u64, failed: u64, seconds: f64) -> Value {
    json!({
        "name": name,
        "endpoints": 2,
        "connections": { "active": 3, "idle": 2, "total": 5, "failed_total": 0 },
        "exchanges": {
            "pending": 0, "total": requests, "failed_total": failed,
            "timed_total": requests, "seconds_total": seconds,
        },
    })
}

fn answer(state: &str, page: &Value) -> Result<Answer, String> {
    let memory = "process_resident_memory_bytes 104857600\nstrait_memory_max_bytes 0\n";
    let body = serde_json::to_vec(page).unwrap();
    Ok(Answer { state: state.to_owned(), memory: memory.to_owned(), body })
}

const READY: &str = "ready\nconfiguration version 7 of /etc/strait/strait.yaml serves\n";

fn list(matched: usize, clusters: &[Value]) -> Value {
    json!({ "matched": matched, "clusters": clusters })
}

/// The answer to what is asked now.
fn tell(top: &mut Top, answer: Result<Answer, String>, seconds: u64) {
    top.on_answer(&top.question(), answer, Duration::from_secs(seconds));
}

fn press(top: &mut Top, keys: &[KeyCode]) -> Then {
    let mut then = Then::GoOn;
    for key in keys {
        then = top.on_key(KeyEvent::new(*key, KeyModifiers::NONE));
    }
    then
}

/// The screen, without spaces at the ends of lines.
fn drawn(top: &mut Top, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| {
            top.set_height(screen::rows(frame.area()));
            screen::draw(top, frame);
        })
        .unwrap();
    let buffer = terminal.backend().buffer().clone();
    let lines = buffer.content().chunks(usize::from(width)).map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Two looks, two seconds apart.
fn two_looks() -> Top {
    let mut top = top();
    let first = [cluster("web", 1000, 1, 10.0), cluster("api", 200, 0, 1.0)];
    tell(&mut top, answer(READY, &list(2, &first)), 10);
    let second = [cluster("web", 1500, 4, 11.0), cluster("api", 200, 0, 1.0)];
    tell(&mut top, answer(READY, &list(2, &second)), 12);
    top
}

#[test]
fn clusters_are_shown_with_what_happened_between_two_looks() {
    let mut top = two_looks();
    assert_eq!(
        drawn(&mut top, 104, 9),
        "\
strait 127.0.0.1:9901  ready  memory 100 MiB  configuration version 7 of /etc/strait/strait.yaml serves

1 clusters  2 listeners  3 sources  4 slow  5 weights  by exchanges  1 of 2
CLUSTER  ENDPOINTS  REQ/S  FAIL/S  LATENCY  ACTIVE  IDLE  PENDING  REQUESTS
web              2    250     1.5   2.00ms       3     2        0  1500
api              2      0       0        -       3     2        0  200


/ filter  s sort  enter endpoints  tab view  q quit"
    );
}

#[test]
fn a_process_that_is_gone_or_new_leaves_what_was_known_and_has_no_rates() {
    let mut top = two_looks();
    tell(&mut top, Err("127.0.0.1:9901: Connection refused".to_owned()), 13);
    let shown = drawn(&mut top, 90, 9);
    let lines: Vec<_> = shown.lines().collect();
    assert!(lines[0].starts_with("strait 127.0.0.1:9901  no answer  "), "{shown}");
    assert_eq!(lines[1], "127.0.0.1:9901: Connection refused; asking again");
    assert!(lines[4].starts_with("web              2    250"), "{shown}");

    // Its successor has counted less.
    let again = [cluster("web", 5, 0, 0.1), cluster("api", 0, 0, 0.0)];
    let starting = "starting: 1 of 2 workers serve\n";
    tell(&mut top, answer(starting, &list(2, &again)), 14);
    let shown = drawn(&mut top, 90, 9);
    assert!(
        shown.starts_with(
            "strait 127.0.0.1:9901  starting: 1 of 2 workers serve  memory 100 MiB\n\n"
        ),
        "{shown}"
    );
    assert!(
        shown.contains("\nweb              2      -       -        -       3     2        0  5\n"),
        "{shown}"
    );
}

#[test]
fn what_is_wrong_with_the_process_has_a_line() {
    let mut top = top();
    let state =
        format!("{READY}endpoints of a.yaml are refused since 2026\nhost name b: stale, x\n");
    tell(&mut top, answer(&state, &list(0, &[])), 1);
    let shown = drawn(&mut top, 80, 6);
    assert_eq!(
        shown.lines().nth(1),
        Some("endpoints of a.yaml are refused since 2026 (and 1 more)"),
        "{shown}"
    );
}

#[test]
fn only_what_fits_the_screen_is_asked_for_however_many_there_are() {
    let mut top = top();
    top.set_height(3);
    assert_eq!(top.question().path, "/clusters?endpoints=no&sort=exchanges&limit=3&filter=");
    let page = |count: usize| {
        let rows: Vec<_> = (0..count).map(|n| cluster(&format!("c{n}"), 1, 0, 0.0)).collect();
        answer(READY, &list(10_000, &rows))
    };
    tell(&mut top, page(3), 1);
    press(&mut top, &[KeyCode::Down; 3]);
    assert_eq!((top.selected, top.offset), (3, 1));
    assert_eq!(top.question().path, "/clusters?endpoints=no&sort=exchanges&limit=4&filter=");
    tell(&mut top, page(4), 2);
    let shown = drawn(&mut top, 90, 8);
    assert!(shown.contains("4 of 10000\n") && !shown.contains("\nc0 "), "{shown}");
    assert!(shown.contains("\nc1 ") && shown.contains("\nc3 "), "{shown}");
    press(&mut top, &[KeyCode::Home, KeyCode::PageUp]);
    assert_eq!((top.selected, top.offset), (0, 0));
}

#[test]
fn keys_filter_sort_choose_and_quit() {
    let mut top = two_looks();
    press(&mut top, &[KeyCode::Char('/'), KeyCode::Char('q'), KeyCode::Char('*'), KeyCode::Enter]);
    assert_eq!(top.question().path, "/clusters?endpoints=no&sort=exchanges&limit=1&filter=q%2A");
    press(&mut top, &[KeyCode::Char('/'), KeyCode::Backspace, KeyCode::Backspace, KeyCode::Enter]);
    press(&mut top, &[KeyCode::Char('s'), KeyCode::Char('s')]);
    assert_eq!(top.question().path, "/clusters?endpoints=no&sort=pending&limit=1&filter=");
    for (key, path) in [
        (KeyCode::Char('2'), "/listeners?sort=pending&limit=1&filter="),
        (KeyCode::Char('3'), "/sources"),
        (KeyCode::Tab, "/slow?format=text"),
        (KeyCode::Char('5'), "/routes?rules=weighted&limit=1"),
        (KeyCode::Tab, "/clusters?endpoints=no&sort=pending&limit=1&filter="),
    ] {
        press(&mut top, &[key]);
        assert_eq!(top.question().path, path);
    }
    press(&mut top, &[KeyCode::Char('/'), KeyCode::Char('x'), KeyCode::Enter]);
    assert_eq!(press(&mut top, &[KeyCode::Esc]), Then::GoOn, "it takes the filter back");
    assert_eq!(press(&mut top, &[KeyCode::Esc]), Then::Quit);
    assert_eq!(press(&mut top, &[KeyCode::Char('q')]), Then::Quit);
    press(&mut top, &[KeyCode::Char('/')]);
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(top.on_key(control), Then::Quit, "also while a filter is typed");
}

#[test]
fn a_cluster_shows_its_endpoints_and_what_failed_there() {
    let mut top = two_looks();
    press(&mut top, &[KeyCode::Enter]);
    assert_eq!(top.question().path, "/clusters?endpoints=1&endpoints_from=0&name=web");
    top.set_height(3);
    let endpoint = |address: &str, weight: u32, failures: Value, error: Value| {
        json!({
            "address": address, "weight": weight, "exchanges": { "total": 7, "failed_total": 1 },
            "connect_failures": failures, "last_error": error, "drained": weight == 3,
            "health": null, "ejected": null,
        })
    };
    let error = json!({ "cause": "connect_failed", "reason": "ECONNREFUSED", "at": "2026" });
    let endpoints = [
        endpoint("10.0.0.1:80", 1, json!({}), Value::Null),
        endpoint("10.0.0.2:80", 3, json!({ "ECONNREFUSED": 40, "timeout": 2 }), error),
    ];
    tell(&mut top, answer(READY, &list(1, &[detail(2, &endpoints)])), 13);
    let shown = drawn(&mut top, 120, 8);
    let expected = "\
1 clusters  2 listeners  3 sources  4 slow  5 weights  cluster web  1 of 2
ENDPOINT     HEALTH   WEIGHT  WANTED  SHARE  REQUESTS  FAILED  CONNECT-FAILURES  LAST-ERROR
10.0.0.1:80                1   12.5%  17.5%         7       1                 0
10.0.0.2:80  drained       3   37.5%  17.5%         7       1                42  connect_failed ECONNREFUSED 2026";
    assert!(shown.contains(expected), "{shown}");
    press(&mut top, &[KeyCode::Esc]);
    assert!(top.question().path.starts_with("/clusters?endpoints=no"));
}

/// A cluster of so many endpoints, of which these are known. Together they have a weight of 8, and had 40 requests.
fn detail(count: usize, known: &[Value]) -> Value {
    let in_all = json!({ "count": count, "weight": 8, "exchanges_total": 40 });
    json!({ "name": "web", "endpoints": known, "endpoints_in_all": in_all })
}

#[test]
fn only_endpoints_on_the_screen_are_asked_for_however_many_there_are() {
    let mut top = two_looks();
    let rows = |range: std::ops::Range<usize>| {
        let row = |n| json!({ "address": format!("e{n}"), "weight": 1 });
        answer(READY, &list(1, &[detail(100_000, &range.map(row).collect::<Vec<_>>())]))
    };
    // With room for three rows.
    let shown = |top: &mut Top| {
        let screen = drawn(top, 60, 8);
        let lines = screen.lines().skip(4).take(3);
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    press(&mut top, &[KeyCode::Enter]);
    top.set_height(3);
    assert_eq!(top.question().path, "/clusters?endpoints=3&endpoints_from=0&name=web");
    tell(&mut top, rows(0..3), 13);
    assert_eq!(shown(&mut top), ["e0", "e1", "e2"]);
    press(&mut top, &[KeyCode::End]);
    assert_eq!((top.selected, top.rows_in_all()), (99_999, 100_000));
    assert_eq!(top.question().path, "/clusters?endpoints=3&endpoints_from=99997&name=web");
    assert_eq!(shown(&mut top), ["", "", ""], "they are not known yet");
    tell(&mut top, rows(99_997..100_000), 14);
    assert_eq!(shown(&mut top), ["e99997", "e99998", "e99999"]);
    press(&mut top, &[KeyCode::Up; 3]);
    assert_eq!(top.question().path, "/clusters?endpoints=3&endpoints_from=99996&name=web");
    assert_eq!(shown(&mut top), ["", "e99997", "e99998"]);
    tell(&mut top, rows(99_996..99_999), 15);
    assert_eq!(shown(&mut top), ["e99996", "e99997", "e99998"]);
    press(&mut top, &[KeyCode::Home]);
    assert_eq!(shown(&mut top), ["", "", ""]);
    // It has fewer now.
    press(&mut top, &[KeyCode::End]);
    let fewer = answer(READY, &list(1, &[detail(2, &[])]));
    tell(&mut top, fewer, 16);
    assert_eq!(top.selected, 1);
    assert_eq!(top.question().path, "/clusters?endpoints=3&endpoints_from=1&name=web");
}

#[test]
fn sources_are_shown_with_the_age_of_their_last_word() {
    let mut top = top();
    press(&mut top, &[KeyCode::Char('3')]);
    let page = json!({ "sources": [
        { "name": "file", "states": { "good": 0, "refused": 0 }, "accepted_total": 0,
          "refused_total": {}, "last_accepted_at": null, "age_seconds": null },
        { "name": "dns", "states": { "fresh": 12, "stale": 1 }, "accepted_total": 99,
          "refused_total": { "servfail": 2, "timeout": 1 }, "age_seconds": 4 },
    ] });
    tell(&mut top, answer(READY, &page), 1);
    let shown = drawn(&mut top, 80, 8);
    let expected = "\
1 clusters  2 listeners  3 sources  4 slow  5 weights  1 of 2
SOURCE  AGE  ACCEPTED  REFUSED  STATES
file      -         0        0
dns      4s        99        3  fresh=12,stale=1";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn weighted_clusters_are_shown_with_the_share_that_they_got() {
    let mut top = top();
    press(&mut top, &[KeyCode::Char('5')]);
    let cluster = |name: &str, weight: u32, total: u32| json!({ "name": name, "weight": weight, "exchanges_total": total });
    let rule = |rule: &str, clusters: [Value; 2]| json!({ "route": "shop", "place": 1, "rule": rule, "exchanges_total": 1, "clusters": clusters });
    let rules = [
        rule("canary /api/*", [cluster("api", 90, 150), cluster("next", 10, 50)]),
        rule("/new", [cluster("api", 1, 0), cluster("off", 0, 0)]),
    ];
    let page = json!({ "matched": 2, "rules": rules });
    tell(&mut top, answer(READY, &page), 1);
    let shown = drawn(&mut top, 90, 9);
    let expected = "\
1 clusters  2 listeners  3 sources  4 slow  5 weights  1 of 4
CLUSTER  WEIGHT  WANTED  SHARE  REQUESTS  ROUTE  RULE
api          90   90.0%  75.0%       150  shop   canary /api/*
next         10   10.0%  25.0%        50  shop   canary /api/*
api           1  100.0%      -         0  shop   /new
off           0    0.0%      -         0  shop   /new";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn names_cannot_move_the_cursor_and_a_small_screen_is_no_harm() {
    let mut top = top();
    tell(&mut top, answer(READY, &list(1, &[cluster("a\u{1b}[2J", 1, 0, 0.0)])), 1);
    assert!(drawn(&mut top, 60, 8).contains("a\u{fffd}[2J"));
    for (width, height) in [(1, 1), (5, 3), (20, 6)] {
        drawn(&mut top, width, height);
    }
}

#[test]
fn a_table_for_scripts_has_a_column_for_each_title() {
    let text = two_looks().table().to_text();
    let rows: Vec<Vec<_>> = text.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["web", "2", "250", "1.5", "2.00ms", "3", "2", "0", "1500"]);
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{text}");
}

#[test]
fn memory_is_shown_with_its_bound_in_a_colour() {
    for (resident, max, text, color) in [
        (0, 0, "", None),
        (100, 0, "memory 100 MiB  ", None),
        (79, 100, "memory 79 of 100 MiB  ", None),
        (80, 100, "memory 80 of 100 MiB  ", Some(Color::Yellow)),
        (95, 100, "memory 95 of 100 MiB  ", Some(Color::Red)),
    ] {
        let lines = format!(
            "process_resident_memory_bytes {}\nstrait_memory_max_bytes {}\n",
            resident << 20,
            max << 20
        );
        let shown = screen::memory_span(&Memory::of(&lines));
        assert_eq!((&*shown.content, shown.style.fg), (text, color), "{lines}");
    }
}
