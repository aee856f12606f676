//! The rules as a table.

use super::*;

fn secrets() -> Secrets {
    Secrets::new(&Settings {
        secret_paths: ["/srv/vault", "*.secret", "~/notes"].map(str::to_owned).to_vec(),
        secret_files: ["/no/where/hub-key", "~/telegram", "", "/", "/dev/fd/63"].map(PathBuf::from).to_vec(),
        home: Some("/home/me".into()),
        data_dir: Some("/home/me/.local/share/nexus".into()),
        ..Settings::default()
    })
}

#[test]
fn secret_paths_are_known_by_their_names() {
    for path in [
        "/etc/shadow",
        "/etc/shadow-",
        "/etc/gshadow",
        "/etc/gshadow-",
        "/etc/security/opasswd",
        "/var/backups/shadow.bak",
        "/var/backups/gshadow.bak",
        "/var/backups/shadow.1.gz",
        "/etc/sudoers",
        "/etc/sudoers.d/me",
        "//etc//shadow",
        "/etc/../etc/shadow",
        "/tmp/../etc/./shadow",
        "/mnt/backup/etc/shadow",
        "/proc/self/root/etc/shadow",
        "/proc/1/environ",
        "/proc/self/environ",
        "/proc/thread-self/environ",
        "/proc/1/task/1/environ",
        "/proc/1/mem",
        "/proc/kcore",
        "/proc/1/cmdline",
        "/host/proc/1/environ",
        "/root/.ssh/id_rsa",
        "/root/.ssh/work",
        "/root/.ssh/keys/config",
        "/x/id_ed25519",
        "/x/ID_RSA",
        "/x/site.pem",
        "/x/site.key",
        "/etc/ssh/ssh_host_rsa_key",
        "/etc/ssh/my_key",
        "/app/.env",
        "/app/.env.production",
        "/app/prod.env",
        "/root/.netrc",
        "/root/.pgpass",
        "/root/.git-credentials",
        "/root/.aws/credentials",
        "/root/.docker/config.json",
        "/root/.kube/config",
        "/root/.gnupg/pubring.kbx",
        "/home/me/.local/share/nexus/key",
        "/home/me/.local/share/nexus",
        "/run/secrets/db",
        "/srv/vault/a/b",
        "/x/y.secret",
        "/home/me/notes/1",
        "/no/where/hub-key",
        "/no/where/else/../hub-key",
        "/home/me/telegram",
    ] {
        assert!(secrets().check_path(Path::new(path)).is_err(), "{path}");
    }
}

#[test]
fn ordinary_paths_are_free() {
    for path in [
        "/etc/passwd",
        "/etc/ssh/sshd_config",
        "/etc/ssh/ssh_host_rsa_key.pub",
        "/root/.ssh/config",
        "/root/.ssh/known_hosts",
        "/root/.ssh/authorized_keys",
        "/root/.ssh/id_rsa.pub",
        "/proc/cmdline",
        "/proc/1/status",
        "/proc/meminfo",
        "/x/environ",
        "/x/environment",
        "/x/keys.txt",
        "/home/me/.local/share/nexus2/x",
        "/srv/vaults/x",
        "/root/.docker/daemon.json",
        "/var/backups/dpkg.status.0",
        "/no/where/hub-keys",
        "/no/where",
        "/dev/fd/63",
    ] {
        assert_eq!(secrets().check_path(Path::new(path)), Ok(()), "{path}");
    }
}

#[test]
fn a_refusal_names_the_path_and_the_way_out() {
    let reply = ToolError::from(secrets().check_path(Path::new("/etc/shadow")).unwrap_err()).into_reply();
    assert!(
        reply.text().starts_with("/etc/shadow is not shown: it holds passwords of this machine\nhint: "),
        "{}",
        reply.text()
    );
    assert!(reply.text().contains("run_command"));
}
