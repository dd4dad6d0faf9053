//! A client that sends exactly the given bytes and reads what comes back.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, Result, ensure};

use crate::wait;

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// One response, read as leniently as HTTP/1.1 allows: what Strait sends is for the real clients
/// to judge, this one only looks at it.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Head, as it came.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The first value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("to {address}"))?;
        stream.set_read_timeout(Some(wait::SOON))?;
        stream.set_write_timeout(Some(wait::SOON))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.stream.get_mut().write_all(bytes.as_ref())?)
    }

    /// Says that nothing more comes from here.
    pub(crate) fn finish(&self) -> Result<()> {
        Ok(self.stream.get_ref().shutdown(std::net::Shutdown::Write)?)
    }

    /// Reads exactly `len` bytes.
    pub(crate) fn read(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads everything until the connection closes.
    pub(crate) fn rest(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads one response to a request that was not HEAD.
    pub(crate) fn response(&mut self) -> Result<Response> {
        self.next_response()?.context("the connection closed instead of a response")
    }

    /// Reads one response, or nothing if the connection ended in front of it.
    pub(crate) fn next_response(&mut self) -> Result<Option<Response>> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if read_line(&mut self.stream, &mut head)? == 0 {
                ensure!(head.is_empty(), "the connection ended inside a head: {head:?}");
                return Ok(None);
            }
        }
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .with_context(|| format!("no status in {head:?}"))?;
        let body = self.body(status, &head)?;
        Ok(Some(Response { status, head, body }))
    }

    fn body(&mut self, status: u16, head: &str) -> Result<Vec<u8>> {
        if status < 200 || status == 204 || status == 304 {
            return Ok(Vec::new());
        }
        if field(head, "transfer-encoding").is_some() {
            return chunked(&mut self.stream);
        }
        let mut body = Vec::new();
        match field(head, "content-length") {
            Some(len) => body = self.read(len.parse()?)?,
            None => _ = self.stream.read_to_end(&mut body)?,
        }
        Ok(body)
    }

    /// Whether the other side closed, which it must do soon: an error if it sends something or
    /// keeps the connection open.
    pub(crate) fn expect_close(&mut self) -> Result<()> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => ensure!(rest.is_empty(), "more bytes: {}", String::from_utf8_lossy(&rest)),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => return Err(error).context("the connection stays open"),
        }
        Ok(())
    }
}

/// One GET on a connection of its own.
pub(crate) fn get(address: SocketAddr, path: &str) -> Result<Response> {
    let mut client = Client::connect(address)?;
    client.send(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"))?;
    client.response()
}

/// The first value of a field in a head.
pub(crate) fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// Reads a chunked body, trailers included.
pub(crate) fn chunked(from: &mut BufReader<TcpStream>) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        read_line(from, &mut line)?;
        let size = line.trim_end().split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(size, 16).with_context(|| format!("size {line:?}"))?;
        if size == 0 {
            break;
        }
        let read = from.by_ref().take(size.try_into()?).read_to_end(&mut body)?;
        ensure!(read == size, "a chunk ends after {read} of {size} bytes");
        let mut end = [0; 2];
        from.read_exact(&mut end)?;
        ensure!(&end == b"\r\n", "a chunk ends with {end:?}");
    }
    loop {
        let mut trailer = String::new();
        read_line(from, &mut trailer)?;
        if matches!(trailer.as_str(), "\r\n" | "") {
            return Ok(body);
        }
    }
}

/// Appends one line, its end included.
pub(crate) fn read_line(from: &mut BufReader<TcpStream>, to: &mut String) -> Result<usize> {
    let mut bytes = Vec::new();
    let n = from.read_until(b'\n', &mut bytes)?;
    to.push_str(&String::from_utf8_lossy(&bytes));
    Ok(n)
}
