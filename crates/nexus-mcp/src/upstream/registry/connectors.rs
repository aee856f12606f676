//! The usual way from an entry to its server: a program that is started, or an address that is called.

use std::fmt;
use std::sync::Arc;

use nexus_core::audit::{Nowhere, Sink};
use nexus_core::tasks::Tasks;

use crate::upstream::config::{Endpoint, HttpEndpoint, ServerConfig};
use crate::upstream::error::ConfigurationError;
use crate::upstream::log::ServerLog;
use crate::upstream::supervisor::Connectors;
use crate::upstream::transport::Connector;
use crate::upstream::transport::http::{Credentials, HttpConnector};
use crate::upstream::transport::stdio::StdioConnector;

/// Says who we are to which server.
pub trait CredentialsFor: fmt::Debug + Send + Sync {
    fn credentials(&self, config: &ServerConfig, endpoint: &HttpEndpoint) -> Option<Arc<dyn Credentials>>;
}

/// Starts programs and calls addresses.
#[derive(Clone)]
pub struct Standard {
    tasks: Tasks,
    audit: Arc<dyn Sink>,
    credentials: Option<Arc<dyn CredentialsFor>>,
}

impl fmt::Debug for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standard").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl Standard {
    /// Without a record of the requests, and without credentials but the headers of an entry.
    pub fn new(tasks: Tasks) -> Self {
        Self { tasks, audit: Arc::new(Nowhere), credentials: None }
    }

    /// Every request that goes out is a row there.
    #[must_use]
    pub fn recorded(mut self, audit: Arc<dyn Sink>) -> Self {
        self.audit = audit;
        self
    }

    #[must_use]
    pub fn with_credentials(mut self, credentials: Arc<dyn CredentialsFor>) -> Self {
        self.credentials = Some(credentials);
        self
    }
}

impl Connectors for Standard {
    fn connector(&self, config: &ServerConfig, log: Arc<ServerLog>) -> Result<Arc<dyn Connector>, ConfigurationError> {
        match &config.endpoint {
            None => Err(ConfigurationError::Nowhere(config.name.to_string())),
            Some(Endpoint::Stdio(program)) => {
                Ok(Arc::new(StdioConnector::new(program.clone(), log, self.tasks.clone())))
            }
            Some(Endpoint::Http(http)) => {
                let credentials = self.credentials.as_ref().and_then(|keys| keys.credentials(config, http));
                let (http, audit, tasks) = (http.clone(), self.audit.clone(), self.tasks.clone());
                Ok(Arc::new(HttpConnector::new(http, audit, credentials, log, tasks)))
            }
        }
    }
}
