//! A slow reader stops its writer, and what the proxy holds in between is bounded.

use std::time::Duration;

use sim::{
    Behaviour, Faults, Leave, RequestBody, RequestPlan, ResponseFraming, ResponsePlan, Scenario,
    ServiceFaults, Simulation,
};

/// What the two connections of an exchange may hold together: 64 KiB wait to be sent, one more
/// read of as many may have been under way, and each has a head and a frame around it.
const HELD_BYTES_MAX: usize = (2 * 64 + 8) << 10;

const BEHAVIOUR: Behaviour = Behaviour {
    pipelined_max: 0,
    leave: Leave::Answered,
    slow_reading: None,
    pauses: (0, Duration::ZERO),
    thinks: Duration::ZERO,
};

fn scenario() -> Scenario {
    Scenario {
        seed: 1,
        workers: 1,
        clients: 0,
        // With buffers of a few bytes, what was written and not read is in the proxy.
        faults: Faults { tiny_buffers: 1_000, ..Faults::none() },
        service_faults: ServiceFaults::default(),
        swaps: 0,
        moves: 0,
        handovers: 0,
        group_part_max: worker::GROUP_PART_MAX,
        has_returns: false,
        drains: false,
        memory_shortages: 0,
        is_strict: true,
        has_http2: false,
        has_tls: false,
        has_calls: false,
        has_mirrors: false,
        has_checks: false,
        has_demands: false,
        deliveries: None,
        resolutions: None,
    }
}

/// An id whose response is one that the test wants.
fn id_of(is_wanted: impl Fn(&ResponsePlan) -> bool) -> u64 {
    (1..).find(|id| is_wanted(&ResponsePlan::of(*id))).expect("there is no end of ids")
}

fn request(id: u64) -> RequestPlan {
    RequestPlan {
        id,
        method: "GET",
        is_http11: true,
        cluster: "alpha",
        body: RequestBody::None,
        expects_continue: false,
        tunnel: None,
        connection: None,
    }
}

#[test]
fn slow_reader_stops_its_writer() {
    for framing in [ResponseFraming::Length, ResponseFraming::Chunked, ResponseFraming::UntilClose]
    {
        let id = id_of(|plan| plan.length > 350_000 && plan.framing == framing);
        let mut simulation = Simulation::new(&scenario());
        let slow_reading = Some((1_000, Duration::from_millis(100)));
        let behaviour = Behaviour { slow_reading, ..BEHAVIOUR };
        simulation.add_client(vec![request(id)], behaviour, Duration::ZERO);
        let (mut most, mut is_stopped) = (0, false);
        while simulation.moved_total() < 100_000 {
            simulation.run_for(Duration::from_millis(100));
            most = most.max(simulation.buffered_bytes());
            is_stopped |= most >= 64 << 10;
        }
        assert!(most <= HELD_BYTES_MAX, "{framing:?}: {most} bytes are held");
        assert!(is_stopped, "{framing:?}: {most} bytes never stopped the writer");
        let summary = simulation.run().unwrap_or_else(|violations| panic!("{violations}"));
        assert_eq!(summary.outcomes, [(sim::Outcome::Answered, 1)].into());
    }
}

#[test]
fn a_reader_that_stops_is_left_alone_until_its_timeout() {
    let id = id_of(|plan| plan.length > 350_000);
    let mut simulation = Simulation::new(&Scenario { is_strict: false, ..scenario() });
    let behaviour = Behaviour { leave: Leave::StopsReading(0), ..BEHAVIOUR };
    simulation.add_client(vec![request(id)], behaviour, Duration::ZERO);
    simulation.run_for(Duration::from_secs(5));
    let held = simulation.buffered_bytes();
    assert!((64 << 10..=HELD_BYTES_MAX).contains(&held), "{held} bytes are held");
    // The response's timeout for such a reader is 8 s; then nothing is held any more.
    simulation.run_for(Duration::from_secs(10));
    assert_eq!(simulation.buffered_bytes(), 0);
    simulation.run().unwrap_or_else(|violations| panic!("{violations}"));
}

#[test]
fn a_service_that_reads_nothing_stops_its_client() {
    let id = id_of(|plan| !plan.is_early && plan.length < 100);
    let stops = ServiceFaults { stop_reading: 1_000, ..ServiceFaults::default() };
    let mut simulation =
        Simulation::new(&Scenario { is_strict: false, service_faults: stops, ..scenario() });
    let upload = RequestPlan { method: "POST", body: RequestBody::Length(1 << 20), ..request(id) };
    simulation.add_client(vec![upload], BEHAVIOUR, Duration::ZERO);
    let mut most = 0;
    for _ in 0..40 {
        simulation.run_for(Duration::from_millis(50));
        most = most.max(simulation.buffered_bytes());
    }
    assert!(most <= HELD_BYTES_MAX, "{most} bytes are held");
    simulation.run().unwrap_or_else(|violations| panic!("{violations}"));
}
