//! How the scripted peers read HTTP/1: written apart from `wire` on purpose, and less forgiving
//! than any real peer, so that a mistake of the codec is not made twice.

/// Bytes that came in, read from the front.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    bytes: Vec<u8>,
    at: usize,
}

/// A message's head.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// The request or status line.
    pub(crate) line: String,
    /// The fields, names in lower case.
    pub(crate) fields: Vec<(String, String)>,
}

/// The part of a body that is still to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// So many bytes.
    Length(u64),
    /// A chunk's size line.
    ChunkSize,
    /// So many bytes of a chunk, then its line end.
    Chunk(u64),
    /// Lines of the trailer section.
    Trailers,
    /// Everything before the other's end.
    UntilClose,
    /// Nothing.
    Done,
}

/// An error in what Strait sent to a scripted peer.
pub(crate) type Malformed = String;

impl Inbound {
    /// Where more bytes go.
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        &mut self.bytes
    }

    /// The bytes that are there.
    #[must_use]
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Takes everything.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.rest().to_vec();
        self.at = self.bytes.len();
        rest
    }

    /// Takes a line, without its end.
    ///
    /// # Errors
    ///
    /// A line that ends in a bare LF.
    pub(crate) fn take_line(&mut self) -> Result<Option<String>, Malformed> {
        let rest = self.rest();
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line = rest.get(..end).unwrap_or_default();
        let Some((b'\r', line)) = line.split_last() else {
            return Err(format!("bare LF in {:?}", line.escape_ascii().to_string()));
        };
        let line = String::from_utf8_lossy(line).into_owned();
        self.at += end + 1;
        Ok(Some(line))
    }

    /// Takes a head, once it is whole.
    ///
    /// # Errors
    ///
    /// It is none.
    pub(crate) fn take_head(&mut self) -> Result<Option<Head>, Malformed> {
        if !self.rest().windows(4).any(|window| window == b"\r\n\r\n") {
            return Ok(None);
        }
        let line = self.take_line()?.unwrap_or_default();
        let mut fields = Vec::new();
        while let Some(field) = self.take_line()?.filter(|field| !field.is_empty()) {
            let (name, value) =
                field.split_once(':').ok_or_else(|| format!("no field: {field:?}"))?;
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Some(Head { line, fields }))
    }

    /// Takes what is there of a body, and moves `body` on.
    ///
    /// # Errors
    ///
    /// Bad chunks.
    pub(crate) fn take_body(
        &mut self,
        body: &mut Body,
        trailers: &mut Vec<String>,
        data: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        loop {
            match body {
                Body::Done => return Ok(()),
                Body::UntilClose => {
                    data.extend(self.take_rest());
                    return Ok(());
                }
                Body::Length(0) => *body = Body::Done,
                Body::Length(left) => {
                    let taken = self.take_data(*left, data);
                    *left -= taken;
                    if taken == 0 {
                        return Ok(());
                    }
                }
                Body::ChunkSize => {
                    let Some(line) = self.take_line()? else { return Ok(()) };
                    let size = u64::from_str_radix(&line, 16)
                        .map_err(|_| format!("no chunk size: {line:?}"))?;
                    *body = if size == 0 { Body::Trailers } else { Body::Chunk(size) };
                }
                Body::Chunk(0) => {
                    let Some(line) = self.take_line()? else { return Ok(()) };
                    if !line.is_empty() {
                        return Err(format!("chunk longer than its size: {line:?}"));
                    }
                    *body = Body::ChunkSize;
                }
                Body::Chunk(left) => {
                    let taken = self.take_data(*left, data);
                    *left -= taken;
                    if taken == 0 {
                        return Ok(());
                    }
                }
                Body::Trailers => {
                    let Some(line) = self.take_line()? else { return Ok(()) };
                    if line.is_empty() {
                        *body = Body::Done;
                    } else {
                        trailers.push(line);
                    }
                }
            }
        }
    }

    fn take_data(&mut self, bytes_max: u64, data: &mut Vec<u8>) -> u64 {
        let rest = self.rest();
        let length = rest.len().min(usize::try_from(bytes_max).unwrap_or(usize::MAX));
        data.extend_from_slice(rest.get(..length).unwrap_or_default());
        self.at += length;
        length as u64
    }
}

impl Head {
    /// The value of a field, which may come once.
    ///
    /// # Errors
    ///
    /// It comes twice.
    pub(crate) fn field(&self, name: &str) -> Result<Option<&str>, Malformed> {
        let mut values = self.fields.iter().filter(|(found, _)| found == name);
        let value = values.next().map(|(_, value)| value.as_str());
        match values.next() {
            None => Ok(value),
            Some(_) => Err(format!("{name} comes twice: {:?}", self.fields)),
        }
    }

    /// The body that a message with these fields has, if they say.
    ///
    /// # Errors
    ///
    /// They contradict each other.
    pub(crate) fn body(&self) -> Result<Option<Body>, Malformed> {
        match (self.field("content-length")?, self.field("transfer-encoding")?) {
            (None, None) => Ok(None),
            (Some(length), None) => match length.parse() {
                Ok(length) => Ok(Some(Body::Length(length))),
                Err(_) => Err(format!("no length: {length:?}")),
            },
            (None, Some("chunked")) => Ok(Some(Body::ChunkSize)),
            both => Err(format!("framing: {both:?}")),
        }
    }

    /// A response's status.
    ///
    /// # Errors
    ///
    /// There is none.
    pub(crate) fn status(&self) -> Result<u16, Malformed> {
        let mut words = self.line.splitn(3, ' ');
        match (words.next(), words.next().and_then(|word| word.parse().ok())) {
            (Some("HTTP/1.1" | "HTTP/1.0"), Some(status)) => Ok(status),
            _ => Err(format!("no status line: {:?}", self.line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_message_is_read_whatever_its_pieces() {
        let whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            3\r\nabc\r\n1\r\nd\r\n0\r\nx-t: 1\r\n\r\nrest";
        for cut in 0..whole.len() {
            let (mut inbound, mut data, mut trailers) = (Inbound::default(), vec![], vec![]);
            let (mut head, mut body) = (None, Body::Done);
            for piece in [&whole[..cut], &whole[cut..]] {
                inbound.room().extend_from_slice(piece);
                if head.is_none() {
                    head = inbound.take_head().unwrap();
                    body = head.as_ref().map_or(Body::Done, |h| h.body().unwrap().unwrap());
                }
                if head.is_some() {
                    inbound.take_body(&mut body, &mut trailers, &mut data).unwrap();
                }
            }
            assert_eq!(head.unwrap().status(), Ok(200));
            assert_eq!(
                (body, &data[..], &trailers[..]),
                (Body::Done, &b"abcd"[..], &["x-t: 1".to_owned()][..])
            );
            assert_eq!(inbound.rest(), b"rest");
        }
    }
}
