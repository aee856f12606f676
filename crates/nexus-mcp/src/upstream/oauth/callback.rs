//! The page on this very machine to which the authorization server sends the browser back.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use url::Url;

use super::error::OAuthError;

const PATH: &str = "/callback";

/// Minutes for a person to log in.
pub const PATIENCE_MINUTES: u64 = 5;
const PATIENCE: Duration = Duration::from_secs(PATIENCE_MINUTES * 60);

/// For one request to arrive, and bytes of it.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_REQUEST: usize = 16 * 1024;
const MOST_VISITORS: usize = 16;

/// Listens on loopback, on a port of its own.
#[derive(Debug)]
pub struct Callback {
    listener: TcpListener,
    url: Url,
}

impl Callback {
    pub async fn listen() -> Result<Self, OAuthError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(OAuthError::Listener)?;
        let port = listener.local_addr().map_err(OAuthError::Listener)?.port();
        let url = Url::parse(&format!("http://127.0.0.1:{port}{PATH}"));
        Ok(Self { listener, url: url.map_err(|error| OAuthError::Unusable(error.to_string()))? })
    }

    /// Where the authorization server is to send the browser.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The address the browser came to with this state. Other visitors are sent away: any page and any program on this
    /// machine can call here.
    pub async fn visited(&self, state: &str) -> Result<Url, OAuthError> {
        timeout(PATIENCE, self.wait(state)).await.unwrap_or(Err(OAuthError::Late(PATIENCE_MINUTES)))
    }

    async fn wait(&self, state: &str) -> Result<Url, OAuthError> {
        // Side by side: browsers like to open a connection that they then say nothing on.
        let mut visitors = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if visitors.len() < MOST_VISITORS => {
                    let (stream, _) = accepted.map_err(OAuthError::Listener)?;
                    visitors.push(self.receive(stream, state));
                }
                Some(came) = visitors.next() => {
                    if let Some(came_to) = came {
                        return Ok(came_to);
                    }
                }
            }
        }
    }

    async fn receive(&self, mut stream: TcpStream, state: &str) -> Option<Url> {
        let came_to = timeout(REQUEST_PATIENCE, self.request(&mut stream)).await.ok().flatten();
        let ours = came_to.filter(|url| url.query_pairs().any(|(name, value)| name == "state" && value == state));
        let (status, words) = match &ours {
            Some(_) => ("200 OK", "Nexus has the answer. You can close this window."),
            None => ("400 Bad Request", "This is not the answer Nexus waits for."),
        };
        let page = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{words}",
            words.len()
        );
        let _ = timeout(REQUEST_PATIENCE, stream.write_all(page.as_bytes())).await;
        ours
    }

    /// The address of a GET; nothing for whatever else is said.
    async fn request(&self, stream: &mut TcpStream) -> Option<Url> {
        let mut head = Vec::new();
        while !head.windows(4).rev().take(1024).any(|end| end == b"\r\n\r\n") {
            let mut chunk = [0; 1024];
            let came = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
            head.extend_from_slice(&chunk[..came]);
            if head.len() > LONGEST_REQUEST {
                return None;
            }
        }
        let line = std::str::from_utf8(&head).ok()?.lines().next()?;
        let target = line.strip_prefix("GET ")?.split(' ').next()?;
        let came_to = self.url.join(target).ok()?;
        (came_to.path() == PATH && came_to.origin() == self.url.origin()).then_some(came_to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn visit(url: &Url, target: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", url.port().unwrap())).await.unwrap();
        stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        said
    }

    #[tokio::test]
    async fn only_the_visitor_with_the_state_is_waited_for() {
        let callback = Callback::listen().await.unwrap();
        let url = callback.url().clone();
        let visits = async {
            for target in ["/favicon.ico", "/callback?state=other&code=x", "/callback", "//evil/callback?state=S"] {
                let said = visit(&url, target).await;
                assert!(said.starts_with("HTTP/1.1 400"), "{target}: {said}");
            }
            assert!(visit(&url, "/callback?code=c%20d&state=S").await.starts_with("HTTP/1.1 200"));
        };
        let (came_to, ()) = tokio::join!(callback.visited("S"), visits);
        assert_eq!(came_to.unwrap().query(), Some("code=c%20d&state=S"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_that_nobody_finishes_ends() {
        let callback = Callback::listen().await.unwrap();
        assert!(matches!(callback.visited("S").await, Err(OAuthError::Late(_))));
    }
}
