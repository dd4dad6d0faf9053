//! A snapshot written back as a file: every default filled in, secrets masked.
//!
//! What comes out is itself a configuration (a test loads it), but for what is masked. Route
//! tables and clusters stand in the order of their ids, which for a first load is that of the file.

use std::sync::Arc;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use crate::file;
use crate::origins::ResourceKind;
use crate::redact::redact;
use crate::resource::tls::certificates::certificates;
use crate::snapshot::{Cluster, Listener, RouteTable, Snapshot};
use crate::units::{Period, Size};

/// The whole of `snapshot` in the form of a file.
#[must_use]
pub fn effective<F>(snapshot: &Snapshot<F>) -> Json {
    json(&Effective(snapshot))
}

/// [`effective`], for a writer that takes it in pieces: an entry of a section at a time.
#[derive(Debug)]
pub struct Effective<'s, F>(pub &'s Snapshot<F>);

impl<F> Serialize for Effective<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shown = json(&*self.0.source);
        redact(&mut shown, Some(&self.0.shape));
        let mut sections = shown.as_object_mut().map(std::mem::take).unwrap_or_default();
        for kind in ResourceKind::IN_FILE {
            sections.insert(kind.section().into(), Json::Null);
        }
        let mut map = serializer.serialize_map(Some(sections.len()))?;
        for (name, value) in &sections {
            match ResourceKind::IN_FILE.into_iter().find(|kind| kind.section() == name) {
                Some(kind) => map.serialize_entry(name, &Section(self.0, kind))?,
                None => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

/// All entries of a kind.
struct Section<'s, F>(&'s Snapshot<F>, ResourceKind);

impl<F> Serialize for Section<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(snapshot, kind) = self;
        match kind {
            ResourceKind::Listener => serializer
                .collect_seq(snapshot.listeners.iter().map(|it| listener_shown(snapshot, it))),
            ResourceKind::Route => serializer
                .collect_seq(snapshot.route_tables.iter().map(|(_, it)| Table(snapshot, it))),
            ResourceKind::Cluster => serializer
                .collect_seq(snapshot.clusters.iter().map(|(_, it)| cluster_shown(snapshot, it))),
            ResourceKind::Assignment | ResourceKind::Secret => {
                serializer.collect_seq(std::iter::empty::<Json>())
            }
        }
    }
}

/// A route table, a rule at a time: there may be ten thousand of them.
struct Table<'s, F>(&'s Snapshot<F>, &'s RouteTable);

impl<F> Serialize for Table<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(snapshot, table) = self;
        let shown = table_head_shown(snapshot, table);
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in shown.as_object().into_iter().flatten() {
            match name.as_str() {
                "rules" => map.serialize_entry(name, &Rules(snapshot, table))?,
                _ => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

/// The rules of a table.
struct Rules<'s, F>(&'s Snapshot<F>, &'s RouteTable);

impl<F> Serialize for Rules<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(snapshot, table) = self;
        serializer.collect_seq(table.source.rules.iter().map(|rule| rule_shown(snapshot, rule)))
    }
}

/// A listener as [`effective`] has it.
pub(crate) fn listener_shown<F>(snapshot: &Snapshot<F>, entry: &Listener<F>) -> Json {
    entry_shown(snapshot, "listeners", json(&*listener_with_chains(entry)))
}

/// A route table as [`effective`] has it.
pub(crate) fn table_shown<F>(snapshot: &Snapshot<F>, entry: &RouteTable) -> Json {
    json(&Table(snapshot, entry))
}

/// A route table as [`effective`] has it, but for its rules.
pub(crate) fn table_head_shown<F>(snapshot: &Snapshot<F>, entry: &RouteTable) -> Json {
    let file::RouteTable { name, hosts, ports, error_pages, headers, rules: _ } = &*entry.source;
    let head = file::RouteTable {
        name: name.clone(),
        hosts: hosts.clone(),
        ports: *ports,
        error_pages: error_pages.clone(),
        headers: headers.clone(),
        rules: Vec::new(),
    };
    entry_shown(snapshot, "routes", json(&head))
}

/// A rule of a route table as [`effective`] has it.
pub(crate) fn rule_shown<F>(snapshot: &Snapshot<F>, rule: &file::route::Rule) -> Json {
    let mut shown = entry_shown(snapshot, "routes", json!({ "rules": [json(rule)] }));
    shown.pointer_mut("/rules/0").map(Json::take).unwrap_or_default()
}

/// A cluster as [`effective`] has it.
pub(crate) fn cluster_shown<F>(snapshot: &Snapshot<F>, entry: &Cluster) -> Json {
    entry_shown(snapshot, "clusters", json(&*entry.source))
}

