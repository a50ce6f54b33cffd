# Everything a file may hold.
listen     = "0.0.0.0:80"
state      = "../state"
plugin_dir = "/opt/plugins"

log {
  level  = "debug"
  format = "json"
}

metrics {
  listen = ":9400"
}

tracing {
  endpoint       = "https://traces.example.com"
  headers        = { Authorization = "Bearer a-secret-of-the-receiver" }
  sample_ratio   = 0.25
  follow_callers = true
  name_tenants   = true
}

limits {
  request_body     = 1048576
  output           = 8388608
  artifact_count   = 100
  artifact_bytes   = 1024
  artifact_total   = 67108864
  default_timeout  = "1m30s"
  max_timeout      = 3600
  create_timeout   = 2.5
  shutdown_timeout = "0s"
  default_ttl      = "10m"
  max_lifetime     = "720h"
  max_idle         = 3600
  max_wait         = "5s"
  max_waiting      = 7
}

quota {
  max_instances   = 20
  money_per_month = 100
}

providers {
  active = "second"
}

provider "first" {
  plugin    = "full"
  sha256    = "ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB"
  env       = ["HTTPS_PROXY", "_X"]

  cost_per_second = 0.000028

  region    = "eu"
  hostname  = "box-1"
  api_key   = env("API_KEY")
  pool_size = 7
  cpus      = 0.5
  verbose   = true
  idle      = "90s"
  mounts    = ["/a", "/b"]
  labels    = { team = "x", "with space" = "y" }
}

provider "second" {
  plugin = "full"
}

front_door "ragflow" {
  path     = "/executor"
  listen   = "127.0.0.1:9000"
  provider = "first"
  wait     = "4s"
  timeout  = 20
  tenant   = "acme"
}

front_door "opensandbox" {
  address = "sandboxes.example.com:8443/os"
  network = "allow"

  images = {
    "opensandbox/code-interpreter:v1.0.1" = ""
    "python:3.12"                         = "python"
  }
}

front_door "e2b" {
  domain       = "e2b.example.com:8443"
  public_ports = false
}

front_door "deerflow" {
  address = "https://sandboxes.example.com:8443"
  lease   = "2h"
}

admin {
  token_sha256 = ["4444444444444444444444444444444444444444444444444444444444444444"]
}

tenant "acme" {
  token_sha256 = ["1111111111111111111111111111111111111111111111111111111111111111", "2222222222222222222222222222222222222222222222222222222222222222"]
  providers    = ["first"]

  quota {
    max_instances             = 10
    max_concurrent            = 4
    requests_per_second       = 0.5
    executions_per_day        = 100000
    execution_seconds_per_day = 36000
    max_memory_mb             = 512
    max_cpus                  = 1.5
    money_per_day             = 2.25
  }
}

tenant "demo" {
  token_sha256 = ["3333333333333333333333333333333333333333333333333333333333333333"]
}
