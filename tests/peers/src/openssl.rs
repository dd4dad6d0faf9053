//! OpenSSL's own client and server, and what is typed into them.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::process::ChildStdin;

use anyhow::{Context as _, Result, ensure};

use crate::lab::Lab;
use crate::pki::Pair;
use crate::process::{Finished, Process};
use crate::strait::local;
use crate::{ports, wait};

/// Runs `s_client` with nothing to say: it shakes hands and ends.
pub(crate) fn shake_hands(
    lab: &Lab,
    server: SocketAddr,
    name: &str,
    options: &[&str],
) -> Result<Finished> {
    let server = server.to_string();
    let client = ["s_client", "-connect", &server, "-servername", name];
    lab.run("openssl", &[&client, options].concat())
}

/// A running `s_client` or `s_server`.
#[derive(Debug)]
pub(crate) struct Session {
    process: Process,
    input: ChildStdin,
    /// Responses that it heard so far.
    heard: usize,
}

impl Session {
    /// Connects. Beside what it hears, it prints what happens.
    pub(crate) fn connect(
        lab: &Lab,
        server: SocketAddr,
        name: &str,
        options: &[&str],
    ) -> Result<Self> {
        let server = server.to_string();
        let client = ["s_client", "-connect", &server, "-servername", name];
        Self::start(lab, &[&client, options].concat())
    }

    /// Listens, with this certificate. It takes one connection at a time.
    pub(crate) fn listen(lab: &Lab, pair: &Pair, options: &[&str]) -> Result<(Self, SocketAddr)> {
        let address = local(ports::free()?);
        let (listen, chain, key) =
            (address.to_string(), pair.chain.to_string_lossy(), pair.key.to_string_lossy());
        let files = ["-cert", &chain, "-cert_chain", &chain, "-key", &key];
        let server = [&["s_server", "-accept", &listen], &files[..], options].concat();
        let mut this = Self::start(lab, &server)?;
        let process = &mut this.process;
        let output = process.output_file().to_owned();
        process.ready(|| {
            std::fs::read_to_string(&output).is_ok_and(|printed| printed.contains("ACCEPT"))
        })?;
        Ok((this, address))
    }

    /// Serves pages about itself at any path, to as many as come.
    pub(crate) fn serve_pages(
        lab: &Lab,
        pair: &Pair,
        options: &[&str],
    ) -> Result<(Self, SocketAddr)> {
        let (mut this, address) = Self::listen(lab, pair, &[&["-www"], options].concat())?;
        this.process.ready(|| TcpStream::connect(address).is_ok())?;
        Ok((this, address))
    }

    fn start(lab: &Lab, arguments: &[&str]) -> Result<Self> {
        let (process, input) = Process::start_with_input(lab.folder(), "openssl", arguments)?;
        Ok(Self { process, input, heard: 0 })
    }

    /// Types `text`, and waits until it is read. A letter that it takes for a command is one only at
    /// the beginning of what it reads at once.
    pub(crate) fn types(&mut self, text: impl AsRef<[u8]>) -> Result<()> {
        self.input.write_all(text.as_ref())?;
        let (input, process) = (&self.input, &mut self.process);
        wait::until("what was typed to be read", wait::SOON, || {
            let is_read = rustix::io::ioctl_fionread(input).is_ok_and(|unread| unread == 0);
            is_read || !process.is_running()
        })
    }

    /// Types a command, and waits until it prints `word` once more.
    pub(crate) fn commands(&mut self, command: &str, word: &str) -> Result<()> {
        let before = self.count(word);
        self.types(format!("{command}\n"))?;
        wait::until(&format!("{word} after {command}"), wait::SOON, || self.count(word) > before)
            .with_context(|| self.printed())
    }

    /// Waits until it has printed this.
    pub(crate) fn prints(&self, text: &str) -> Result<()> {
        wait::until(&format!("{text:?} to be printed"), wait::SOON, || self.count(text) > 0)
            .with_context(|| self.printed())
    }

    /// What it printed so far.
    pub(crate) fn printed(&self) -> String {
        self.process.output()
    }

    /// The next body, of `len` bytes: without what s_client says in between.
    pub(crate) fn body(&mut self, len: usize) -> Result<Vec<u8>> {
        let body = wait::for_some(&format!("{len} bytes of a body"), wait::SOON, || {
            let printed =
                without(&std::fs::read(self.process.output_file()).ok()?, b"read R BLOCK\n");
            let line = b"HTTP/1.1 200 OK\r\n";
            let mut heads =
                printed.windows(line.len()).enumerate().filter(|(_, found)| found == line);
            let (_, head) = printed.split_at(heads.nth(self.heard)?.0);
            let body = head.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
            Some(head.get(body..body + len)?.to_vec())
        })
        .with_context(|| self.printed())?;
        self.heard += 1;
        Ok(body)
    }

    /// Waits for its end.
    pub(crate) fn ends(&mut self) -> Result<()> {
        self.process.wait(wait::SOON).with_context(|| self.process.output())?;
        Ok(())
    }

    /// Whether it still runs.
    pub(crate) fn expect_running(&mut self) -> Result<()> {
        ensure!(self.process.is_running(), "it ended:\n{}", self.printed());
        Ok(())
    }

    fn count(&self, text: &str) -> usize {
        self.printed().matches(text).count()
    }
}

fn without(bytes: &[u8], word: &[u8]) -> Vec<u8> {
    let mut rest = bytes;
    let mut out = Vec::with_capacity(bytes.len());
    while let Some(&first) = rest.first() {
        match rest.strip_prefix(word) {
            Some(behind) => rest = behind,
            None => {
                out.push(first);
                (_, rest) = rest.split_at(1);
            }
        }
    }
    out
}
