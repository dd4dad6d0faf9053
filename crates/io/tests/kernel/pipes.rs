//! Bytes that go from socket to socket through a pipe.

use std::io::ErrorKind;

use ::io::Pipe;

use crate::pair::{read_exactly, tcp_pair};

#[test]
fn what_goes_through_a_pipe_arrives_whole_and_in_order() {
    let (source, from) = tcp_pair().unwrap();
    let (to, sink) = tcp_pair().unwrap();
    let pipe = Pipe::new().unwrap();
    let bytes: Vec<u8> = (0..200_000_u32).flat_map(u32::to_be_bytes).collect();
    let (mut written, mut arrived) = (0, Vec::new());
    while arrived.len() < bytes.len() {
        written += source.send_slice(&bytes[written..]).unwrap_or_default();
        let Ok(filled) = pipe.fill(&from, 100_000) else { continue };
        assert!(filled > 0 && filled <= 100_000);
        assert_eq!(pipe.pour(&to, filled), filled);
        arrived.extend(read_exactly(&sink, filled).unwrap());
    }
    assert!(arrived == bytes);
}

#[test]
fn what_a_slow_peer_does_not_take_can_be_read_back() {
    let (source, from) = tcp_pair().unwrap();
    let (to, sink) = tcp_pair().unwrap();
    let block = vec![7; 1 << 16];
    let mut queued = 0;
    while let Ok(n) = to.send_slice(&block) {
        queued += n;
    }
    source.send_slice(b"one two three").unwrap();
    let pipe = Pipe::new().unwrap();
    let filled = loop {
        match pipe.fill(&from, 7) {
            Ok(filled) => break filled,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    };
    assert_eq!((filled, pipe.pour(&to, filled)), (7, 0));
    let mut rest = [0; 7];
    pipe.read(&mut rest).unwrap();
    assert_eq!(&rest, b"one two");
    // It is empty again, and the next bytes are the next.
    assert_eq!(pipe.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(read_exactly(&sink, queued).unwrap().len(), queued);
    let filled = pipe.fill(&from, 100).unwrap();
    assert_eq!((filled, pipe.pour(&to, filled)), (6, 6));
    assert_eq!(read_exactly(&sink, 6).unwrap(), b" three");
}

#[test]
fn ends_and_errors_are_those_of_the_sockets() {
    let (source, from) = tcp_pair().unwrap();
    let (to, sink) = tcp_pair().unwrap();
    let pipe = Pipe::new().unwrap();
    assert_eq!(pipe.fill(&from, 10).unwrap_err().kind(), ErrorKind::WouldBlock);
    source.send_slice(b"last").unwrap();
    source.shutdown_write().unwrap();
    sink.reset();
    let filled = loop {
        match pipe.fill(&from, 10) {
            Ok(filled) => break filled,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    };
    assert_eq!(filled, 4);
    let mut rest = [0; 4];
    assert_eq!(pipe.pour(&to, filled), 0);
    pipe.read(&mut rest).unwrap();
    assert_eq!(&rest, b"last");
    assert!(to.send_slice(&rest).is_err());
    let end = loop {
        match pipe.fill(&from, 10) {
            Ok(end) => break end,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    };
    assert_eq!(end, 0);
}
