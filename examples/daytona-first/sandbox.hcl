# Daytona first, and the sandboxes of this machine where Daytona cannot serve: it is down,
# too slow, refuses, or has no room. Check it before you use it:
#   sandbox-broker check examples/daytona-first/sandbox.hcl

listen     = "127.0.0.1:9385"
state      = "../../data"
plugin_dir = "../../bin/plugins"

providers {
  active   = "daytona"
  fallback = ["self_managed"]

  # How long a request bears with Daytona where it is not clear whether a sandbox was made.
  unclear_timeout = "2s"
}

# A session stays where it began: its files are there, over pauses, archives and a restart of
# the broker.
provider "daytona" {
  api_key        = env("DAYTONA_API_KEY", "not-set")
  api_url        = env("DAYTONA_API_URL", "https://app.daytona.io/api")
  pause_by       = "archive"
  keep_stopped   = "720h"
  create_timeout = "1m"
}

provider "self_managed" {
  pool_size = 2
}

# The token is demo-token, which everybody knows.
tenant "demo" {
  token_sha256 = ["7c43ef5ae21d43ce2743f770c68e24def1a43ee2f416d2438410c8af7af2ff2c"]
}
