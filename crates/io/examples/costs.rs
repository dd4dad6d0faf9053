//! Measures the cost of the crate's choices: `taskset -c 0 cargo run --release -p io --example
//! costs`.
//!
//! One reading of the clock, and one passage of a 150-byte head and a 1 KiB body over loopback by
//! each way that there is to write and read it. The least of many short runs is shown: that is the
//! one that nothing disturbed.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::io::{self, IoSlice, Write as _};
use std::os::fd::AsFd;

use ::io::clock::monotonic_ns;
use ::io::{Address, ConnectOptions, ListenOptions, Listener, Poller, Socket};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

const RUNS: u32 = 4000;
const PASSAGES: u32 = 50;
const READINGS: u32 = 1000;
const HEAD: &[u8] = &[b'h'; 150];
const BODY: &[u8] = &[b'b'; 1024];

/// A way to write head and body, and to read them.
#[derive(Clone, Copy, Debug)]
enum Way {
    SendRecv,
    CopySendRecv,
    SendmsgOfTwoRecv,
    SendmsgOfOneRecv,
    WriteRecv,
    SendRead,
}

const WAYS: [Way; 6] = [
    Way::SendRecv,
    Way::CopySendRecv,
    Way::SendmsgOfTwoRecv,
    Way::SendmsgOfOneRecv,
    Way::WriteRecv,
    Way::SendRead,
];

struct Passage {
    near: Socket,
    far: Socket,
    whole: Vec<u8>,
    gathered: Vec<u8>,
    buffer: Vec<u8>,
}

fn main() -> io::Result<()> {
    let (near, far) = connected_pair()?;
    let whole = [HEAD, BODY].concat();
    let (gathered, buffer) = (Vec::with_capacity(whole.len()), vec![0; 64 << 10]);
    let mut passage = Passage { near, far, whole, gathered, buffer };
    let mut clock = u64::MAX;
    let mut least = WAYS.map(|way| (way, u64::MAX));
    for _ in 0..RUNS {
        clock = clock.min(time_of(READINGS, || Ok(_ = black_box(monotonic_ns())))?);
        for (way, least) in &mut least {
            *least = time_of(PASSAGES, || passage.pass(*way))?.min(*least);
        }
    }
    show("clock", clock, READINGS)?;
    least.iter().try_for_each(|(way, least)| show(&format!("{way:?}"), *least, PASSAGES))
}

impl Passage {
    fn pass(&mut self, way: Way) -> io::Result<()> {
        match way {
            Way::SendRecv | Way::SendRead => self.near.send_slice(&self.whole)?,
            Way::CopySendRecv => {
                self.gathered.clear();
                self.gathered.extend_from_slice(HEAD);
                self.gathered.extend_from_slice(BODY);
                self.near.send_slice(&self.gathered)?
            }
            Way::SendmsgOfTwoRecv => self.near.send(&[IoSlice::new(HEAD), IoSlice::new(BODY)])?,
            Way::SendmsgOfOneRecv => {
                let mut none = SendAncillaryBuffer::default();
                sendmsg(&self.near, &[IoSlice::new(&self.whole)], &mut none, SendFlags::NOSIGNAL)?
            }
            Way::WriteRecv => rustix::io::write(self.near.as_fd(), &self.whole)?,
        };
        match way {
            Way::SendRead => rustix::io::read(self.far.as_fd(), &mut self.buffer)?,
            _ => self.far.recv(&mut self.buffer)?,
        };
        Ok(())
    }
}

fn time_of(steps: u32, mut step: impl FnMut() -> io::Result<()>) -> io::Result<u64> {
    let began = monotonic_ns();
    for _ in 0..steps {
        step()?;
    }
    Ok(monotonic_ns().saturating_sub(began))
}

fn show(name: &str, nanoseconds: u64, steps: u32) -> io::Result<()> {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let each = nanoseconds as f64 / f64::from(steps);
    writeln!(io::stdout(), "{name:>18} {each:7.1} ns")
}

fn connected_pair() -> io::Result<(Socket, Socket)> {
    let address = Address::Tcp(([127, 0, 0, 1], 0).into());
    let listener = Listener::bind(address, &ListenOptions::default()).map_err(io::Error::other)?;
    let address = listener.local_address()?.ok_or(io::ErrorKind::AddrNotAvailable)?;
    let (near, _) = Socket::connect(Address::Tcp(address), &ConnectOptions::default())?;
    let poller = Poller::new()?;
    poller.add_listener(&listener, 0)?;
    poller.wait(None, &mut ::io::Events::new())?;
    let accepted = listener.accept().map_err(io::Error::other)?;
    let (far, _) = accepted.ok_or(io::ErrorKind::WouldBlock)?;
    Ok((near, far))
}
