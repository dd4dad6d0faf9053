//! What `tls` says once every default is filled in: the source that its entry of a snapshot keeps, and what
//! `check --print` and `/config` show of it.

use crate::resource::tls;
use crate::resource::tls::file::{self, ClusterTls, ListenerTls};

pub(crate) fn cluster_tls(all: &mut ClusterTls, tls: &tls::ClusterTls) {
    all.server_name = tls.server_name.as_deref().map(str::to_owned);
    all.names = texts(&tls.source.names);
    all.groups = Some(groups(&tls.source.groups));
}

pub(crate) fn listener_tls(mut all: ListenerTls, built: &tls::ListenerTls) -> ListenerTls {
    let source = &built.source;
    let protocol = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    all.groups = Some(groups(&source.groups));
    all.alpn = Some(source.alpn.iter().map(|name| protocol(name)).collect());
    if let Some((all, client)) = all.client.as_mut().zip(source.client.as_ref()) {
        all.names = texts(&client.names);
    }
    all
}

fn texts(names: &[Box<str>]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn groups(groups: &[::tls::Group]) -> Vec<file::Group> {
    groups.iter().copied().map(file::Group).collect()
}