/// The endpoints that a source has assigned to a cluster, as they serve: those that are not healthy have no weight.
pub(crate) fn assignment_shown(cluster: &Cluster) -> Json {
    let endpoints = cluster.endpoints.iter().map(|endpoint| {
        json!({
            "address": endpoint.address,
            "weight": endpoint.weight,
            "priority": endpoint.priority,
            "locality": endpoint.locality(),
            "health": endpoint.reported,
            "metadata": endpoint.metadata(),
            "host": endpoint.host(),
        })
    });
    let mut shown = json!({ "name": cluster.name, "endpoints": endpoints.collect::<Vec<_>>() });
    redact(&mut shown, None);
    shown
}

/// An entry of a section, with its secrets masked.
fn entry_shown<F>(snapshot: &Snapshot<F>, section: &str, entry: Json) -> Json {
    let mut shown = json!({ section: [entry] });
    redact(&mut shown, Some(&snapshot.shape));
    shown.get_mut(section).and_then(|list| list.get_mut(0)).map(Json::take).unwrap_or_default()
}

fn json(entry: &impl Serialize) -> Json {
    // It cannot fail: all keys are text.
    serde_json::to_value(entry).unwrap_or_default()
}

/// What a listener was built from, with its chains.
pub(crate) fn listener_with_chains<F>(listener: &Listener<F>) -> Arc<file::Listener> {
    if listener.chains.is_empty() {
        return Arc::clone(&listener.source);
    }
    let chains =
        listener.chains.iter().map(|chain| file::ListenerChain::clone(&chain.source)).collect();
    Arc::new(file::Listener { chains, ..file::Listener::clone(&listener.source) })
}

/// [`effective`] as YAML, with what the certificates are as comments.
#[must_use]
pub fn effective_yaml<F>(snapshot: &Snapshot<F>) -> String {
    let mut yaml = String::new();
    write_yaml(&effective(snapshot), 0, &mut yaml);
    for (place, used) in certificates(snapshot).iter().enumerate() {
        if place == 0 {
            yaml.push_str("# Certificates:\n");
        }
        // Names and paths may hold anything but the end of a line, which would end the comment.
        let line = used.to_string().replace(|c: char| c.is_control(), " ");
        yaml.push_str(&format!("# - {line}\n"));
    }
    yaml
}

/// Writes `value` as block YAML; scalars as JSON, which YAML 1.2 contains, unless they are words.
fn write_yaml(value: &Json, indent: usize, out: &mut String) {
    match value {
        Json::Object(entries) => {
            for (key, value) in entries {
                out.extend(std::iter::repeat_n(' ', indent));
                out.push_str(&yaml_text(key));
                out.push(':');
                write_inner(value, indent, out);
            }
        }
        Json::Array(items) => {
            for item in items {
                out.extend(std::iter::repeat_n(' ', indent));
                out.push('-');
                match item {
                    Json::Object(entries) if !entries.is_empty() => {
                        // The first key stands behind the dash, the others below it.
                        let mut inner = String::new();
                        write_yaml(item, indent + 2, &mut inner);
                        out.push(' ');
                        out.push_str(inner.trim_start_matches(' '));
                    }
                    _ => write_inner(item, indent, out),
                }
            }
        }
        // So that nothing is taken for a variable when it is read again.
        Json::String(text) => out.push_str(&yaml_text(&text.replace("${", "$${"))),
        Json::Null | Json::Bool(_) | Json::Number(_) => out.push_str(&value.to_string()),
    }
}

/// What stands behind a key or a dash.
fn write_inner(value: &Json, indent: usize, out: &mut String) {
    let is_block = match value {
        Json::Object(entries) => !entries.is_empty(),
        Json::Array(items) => !items.is_empty(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    };
    if is_block {
        out.push('\n');
        return write_yaml(value, indent + 2, out);
    }
    out.push(' ');
    match value {
        Json::Object(_) => out.push_str("{}"),
        Json::Array(_) => out.push_str("[]"),
        scalar => write_yaml(scalar, indent, out),
    }
    out.push('\n');
}

/// `text` without quotes if it stays text that way.
fn yaml_text(text: &str) -> String {
    let is_word_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/');
    let is_word = text.starts_with(|c: char| c.is_ascii_lowercase() || c == '/')
        && text.bytes().all(is_word_byte)
        && !matches!(text, "null" | "true" | "false");
    let is_unit = text.parse::<Period>().is_ok() || text.parse::<Size>().is_ok();
    let is_plain = is_word || (is_unit && text.parse::<f64>().is_err());
    if is_plain { text.to_owned() } else { Json::from(text).to_string() }
}
