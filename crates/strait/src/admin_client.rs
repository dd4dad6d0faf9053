//! A client of a running process's admin interface, for the commands that ask one.
//!
//! One connection, kept while the process keeps it, and opened again when it is not there any more. Nothing here
//! waits longer than [`PATIENCE`].

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::snapshot::Address;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;

/// How long an answer may take, from the connection to its last byte.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    /// It was understood, and refused.
    #[error("{0}")]
    Refused(String),
    /// The process has no such page.
    #[error("{address}: {text}")]
    Missing { address: String, text: String },
    /// Another program answers.
    #[error(
        "{0}: what answers there is not the admin interface of Strait; write the `admin.address` of its configuration"
    )]
    Stranger(String),
    /// It takes too long.
    #[error("{0}: no answer within {PATIENCE:?}")]
    Silent(String),
    /// No process listens, or the connection broke.
    #[error(
        "{address}: {error}; is the process running, and is this the `admin.address` of its configuration?"
    )]
    Unreachable { address: String, error: io::Error },
    /// It cannot be an address.
    #[error(
        "{address}: {reason}; write 127.0.0.1:9901, localhost:9901 or unix:/run/strait/admin.sock"
    )]
    Wrong { address: String, reason: String },
    /// No runtime.
    #[error("{0}")]
    System(io::Error),
}

/// Where an admin interface is.
#[derive(Clone, Debug)]
enum Place {
    Tcp(Vec<SocketAddr>),
    Unix(Arc<Path>),
}

/// Asks one process.
#[derive(Debug)]
pub(crate) struct AdminClient {
    address: String,
    place: Place,
    runtime: Runtime,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

impl AdminClient {
    /// A client of the process at `address`, which is not connected to yet.
    ///
    /// # Errors
    ///
    /// It is no address, or a name that is not known.
    pub(crate) fn new(address: &str) -> Result<Self, AdminError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(AdminError::System)?;
        let place = place(address)?;
        Ok(Self { address: address.to_owned(), place, runtime, connection: None })
    }

    /// The body of a page.
    ///
    /// # Errors
    ///
    /// [`AdminError`].
    pub(crate) fn get(&mut self, path: &str) -> Result<Vec<u8>, AdminError> {
        let answer = self.exchange(path)?;
        let address = || self.address.clone();
        let text = || String::from_utf8_lossy(&answer.body).trim_end().to_owned();
        match answer.status {
            StatusCode::OK => Ok(answer.body),
            StatusCode::NOT_FOUND => Err(AdminError::Missing { address: address(), text: text() }),
            _ => Err(AdminError::Refused(text())),
        }
    }

    /// The body of a page whose status is part of what it says, as that of `/ready`.
    ///
    /// # Errors
    ///
    /// [`AdminError`].
    pub(crate) fn get_any(&mut self, path: &str) -> Result<Vec<u8>, AdminError> {
        Ok(self.exchange(path)?.body)
    }

    fn exchange(&mut self, path: &str) -> Result<Answer, AdminError> {
        let kept = self.connection.take();
        let asked = exchange(&self.place, &self.address, path, kept);
        let timed = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, asked).await });
        let (answer, connection) =
            timed.map_err(|_| AdminError::Silent(self.address.clone()))??;
        self.connection = Some(connection);
        if answer.is_strait { Ok(answer) } else { Err(AdminError::Stranger(self.address.clone())) }
    }
}

/// An answer as it came.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    is_strait: bool,
    body: Vec<u8>,
}

/// Asks on the connection that was kept, or on a new one if it is not there any more.
async fn exchange(
    place: &Place,
    address: &str,
    path: &str,
    kept: Option<SendRequest<Empty<Bytes>>>,
) -> Result<(Answer, SendRequest<Empty<Bytes>>), AdminError> {
    if let Some(mut sender) = kept
        && sender.ready().await.is_ok()
        && let Ok(answer) = ask(&mut sender, address, path).await
    {
        return Ok((answer, sender));
    }
    let broken = |error: io::Error| AdminError::Unreachable { address: address.to_owned(), error };
    let mut sender = match place {
        Place::Tcp(addresses) => {
            let stream = TcpStream::connect(addresses.as_slice()).await.map_err(broken)?;
            spoken(stream, address).await?
        }
        Place::Unix(path) => {
            spoken(UnixStream::connect(path).await.map_err(broken)?, address).await?
        }
    };
    let answer = ask(&mut sender, address, path).await?;
    Ok((answer, sender))
}

async fn spoken<S>(stream: S, address: &str) -> Result<SendRequest<Empty<Bytes>>, AdminError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stranger = |_| AdminError::Stranger(address.to_owned());
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(stranger)?;
    // It ends with the sender; what broke it, the request says.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

async fn ask(
    sender: &mut SendRequest<Empty<Bytes>>,
    address: &str,
    path: &str,
) -> Result<Answer, AdminError> {
    let stranger = || AdminError::Stranger(address.to_owned());
    let host = if address.starts_with("unix:") { "localhost" } else { address };
    let request = Request::get(path).header(header::HOST, host).body(Empty::new());
    let request = request.map_err(|_| stranger())?;
    let response = sender.send_request(request).await.map_err(|error| broken(&error, address))?;
    let (status, is_strait) = (response.status(), is_strait(&response));
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| AdminError::Unreachable {
        address: address.to_owned(),
        error: io::Error::other(format!("the response was truncated: {error}")),
    })?;
    Ok(Answer { status, is_strait, body: body.to_bytes().into() })
}

/// A connection that ended is the process's, and anything else that is no HTTP is another program's.
fn broken(error: &hyper::Error, address: &str) -> AdminError {
    let address = address.to_owned();
    if error.is_parse() {
        return AdminError::Stranger(address);
    }
    AdminError::Unreachable { address, error: io::Error::other(error.to_string()) }
}

/// Whether the admin interface answers, and neither another program nor a listener: those that Strait replies on
/// have no such policy.
fn is_strait<T>(response: &Response<T>) -> bool {
    let headers = response.headers();
    headers.get(header::SERVER).is_some_and(|server| server == "strait")
        && headers.contains_key(header::CONTENT_SECURITY_POLICY)
}

fn place(address: &str) -> Result<Place, AdminError> {
    let wrong = |reason: String| AdminError::Wrong { address: address.to_owned(), reason };
    if address.starts_with("unix:") {
        return match address.parse() {
            Ok(Address::Unix(path)) => Ok(Place::Unix(path)),
            Ok(Address::Tcp(_)) => Err(wrong("is not a unix socket".to_owned())),
            Err(problem) => Err(wrong(problem.rule.to_string())),
        };
    }
    let addresses = address.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    Ok(Place::Tcp(addresses.collect()))
}

/// A value as a query has it: all but letters, digits and `-._~` as `%` and two digits (RFC 3986, section 2.3).
pub(crate) fn encode(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
