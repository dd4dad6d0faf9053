//! Which of several new listeners gets an address, and what waits for a worker.

use std::net::TcpListener;
use std::sync::Arc;

use config::memory::MemoryPressure;
use config::{ResourceKind, Text, Update};
use control::{BindFailure, Workers as _};

use super::{DataPath, KeepsHandles};
use crate::activation::Activation;
use crate::filter_list::loader;
use crate::secrecy::CoreDumps;

fn listener(name: &str, address: Option<&str>) -> Update {
    let text = |address| format!("{{ name: {name}, address: '{address}', routes: all }}");
    Update {
        kind: ResourceKind::Listener,
        name: name.into(),
        version: "1".into(),
        content: address.map(|address| Text::from(text(address))),
    }
}

#[test]
fn two_new_listeners_do_not_share_the_address_of_one_that_goes() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (own, any) = (format!("127.0.0.1:{port}"), format!("0.0.0.0:{port}"));
    let mut loader = loader().unwrap();
    loader.expect_sources();
    loader.load("f", "listeners: []\nroutes: [{ name: all, rules: [] }]").unwrap();
    let outside = config::outside::Memory::default();
    let prepare = |loader: &mut config::Loader<_>, updates| {
        let read = loader.prepare_updates(&Arc::from("folder"), updates, &[], &outside);
        assert!(read.verdicts.iter().all(|it| it.refused.is_none()), "{:?}", read.verdicts);
        read.prepared.unwrap()
    };
    let (reports, _reports) = tokio::sync::mpsc::channel(1);
    let (mut workers, _crew) = DataPath::new(
        1,
        CoreDumps::ALLOWED,
        Activation::default(),
        KeepsHandles::default(),
        reports,
    )
    .unwrap();
    let first = prepare(&mut loader, vec![listener("first", Some(&own))]);
    let first = loader.keep(first);
    let bound = workers.bind(&first).unwrap();
    workers.publish(&first, bound.sockets);
    for (second, third) in [(&own, &own), (&own, &any), (&any, &own)] {
        let updates = vec![
            listener("first", None),
            listener("second", Some(second)),
            listener("third", Some(third)),
        ];
        let next = prepare(&mut loader, updates);
        let failures = workers.bind(next.snapshot()).unwrap_err();
        let [BindFailure::Listener { listener, reason, .. }] = &*failures else {
            panic!("{failures:?}");
        };
        assert_eq!(&**listener, "third");
        assert!(reason.starts_with("listener second, which is new with it, has "), "{reason}");
    }
}

#[test]
fn messages_do_not_pile_up_for_a_worker_that_reads_none() {
    let (reports, _reports) = tokio::sync::mpsc::channel(1);
    let (mut workers, _crew) = DataPath::new(
        1,
        CoreDumps::ALLOWED,
        Activation::default(),
        KeepsHandles::default(),
        reports,
    )
    .unwrap();
    for request in 0..5_000 {
        workers.describe(0, 0, request);
        workers.set_memory(MemoryPressure::default());
    }
    let waiting = workers.workers[0].waiting.len();
    assert!(waiting <= 2, "{waiting}");
    workers.ask_alive(0, 5_000);
    assert_eq!(workers.workers[0].waiting.len(), waiting + 1, "the watchdog waits for the answer");
}
